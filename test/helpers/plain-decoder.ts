/**
 * The slow, plain twin of AeadStreamDecoder: keeps all bytes in one buffer and starts over at each, asks noble, and makes a
 * new array for everything. What is fast is compared with it.
 */
import { gcm } from '@noble/ciphers/aes.js';
import { chacha20poly1305, xchacha20poly1305 } from '@noble/ciphers/chacha.js';
import { hkdf } from '@noble/hashes/hkdf.js';
import { sha1 } from '@noble/hashes/legacy.js';
import type { Method } from '../../src/crypto/methods.js';

export interface PlainResult {
  /** The payloads of the complete records, in order. */
  payloads: Uint8Array[];
  /** Whether the stream may end here. */
  complete: boolean;
}

export function decodePlainly(method: Method, masterKey: Uint8Array, stream: Uint8Array): PlainResult {
  const payloads: Uint8Array[] = [];
  if (stream.length < method.saltSize) return { payloads, complete: stream.length === 0 };
  const salt = stream.slice(0, method.saltSize);
  const subkey = hkdf(sha1, masterKey, salt, Buffer.from('ss-subkey'), method.keySize);
  let operations = 0;
  let at = method.saltSize;

  const open = (size: number): Uint8Array | undefined => {
    if (stream.length - at < size + 16) return undefined;
    const nonce = new Uint8Array(method.nonceSize);
    for (let i = 0, n = operations; n > 0; i += 1, n = Math.floor(n / 256)) nonce[i] = n % 256;
    operations += 1;
    at += size + 16;
    return decrypt(method, subkey, nonce, stream.slice(at - size - 16, at));
  };

  for (;;) {
    const recordAt = at;
    const length = open(2);
    if (length === undefined) return { payloads, complete: at === stream.length && payloads.length > 0 };
    const payload = open(length[0]! * 256 + length[1]!);
    if (payload === undefined) return { payloads, complete: recordAt === stream.length };
    payloads.push(payload);
  }
}

function decrypt(method: Method, key: Uint8Array, nonce: Uint8Array, ciphertext: Uint8Array): Uint8Array {
  if (method.name === 'chacha20-ietf-poly1305') return chacha20poly1305(key, nonce).decrypt(ciphertext);
  if (method.name === 'xchacha20-ietf-poly1305') return xchacha20poly1305(key, nonce).decrypt(ciphertext);
  return gcm(key, nonce).decrypt(ciphertext);
}
