/**
 * UDP packets of both editions made by hand on noble, slow and plain, so that tests can send what no proper peer would, and
 * have something of other hands to compare ours with.
 */
import { ecb, gcm } from '@noble/ciphers/aes.js';
import { chacha20poly1305, xchacha20poly1305 } from '@noble/ciphers/chacha.js';
import { blake3 } from '@noble/hashes/blake3.js';
import { hkdf } from '@noble/hashes/hkdf.js';
import { sha1 } from '@noble/hashes/legacy.js';
import { randomBytes } from 'node:crypto';
import type { Method } from '../../src/crypto/methods.js';

const aeads = {
  'aes-128-gcm': gcm,
  'aes-192-gcm': gcm,
  'aes-256-gcm': gcm,
  'chacha20-poly1305': chacha20poly1305,
  'xchacha20-poly1305': xchacha20poly1305,
};

export function packet2017(
  method: Method,
  key: Uint8Array,
  plaintext: Uint8Array,
  salt: Uint8Array = randomBytes(method.saltSize),
): Uint8Array {
  const subkey = hkdf(sha1, key, salt, Buffer.from('ss-subkey'), method.keySize);
  const body = aeads[method.cipher](subkey, new Uint8Array(method.nonceSize)).encrypt(plaintext);
  return Buffer.concat([salt, body]);
}

/** The address and the payload. @throws when the tag does not match */
export function open2017(method: Method, key: Uint8Array, packet: Uint8Array): Uint8Array {
  const subkey = hkdf(
    sha1,
    key,
    packet.subarray(0, method.saltSize),
    Buffer.from('ss-subkey'),
    method.keySize,
  );
  return aeads[method.cipher](subkey, new Uint8Array(method.nonceSize)).decrypt(
    packet.subarray(method.saltSize),
  );
}

export interface Packet2022 {
  method: Method;
  /** Identity keys first, the key of the session last. */
  keys: readonly Uint8Array[];
  sessionId: bigint;
  packetId: bigint | number;
  time: bigint | number;
  /** The session that a response is for; a request has none. */
  clientSessionId?: bigint;
  type?: number;
  padding?: Uint8Array;
  /** A lie about its size. */
  paddingSize?: number;
  address?: Uint8Array;
  payload?: Uint8Array;
  /** In the place of everything inside. */
  body?: Uint8Array;
}

/** IPv4 192.0.2.1, port 1000. */
export const someAddress = Buffer.from('01c000020103e8', 'hex');

export function packet2022(packet: Packet2022): Uint8Array {
  const header = Buffer.concat([u64(packet.sessionId), u64(BigInt(packet.packetId))]);
  const body = packet.body ?? bodyOf(packet);
  const key = packet.keys.at(-1)!;
  if (packet.method.cipher === 'chacha20-poly1305') {
    const nonce = randomBytes(24);
    return Buffer.concat([nonce, xchacha20poly1305(key, nonce).encrypt(Buffer.concat([header, body]))]);
  }
  const context = Buffer.from('shadowsocks 2022 session subkey');
  const subkey = blake3(Buffer.concat([key, u64(packet.sessionId)]), { context, dkLen: key.length });
  const identities = packet.keys.slice(0, -1).map((identityKey, i) => {
    const hash = blake3(packet.keys[i + 1]!, { dkLen: 16 });
    return encryptBlock(
      identityKey,
      hash.map((byte, j) => byte ^ header[j]!),
    );
  });
  const sealed = gcm(subkey, header.subarray(4)).encrypt(body);
  return Buffer.concat([encryptBlock(packet.keys[0]!, header), ...identities, sealed]);
}

function bodyOf({ type, time, clientSessionId, padding, paddingSize, address, payload }: Packet2022) {
  const size = Buffer.alloc(2);
  size.writeUInt16BE(paddingSize ?? padding?.length ?? 0);
  return Buffer.concat([
    Buffer.from([type ?? (clientSessionId === undefined ? 0 : 1)]),
    u64(BigInt(time)),
    clientSessionId === undefined ? Buffer.alloc(0) : u64(clientSessionId),
    size,
    padding ?? Buffer.alloc(0),
    address ?? someAddress,
    payload ?? Buffer.from('payload'),
  ]);
}

function encryptBlock(key: Uint8Array, block: Uint8Array): Uint8Array {
  return ecb(key, { disablePadding: true }).encrypt(block);
}

export function u64(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(value);
  return bytes;
}
