/**
 * From what the user typed to what a stream is encrypted with:
 *
 *     password --EVP_BytesToKey, or base64--> master key --HKDF-SHA1 with the stream's salt--> session subkey
 *
 * Each stream direction has its own salt and so its own subkey. HKDF-SHA1 runs twice a connection and twice an
 * UDP datagram's round trip: node:crypto takes 11 µs for it, the six SHA-1 calls of `hkdfWith` 1.2 to 1.5.
 */
import { createHash, hkdfSync } from 'node:crypto';
import { ConfigError } from '../errors.js';
import { declareOptional } from '../linux/ffi.js';
import { Block } from '../linux/memory.js';
import { libcryptoCandidates } from './libcrypto.js';

const info = Buffer.from('ss-subkey', 'latin1'); // SIP007

/** OpenSSL's EVP_BytesToKey with MD5, no salt and one round: D(i) = MD5(D(i-1) ‖ password), as long as needed. */
export function masterKeyFromPassword(password: string, keySize: number): Uint8Array {
  const key = new Uint8Array(keySize);
  let digest: Uint8Array = new Uint8Array(0);
  for (let filled = 0; filled < keySize; filled += digest.length) {
    digest = createHash('md5').update(digest).update(password, 'utf8').digest();
    key.set(digest.subarray(0, keySize - filled), filled);
  }
  return key;
}

/**
 * The master key itself, in base64 of either alphabet, padded or not. Bytes beyond `keySize` are ignored, as
 * shadowsocks-libev does.
 *
 * @throws {ConfigError} which says what is wrong with the text and repeats none of it.
 */
export function masterKeyFromBase64(text: string, keySize: number): Uint8Array {
  const urlSafe = text
    .replace(/={1,2}$/, '')
    .replaceAll('+', '-')
    .replaceAll('/', '_');
  const padded = text.endsWith('=');
  const key = Buffer.from(urlSafe, 'base64url');
  // Buffer.from skips what it cannot decode, so only a text that comes out again was base64.
  if (key.toString('base64url') !== urlSafe || (padded && text.length % 4 !== 0)) {
    throw new ConfigError(`expected base64 of a ${keySize}-byte key, got something that is not base64`);
  }
  if (key.length < keySize) {
    throw new ConfigError(`expected base64 of a ${keySize}-byte key, got one of ${key.length} bytes`);
  }
  return Uint8Array.from(key.subarray(0, keySize));
}

/** HKDF-SHA1(ikm = master key, salt, info = "ss-subkey"), as long as the master key (SIP007). */
export function sessionSubkey(masterKey: Uint8Array, salt: Uint8Array): Uint8Array {
  if (hkdf === undefined) return slowSubkey(masterKey, salt);
  const subkey = new Uint8Array(masterKey.length);
  hkdf(subkey, masterKey, salt, 0, salt.length);
  return subkey;
}

/** The same without an object: the salt, as long as the master key, stands at `source[saltAt]`; so long is `target`. */
export function sessionSubkeyInto(
  target: Uint8Array,
  masterKey: Uint8Array,
  source: Uint8Array,
  saltAt: number,
): void {
  const size = masterKey.length;
  if (hkdf !== undefined) hkdf(target, masterKey, source, saltAt, size);
  else target.set(slowSubkey(masterKey, source.subarray(saltAt, saltAt + size)));
}

function slowSubkey(masterKey: Uint8Array, salt: Uint8Array): Uint8Array {
  return new Uint8Array(hkdfSync('sha1', masterKey, salt, info, masterKey.length));
}

/**
 * What the SHA-1 calls work on: an SHA_CTX (include/openssl/sha.h), which begins with the five chaining words in the host's
 * byte order and is at most 96 bytes long, then the messages of the three HMACs (RFC 2104) that make an HKDF. Each is two
 * SHA-1 blocks with the padding in place, of which a call changes only what it must:
 *
 *     inner   key ^ 36… (64) | message, 80, zeros, length in bits (64)
 *     outer   key ^ 5c… (64) | SHA1(inner), 80, zeros, length in bits (64)
 */
const stateAt = 0;
const extractInnerAt = 128; // key: the salt; message: the master key
const extractOuterAt = 256;
const firstInnerAt = 384; // key: what was extracted; message: info ‖ 1
const secondInnerAt = 512; // the same key; message: first ‖ info ‖ 2
const expandOuterAt = 640;
const resultAt = 768; // first ‖ second
const scratch = Block.allocate(832);
const { bytes } = scratch;
const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
const stateAddress = scratch.at(stateAt, 96);
const littleEndian = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;
const digestSize = 20;
const maxKeySize = 32;

type Sha1Update = (context: number, data: number, size: number) => number;

/** Key and salt have at most 32 bytes, `target` as many as the key. */
type Hkdf = (
  target: Uint8Array,
  masterKey: Uint8Array,
  source: Uint8Array,
  saltAt: number,
  saltSize: number,
) => void;

/** Undefined where no libcrypto exports SHA1_Update, or one does other than we think. */
const hkdf = findHkdf();

function findHkdf(): Hkdf | undefined {
  prepareMessages();
  for (const library of libcryptoCandidates()) {
    const sha1Update = declareOptional<Sha1Update>(
      'int SHA1_Update(uintptr_t context, uintptr_t data, size_t size)',
      library,
    );
    if (sha1Update === undefined) continue;
    const candidate: Hkdf = (target, masterKey, source, saltAt, saltSize) =>
      hkdfWith(sha1Update, target, masterKey, source, saltAt, saltSize);
    if (isRight(candidate)) return candidate;
  }
  return undefined;
}

function isRight(candidate: Hkdf): boolean {
  return [16, 24, 32].every((size) => {
    const masterKey = Uint8Array.from({ length: size }, (_, i) => 3 * i + 1);
    const salt = Uint8Array.from({ length: size }, (_, i) => 255 - 5 * i);
    const subkey = new Uint8Array(size);
    candidate(subkey, masterKey, salt, 0, size);
    return Buffer.compare(subkey, slowSubkey(masterKey, salt)) === 0;
  });
}

/** RFC 5869. */
function hkdfWith(
  sha1Update: Sha1Update,
  target: Uint8Array,
  masterKey: Uint8Array,
  source: Uint8Array,
  saltAt: number,
  saltSize: number,
): void {
  const size = masterKey.length;
  for (let i = 0; i < maxKeySize; i += 1) {
    const byte = i < saltSize ? source[saltAt + i]! : 0;
    bytes[extractInnerAt + i] = byte ^ 0x36;
    bytes[extractOuterAt + i] = byte ^ 0x5c;
    bytes[extractInnerAt + 64 + i] = i < size ? masterKey[i]! : 0;
  }
  pad(extractInnerAt, size);
  hash(sha1Update, extractInnerAt, extractOuterAt + 64);
  hash(sha1Update, extractOuterAt, resultAt);

  for (let i = 0; i < digestSize; i += 4) {
    const word = view.getUint32(resultAt + i);
    view.setUint32(firstInnerAt + i, word ^ 0x36363636);
    view.setUint32(secondInnerAt + i, word ^ 0x36363636);
    view.setUint32(expandOuterAt + i, word ^ 0x5c5c5c5c);
  }
  hash(sha1Update, firstInnerAt, expandOuterAt + 64);
  hash(sha1Update, expandOuterAt, resultAt);
  if (size > digestSize) {
    for (let i = 0; i < digestSize; i += 4)
      view.setUint32(secondInnerAt + 64 + i, view.getUint32(resultAt + i));
    hash(sha1Update, secondInnerAt, expandOuterAt + 64);
    hash(sha1Update, expandOuterAt, resultAt + digestSize);
  }

  for (let i = 0; i < size; i += 1) target[i] = bytes[resultAt + i]!;
}

/** Hashes the 128 bytes at `from` and writes the digest to `to`. Whole blocks: SHA1_Update keeps nothing back. */
function hash(sha1Update: Sha1Update, from: number, to: number): void {
  view.setUint32(stateAt, 0x67452301, littleEndian); // RFC 3174, section 6.1
  view.setUint32(stateAt + 4, 0xefcdab89, littleEndian);
  view.setUint32(stateAt + 8, 0x98badcfe, littleEndian);
  view.setUint32(stateAt + 12, 0x10325476, littleEndian);
  view.setUint32(stateAt + 16, 0xc3d2e1f0, littleEndian);
  sha1Update(stateAddress, scratch.at(from, 128), 128);
  for (let i = 0; i < digestSize; i += 4) view.setUint32(to + i, view.getUint32(stateAt + i, littleEndian));
}

/** Ends the message of `size` bytes that begins in the second block at `at`. */
function pad(at: number, size: number): void {
  bytes[at + 64 + maxKeySize] = 0;
  bytes[at + 64 + size] = 0x80;
  view.setUint16(at + 126, (64 + size) * 8);
}

/** What is the same in every HKDF. */
function prepareMessages(): void {
  for (const at of [extractInnerAt, firstInnerAt, secondInnerAt]) bytes.fill(0x36, at, at + 64);
  for (const at of [extractOuterAt, expandOuterAt]) {
    bytes.fill(0x5c, at, at + 64);
    pad(at, digestSize);
  }
  bytes.set([...info, 1], firstInnerAt + 64);
  pad(firstInnerAt, info.length + 1);
  bytes.set([...info, 2], secondInnerAt + 64 + digestSize);
  pad(secondInnerAt, digestSize + info.length + 1);
}
