/**
 * What a crypto backend does. For a stream: AEAD with an empty associated data, a 16-byte tag behind the ciphertext, and
 * a nonce that counts the operations of the stream's one direction: little-endian, from 0, 12 bytes, or 24 for
 * xchacha20-ietf-poly1305 (SIP004). For UDP packets: the same with the packet's own nonce, and the bare AES block.
 */
import type { Block } from '../linux/memory.js';
import type { Cipher, Method } from './methods.js';
import { nobleBackend } from './noble.js';
import { opensslBackend } from './openssl.js';

export interface Sealer {
  /**
   * Encrypts `block[offset .. offset + length)` in place and writes the tag behind it. `length` is at least 1.
   * The nonce moves on by one.
   */
  seal(block: Block, offset: number, length: number): void;
}

export interface Opener {
  /**
   * Decrypts `length` bytes of ciphertext at `source[offset]`, whose tag follows them, to `target[targetOffset]`. The
   * target is another block, or the same one with the same offset.
   *
   * False when the tag does not match: the nonce has not moved, and what now stands in the target is worth nothing.
   */
  open(source: Block, offset: number, length: number, target: Block, targetOffset: number): boolean;
}

/** An AEAD for UDP packets, whose nonces come with them: 12 bytes, 24 for XChaCha20. */
export interface PacketCipher {
  /**
   * Encrypts `block[offset .. offset + length)` in place under the nonce that stands at `nonces.bytes[nonceAt]`, and writes
   * the tag behind it. `length` is at least 1.
   */
  seal(block: Block, offset: number, length: number, nonces: Block, nonceAt: number): void;
  /**
   * Decrypts `length` bytes, whose tag follows them, in place. False when the tag does not match: what now stands there is
   * worth nothing.
   */
  open(block: Block, offset: number, length: number, nonces: Block, nonceAt: number): boolean;
  /** Uses this key from now on: kept, and nobody writes to it before the next `changeKey`. */
  changeKey(key: Uint8Array): void;
}

/** AES-128 or AES-256 on one block of 16 bytes, in place: ECB without padding. */
export interface BlockCipher {
  encrypt(block: Block, offset: number): void;
  decrypt(block: Block, offset: number): void;
}

export interface AeadBackend {
  readonly name: 'openssl' | 'noble';
  /** The backend keeps `subkey`: nobody may write to it afterwards. */
  sealer(method: Method, subkey: Uint8Array): Sealer;
  opener(method: Method, subkey: Uint8Array): Opener;
  packetCipher(cipher: Cipher, key: Uint8Array): PacketCipher;
  /** @param key 16 or 32 bytes, kept as well. */
  blockCipher(key: Uint8Array): BlockCipher;
}

/**
 * The fastest backend that works here: OpenSSL in Node itself or in the system's libcrypto, or else JavaScript, which is
 * right and about 50 times slower, hence the warning.
 */
export function selectBackend(
  warn: (message: string) => void = (message) => process.emitWarning(message),
): AeadBackend {
  const openssl = opensslBackend();
  if (openssl !== undefined) return openssl;
  warn(
    'no usable OpenSSL 3 in Node or as libcrypto.so.3: encrypting in JavaScript, which is about 50 times slower',
  );
  return nobleBackend;
}
