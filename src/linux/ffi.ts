/**
 * The only importer of koffi. Everything that leaves JavaScript for C is declared through here.
 *
 * Addresses travel as `uintptr_t`, which koffi takes as a plain Number, so the hot path makes no object and no BigInt.
 * `intptr_t` stands for ssize_t, which koffi does not know by name.
 */
import { createRequire } from 'node:module';
import type * as Koffi from 'koffi';

export type Library = Koffi.LibraryHandle;

const koffi = loadKoffi();

/** Symbols of the running process: libc, and the libcrypto that Node carries. */
export const processSymbols: Library = koffi.load(null);

/**
 * Declares one C function by its prototype, as in `int close(int fd)`. Calls are synchronous.
 * A symbol that is missing ends the process with one line: nothing here can run without its system calls.
 */
export function declare<F extends (...args: never[]) => unknown>(
  prototype: string,
  library: Library = processSymbols,
): F {
  try {
    return library.func(prototype) as unknown as F;
  } catch (cause) {
    return unavailable(`the C library lacks "${prototype}"`, cause);
  }
}

/** Like `declare`, for a function that this system may lack: undefined then. */
export function declareOptional<F extends (...args: never[]) => unknown>(
  prototype: string,
  library: Library = processSymbols,
): F | undefined {
  try {
    return library.func(prototype) as unknown as F;
  } catch {
    return undefined;
  }
}

/** Opens a shared library by its soname; undefined when it is not there. */
export function openLibrary(soname: string): Library | undefined {
  try {
    return koffi.load(soname);
  } catch {
    return undefined;
  }
}

/** errno of this thread's last C call. Ask in the very next statement. */
export const errno: () => number = koffi.errno as unknown as () => number;

/** Where the bytes of `buffer` are. They stay there only for memory from Buffer.allocUnsafeSlow. */
export function addressOf(buffer: Uint8Array): number {
  return Number(koffi.address(buffer));
}

function loadKoffi(): typeof Koffi {
  try {
    return createRequire(import.meta.url)('koffi') as typeof Koffi;
  } catch (cause) {
    return unavailable(
      'koffi, which makes our system calls, cannot be loaded (reinstall with npm ci)',
      cause,
    );
  }
}

/** Modules are still loading, so nobody could catch an error: say it in one line and go. */
function unavailable(what: string, cause: unknown): never {
  const reason = cause instanceof Error ? cause.message.split('\n', 1)[0] : String(cause);
  process.stderr.write(`${what}: ${reason}\n`);
  process.exit(1);
}
