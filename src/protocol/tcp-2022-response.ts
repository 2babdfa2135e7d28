/**
 * How a response of the 2022 edition begins (SIP022, section 3.1.3):
 *
 *     | salt | header | tag | first payload | tag |
 *     | S    | 11 + S | 16  | L             | 16  |     S: as long as the key
 *
 *     header    | type 1 | timestamp u64be, seconds | salt of the request | L u16be, 1.. |
 *
 * The server sends it with the first bytes of the target, never before; a target that says nothing gets no response at all.
 * The request's salt makes it an answer to this request and to no other.
 */
import { timingSafeEqual } from 'node:crypto';
import type { AeadBackend, Sealer } from '../crypto/aead.js';
import { sessionSubkey2022 } from '../crypto/keys-2022.js';
import { tagSize, type Method } from '../crypto/methods.js';
import { ProtocolError } from '../errors.js';
import { Block } from '../linux/memory.js';
import type { StreamEncoder } from './stream.js';
import {
  checkTypeAndClock,
  forged,
  maxPayload2022,
  sealedLengthSize,
  sealRecords,
  stride2022,
  typeResponse,
  writeTimestamp,
  type Clock,
  type HeaderReader,
  type Opening,
} from './tcp-2022.js';

const maxSaltSize = 32;

/** Salt and header: 91 bytes, rounded up so that payload begins a cache line. */
const headroom = Math.ceil((maxSaltSize + headerSize(maxSaltSize) + tagSize) / 64) * 64;

function headerSize(saltSize: number): number {
  return 1 + 8 + saltSize + 2; // type, timestamp, salt of the request, L
}

export interface ResponseParts {
  readonly backend: AeadBackend;
  readonly method: Method;
  /** The PSK; of the user, where there are users. */
  readonly key: Uint8Array;
  /** Fresh from the random source, and never that of another stream, the request's above all. Not copied. */
  readonly salt: Uint8Array;
  readonly requestSalt: Uint8Array;
  readonly now: Clock;
}

export class ResponseEncoder2022 implements StreamEncoder {
  start = 0;
  end = 0;
  private readonly sealer: Sealer;
  /** What the header needs; nothing once it is sealed. */
  private parts: ResponseParts | undefined;

  constructor(parts: ResponseParts) {
    const { backend, method, key, salt, requestSalt } = parts;
    for (const one of [salt, requestSalt]) {
      if (one.length !== method.saltSize) {
        throw new RangeError(`a ${method.name} salt has ${method.saltSize} bytes, got ${one.length}`);
      }
    }
    this.sealer = backend.sealer(method, sessionSubkey2022(key, salt));
    this.parts = parts;
  }

  get headroom(): number {
    return headroom;
  }

  get stride(): number {
    return stride2022;
  }

  get maxPayload(): number {
    return maxPayload2022;
  }

  get room(): number {
    return Infinity;
  }

  seal(block: Block, length: number): void {
    if (length < 1) throw new RangeError(`cannot seal ${length} payload bytes, expected at least one`);
    if (this.parts !== undefined) return this.sealFirst(this.parts, block, length);
    this.start = headroom - sealedLengthSize;
    this.end = sealRecords(this.sealer, block, headroom, length);
  }

  private sealFirst({ salt, requestSalt, now }: ResponseParts, block: Block, length: number): void {
    const { bytes } = block;
    const firstSize = Math.min(length, maxPayload2022);
    const size = headerSize(salt.length);
    const headerAt = headroom - tagSize - size;
    bytes[headerAt] = typeResponse;
    writeTimestamp(bytes, headerAt + 1, now());
    bytes.set(requestSalt, headerAt + 1 + 8);
    bytes.writeUInt16BE(firstSize, headerAt + size - 2);
    this.sealer.seal(block, headerAt, size);
    this.sealer.seal(block, headroom, firstSize);
    this.start = headerAt - salt.length;
    bytes.set(salt, this.start);
    this.end = headroom + firstSize + tagSize;
    this.parts = undefined;
    if (length > firstSize) {
      this.end = sealRecords(this.sealer, block, headroom + stride2022, length - firstSize);
    }
  }
}

export interface ResponseKeys {
  readonly backend: AeadBackend;
  readonly method: Method;
  /** The PSK; the last one of a chain. */
  readonly key: Uint8Array;
  /** Of our request. */
  readonly requestSalt: Uint8Array;
  readonly now: Clock;
}

/** Where headers are decrypted to; read at once, so one serves the thread. */
const openedHeader = Block.allocate(headerSize(maxSaltSize));

export class ResponseHeader implements HeaderReader {
  private readonly keys: ResponseKeys;

  constructor(keys: ResponseKeys) {
    this.keys = keys;
  }

  get size(): number {
    const { saltSize } = this.keys.method;
    return saltSize + headerSize(saltSize) + tagSize;
  }

  read(source: Block, from: number): Opening {
    const { backend, method, key, requestSalt, now } = this.keys;
    const { size } = this;
    const { saltSize } = method;
    const salt = source.bytes.subarray(from, from + saltSize);
    const opener = backend.opener(method, sessionSubkey2022(key, salt));
    if (!opener.open(source, from + saltSize, headerSize(saltSize), openedHeader, 0)) {
      throw forged('response header');
    }
    const { bytes } = openedHeader;
    checkTypeAndClock(bytes, typeResponse, now, 'server');
    if (!timingSafeEqual(bytes.subarray(9, 9 + saltSize), requestSalt)) {
      throw new ProtocolError(
        'BAD_HEADER',
        'the response is to another request: its request salt is not ours',
      );
    }
    const chunkSize = bytes.readUInt16BE(9 + saltSize);
    if (chunkSize === 0) {
      throw new ProtocolError('BAD_LENGTH', `first payload length 0, expected 1..${maxPayload2022}`);
    }
    return { opener, size, chunkSize };
  }

  unpack(_target: Block, _at: number, length: number): number {
    return length;
  }
}
