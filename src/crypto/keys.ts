/**
 * From what the user typed to what a stream is encrypted with:
 *
 *     password --EVP_BytesToKey, or base64--> master key --HKDF-SHA1 with the stream's salt--> session subkey
 *
 * Each stream direction has its own salt and so its own subkey. HKDF-SHA1 runs twice a connection and twice an
 * UDP datagram's round trip: node:crypto takes 11 µs for it, the six SHA-1 calls of `fastSubkey` 1 to 2.
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
  return fastSubkey === undefined ? slowSubkey(masterKey, salt) : fastSubkey(masterKey, salt);
}

function slowSubkey(masterKey: Uint8Array, salt: Uint8Array): Uint8Array {
  return new Uint8Array(hkdfSync('sha1', masterKey, salt, info, masterKey.length));
}

/**
 * What the SHA-1 calls work on. `state` is an SHA_CTX (include/openssl/sha.h), which begins with the five chaining
 * words in the host's byte order and is at most 96 bytes long. `inner` and `outer` are the two messages of one HMAC (RFC 2104),
 * 128 bytes each, that is, two SHA-1 blocks with the padding in place:
 *
 *     inner   key ^ ipad (64) | message, 80, zeros, length in bits (64)
 *     outer   key ^ opad (64) | SHA1(inner), 80, zeros, length in bits (64)
 */
const stateAt = 0;
const innerAt = 128;
const outerAt = 256;
const scratch = Block.allocate(384);
const { bytes } = scratch;
const state = new DataView(bytes.buffer, bytes.byteOffset + stateAt, 96);
const littleEndian = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;
const stateAddress = scratch.at(stateAt, 96);
const innerAddress = scratch.at(innerAt, 128);
const outerAddress = scratch.at(outerAt, 128);
const digestSize = 20;

type Sha1Update = (context: number, data: number, size: number) => number;

/** Undefined where no libcrypto exports SHA1_Update, or one does other than we think. */
const fastSubkey = findFastSubkey();

function findFastSubkey(): typeof sessionSubkey | undefined {
  for (const library of libcryptoCandidates()) {
    const sha1Update = declareOptional<Sha1Update>(
      'int SHA1_Update(uintptr_t context, uintptr_t data, size_t size)',
      library,
    );
    if (sha1Update === undefined) continue;
    const candidate = (masterKey: Uint8Array, salt: Uint8Array) => hkdf(sha1Update, masterKey, salt);
    if (isRight(candidate)) return candidate;
  }
  return undefined;
}

function isRight(candidate: typeof sessionSubkey): boolean {
  return [16, 24, 32].every((size) => {
    const masterKey = Uint8Array.from({ length: size }, (_, i) => 3 * i + 1);
    const salt = Uint8Array.from({ length: size }, (_, i) => 255 - 5 * i);
    return Buffer.compare(candidate(masterKey, salt), slowSubkey(masterKey, salt)) === 0;
  });
}

/** RFC 5869. Key, salt and message are at most 32 bytes here, so that each message fits its one block. */
function hkdf(sha1Update: Sha1Update, masterKey: Uint8Array, salt: Uint8Array): Uint8Array {
  const subkey = new Uint8Array(masterKey.length);

  setHmacKey(salt, 0, salt.length);
  bytes.set(masterKey, innerAt + 64);
  hmac(sha1Update, masterKey.length); // the extracted key

  setHmacKey(bytes, outerAt + 64, digestSize);
  bytes.set(info, innerAt + 64);
  bytes[innerAt + 64 + info.length] = 1;
  hmac(sha1Update, info.length + 1);
  subkey.set(bytes.subarray(outerAt + 64, outerAt + 64 + Math.min(digestSize, subkey.length)));
  if (subkey.length <= digestSize) return subkey;

  bytes.copyWithin(innerAt + 64, outerAt + 64, outerAt + 64 + digestSize);
  bytes.set(info, innerAt + 64 + digestSize);
  bytes[innerAt + 64 + digestSize + info.length] = 2;
  hmac(sha1Update, digestSize + info.length + 1);
  subkey.set(bytes.subarray(outerAt + 64, outerAt + 64 + subkey.length - digestSize), digestSize);
  return subkey;
}

/** Writes `key ^ ipad` and `key ^ opad`; the key is at most 32 bytes, and may be the result of an `hmac`. */
function setHmacKey(source: Uint8Array, from: number, size: number): void {
  bytes.fill(0x36, innerAt, innerAt + 64);
  bytes.fill(0x5c, outerAt, outerAt + 64);
  for (let i = 0; i < size; i += 1) {
    const byte = source[from + i]!;
    bytes[innerAt + i] = byte ^ 0x36;
    bytes[outerAt + i] = byte ^ 0x5c;
  }
}

/** HMAC-SHA1 of the `size` bytes at the message's place; the digest takes that of `outer`'s second block. */
function hmac(sha1Update: Sha1Update, size: number): void {
  sha1(sha1Update, innerAt, innerAddress, size);
  writeDigest();
  sha1(sha1Update, outerAt, outerAddress, digestSize);
  writeDigest();
}

/** Hashes the 64 bytes at `at` and the `size` behind them. Whole blocks only, so SHA1_Update keeps nothing back. */
function sha1(sha1Update: Sha1Update, at: number, address: number, size: number): void {
  bytes.fill(0, at + 64 + size, at + 128);
  bytes[at + 64 + size] = 0x80;
  bytes[at + 126] = ((64 + size) * 8) >>> 8;
  bytes[at + 127] = ((64 + size) * 8) & 0xff;
  state.setUint32(0, 0x67452301, littleEndian); // RFC 3174, section 6.1
  state.setUint32(4, 0xefcdab89, littleEndian);
  state.setUint32(8, 0x98badcfe, littleEndian);
  state.setUint32(12, 0x10325476, littleEndian);
  state.setUint32(16, 0xc3d2e1f0, littleEndian);
  sha1Update(stateAddress, address, 128);
}

function writeDigest(): void {
  for (let i = 0; i < digestSize; i += 4) {
    bytes.writeUInt32BE(state.getUint32(i, littleEndian), outerAt + 64 + i);
  }
}
