/**
 * Streams of the 2022 edition made and taken apart by hand, slowly and plainly on noble, so that tests can say what no honest
 * peer would, and look into what ours says. The layout is drawn in src/protocol/tcp-2022-request.ts and -response.ts.
 */
import { ecb, gcm } from '@noble/ciphers/aes.js';
import { chacha20poly1305 } from '@noble/ciphers/chacha.js';
import { blake3 } from '@noble/hashes/blake3.js';
import { randomBytes } from 'node:crypto';
import type { Method } from '../../src/crypto/methods.js';

const tagSize = 16;

function derive(what: 'session' | 'identity', key: Uint8Array, salt: Uint8Array): Uint8Array {
  const context = Buffer.from(`shadowsocks 2022 ${what} subkey`);
  return blake3(Buffer.concat([key, salt]), { context, dkLen: key.length });
}

/** One direction: what it seals or opens has the nonces 0, 1, 2 … */
export class PlainStream {
  private readonly method: Method;
  private readonly subkey: Uint8Array;
  private operations = 0;

  constructor(method: Method, key: Uint8Array, salt: Uint8Array) {
    this.method = method;
    this.subkey = derive('session', key, salt);
  }

  seal(plain: Uint8Array): Buffer {
    return Buffer.from(this.cipher().encrypt(plain));
  }

  /** Throws for a tag that does not match. */
  open(sealed: Uint8Array): Buffer {
    return Buffer.from(this.cipher().decrypt(sealed));
  }

  /** A record; `length` lies about the payload's length if it is given. */
  record(payload: Uint8Array, length = payload.length): Buffer {
    return Buffer.concat([this.seal(u16(length)), this.seal(payload)]);
  }

  private cipher(): ReturnType<typeof gcm> {
    const nonce = Buffer.alloc(12);
    nonce.writeUInt32LE(this.operations++);
    const make = this.method.cipher === 'chacha20-poly1305' ? chacha20poly1305 : gcm;
    return make(this.subkey, nonce);
  }
}

export function u16(value: number): Buffer {
  return Buffer.of(value >>> 8, value & 255);
}

export function u64(value: number | bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
}

export interface RequestText {
  method: Method;
  /** The chain: identity keys, then the user's. */
  keys: Uint8Array[];
  salt?: Uint8Array;
  type?: number;
  seconds: number | bigint;
  address: Uint8Array;
  padding?: Uint8Array;
  payload?: Uint8Array;
  /** In place of address, padding and payload. */
  variable?: Uint8Array;
  /** In place of the variable header's size. */
  variableSize?: number;
}

/** A first flight, and the stream that goes on behind it. */
export function plainRequest(text: RequestText): { salt: Buffer; flight: Buffer; stream: PlainStream } {
  const { method, keys, type = 0, seconds, address, payload = Buffer.alloc(0) } = text;
  const padding = text.padding ?? (payload.length === 0 ? Buffer.alloc(3) : Buffer.alloc(0));
  const salt = Buffer.from(text.salt ?? randomBytes(method.saltSize));
  const variable = text.variable ?? Buffer.concat([address, u16(padding.length), padding, payload]);
  const identity = keys.slice(1).map((next, i) => {
    const cipher = ecb(derive('identity', keys[i]!, salt), { disablePadding: true });
    return cipher.encrypt(blake3(next).subarray(0, 16));
  });
  const stream = new PlainStream(method, keys.at(-1)!, salt);
  const fixed = Buffer.concat([Buffer.of(type), u64(seconds), u16(text.variableSize ?? variable.length)]);
  const flight = Buffer.concat([salt, ...identity, stream.seal(fixed), stream.seal(variable)]);
  return { salt, flight, stream };
}

export interface ResponseText {
  method: Method;
  key: Uint8Array;
  salt?: Uint8Array;
  type?: number;
  seconds: number | bigint;
  requestSalt: Uint8Array;
  payload: Uint8Array;
  /** In place of the payload's size. */
  length?: number;
}

export function plainResponse(text: ResponseText): { flight: Buffer; stream: PlainStream } {
  const { method, key, type = 1, seconds, requestSalt, payload } = text;
  const salt = Buffer.from(text.salt ?? randomBytes(method.saltSize));
  const stream = new PlainStream(method, key, salt);
  const header = Buffer.concat([
    Buffer.of(type),
    u64(seconds),
    requestSalt,
    u16(text.length ?? payload.length),
  ]);
  const flight = Buffer.concat([salt, stream.seal(header), stream.seal(payload)]);
  return { flight, stream };
}

export interface OpenedStream {
  salt: Buffer;
  /** As it is before the chunk behind it: 11 bytes of a request, 11 and the salt's of a response. */
  header: Buffer;
  /** The chunk behind the header, then the payloads of the complete records. */
  chunks: Buffer[];
}

/** Takes apart what was sent by one that knows the key. `identityHeaders` are passed over. */
export function openPlainly(
  method: Method,
  key: Uint8Array,
  bytes: Buffer,
  kind: 'request' | 'response',
  identityHeaders = 0,
): OpenedStream {
  const { saltSize } = method;
  const salt = bytes.subarray(0, saltSize);
  const stream = new PlainStream(method, key, salt);
  let at = saltSize + 16 * identityHeaders;
  const open = (size: number): Buffer | undefined => {
    if (bytes.length - at < size + tagSize) return undefined;
    at += size + tagSize;
    return stream.open(bytes.subarray(at - size - tagSize, at));
  };
  const header = open(kind === 'request' ? 11 : 11 + saltSize)!;
  const chunks: Buffer[] = [];
  let size: number | undefined = header.readUInt16BE(header.length - 2);
  while (size !== undefined) {
    const chunk = open(size);
    if (chunk === undefined) break;
    chunks.push(chunk);
    size = open(2)?.readUInt16BE();
  }
  return { salt, header, chunks };
}
