/**
 * Which OpenSSL we call: first the one that Node carries, which is in this process anyway and newer than many a system's;
 * then the system's, for a Node built without it.
 */
import { openLibrary, processSymbols, type Library } from '../linux/ffi.js';

/** In the order of preference. A caller takes the first that has, and does, what it needs. */
export function* libcryptoCandidates(): Generator<Library> {
  yield processSymbols;
  const system = openLibrary('libcrypto.so.3');
  if (system !== undefined) yield system;
}
