/**
 * The TCP stream of the 2017 AEAD methods (SIP004), each direction for itself:
 *
 *     salt | record | record | …
 *
 *     record   | length | tag | payload | tag |     length: u16be, of the payload, 1..0x3FFF; the two high bits are 0
 *              | 2      | 16  | length  | 16  |     34 bytes more than the payload
 *
 *     request payload    target address (address.ts), then what the client says
 *     response payload   what the target says
 *
 * The salt, as long as the key, gives the stream its key (SIP007). Length and payload are two AEAD operations; the nonce
 * counts operations from 0. An address may stand in a record of its own, or before payload; ours stands before payload.
 */
import type { AeadBackend, Opener, Sealer } from '../crypto/aead.js';
import { sessionSubkey } from '../crypto/keys.js';
import { tagSize, type Method } from '../crypto/methods.js';
import { ProtocolError } from '../errors.js';
import { Block } from '../linux/memory.js';
import { maxAddressSize } from './address.js';
import type { StreamDecoder, StreamEncoder } from './stream.js';

// From the specification.
const maxPayload = 0x3fff;
const lengthSize = 2;

const maxSaltSize = 32;
const sealedLengthSize = lengthSize + tagSize;
const stride = sealedLengthSize + maxPayload + tagSize;

/** salt, length, header: 309 bytes, rounded up so that payload begins a cache line. */
const headroom = Math.ceil((maxSaltSize + sealedLengthSize + maxAddressSize) / 64) * 64;

const nothing = new Uint8Array(0);

export class AeadStreamEncoder implements StreamEncoder {
  start = 0;
  end = 0;
  private readonly sealer: Sealer;
  /** What the first record still has to bring; nothing once it is sealed. */
  private salt: Uint8Array;
  private header: Uint8Array;

  /**
   * @param salt fresh from the random source, and never that of another stream. Not copied.
   * @param header begins the first record: a client's target address. A server sends none. Not copied.
   */
  constructor(
    backend: AeadBackend,
    method: Method,
    masterKey: Uint8Array,
    salt: Uint8Array,
    header: Uint8Array = nothing,
  ) {
    if (salt.length !== method.saltSize) {
      throw new RangeError(`a ${method.name} salt has ${method.saltSize} bytes, got ${salt.length}`);
    }
    if (header.length > maxAddressSize) {
      throw new RangeError(`a header has at most ${maxAddressSize} bytes, got ${header.length}`);
    }
    this.sealer = backend.sealer(method, sessionSubkey(masterKey, salt));
    this.salt = salt;
    this.header = header;
  }

  get headroom(): number {
    return headroom;
  }

  get stride(): number {
    return stride;
  }

  get maxPayload(): number {
    return maxPayload;
  }

  /** The header takes room in the first record, and whoever fills a block reckons with full ones: so one at first. */
  get room(): number {
    return this.header.length === 0 ? Infinity : maxPayload - this.header.length;
  }

  seal(block: Block, length: number): void {
    const headerSize = this.header.length;
    if (length + headerSize < 1 || length > this.room) {
      throw new RangeError(`cannot seal ${length} payload bytes behind a header of ${headerSize}`);
    }
    const firstSize = Math.min(length, maxPayload);
    const first = headroom - headerSize;
    block.bytes.set(this.header, first);
    this.sealRecord(block, first, headerSize + firstSize);
    this.start = first - sealedLengthSize - this.salt.length;
    block.bytes.set(this.salt, this.start);
    this.salt = nothing;
    this.header = nothing;

    let payload = headroom;
    let size = firstSize;
    for (let left = length - size; left > 0; left -= size) {
      payload += stride;
      size = Math.min(left, maxPayload);
      this.sealRecord(block, payload, size);
    }
    this.end = payload + size + tagSize;
  }

  private sealRecord(block: Block, payload: number, size: number): void {
    const lengthAt = payload - sealedLengthSize;
    block.bytes[lengthAt] = size >>> 8;
    block.bytes[lengthAt + 1] = size & 0xff;
    this.sealer.seal(block, lengthAt, lengthSize);
    this.sealer.seal(block, payload, size);
  }
}

/** Where a record's length is decrypted to; read at once, so one serves the thread. */
const openedLength = Block.allocate(lengthSize);

/** `length` while the next record's length is not known. */
const unknown = -1;

export class AeadStreamDecoder implements StreamDecoder {
  consumed = 0;
  produced = 0;
  private readonly backend: AeadBackend;
  private readonly method: Method;
  private readonly masterKey: Uint8Array;
  private readonly acceptSalt: ((salt: Uint8Array) => boolean) | undefined;
  /** Undefined until the salt has come. */
  private opener: Opener | undefined;
  /** The payload size of the record that comes next, once its length is opened: that happens once. */
  private length = unknown;
  /** Bytes at the end of what `open` last got that it did not use. */
  private left = 0;

  /**
   * @param acceptSalt asked once, right after the stream has proved to know the key; false if the salt was seen before.
   *   It must remember the salt in the same step, or two copies of a stream could pass it together.
   */
  constructor(
    backend: AeadBackend,
    method: Method,
    masterKey: Uint8Array,
    acceptSalt?: (salt: Uint8Array) => boolean,
  ) {
    this.backend = backend;
    this.method = method;
    this.masterKey = masterKey;
    this.acceptSalt = acceptSalt;
  }

  get wanted(): number {
    if (this.opener === undefined) return this.method.saltSize + sealedLengthSize;
    return this.length === unknown ? sealedLengthSize : this.length + tagSize;
  }

  get atBoundary(): boolean {
    return this.length === unknown && this.left === 0;
  }

  open(source: Block, from: number, to: number, target: Block, at: number): void {
    this.consumed = 0;
    this.produced = 0;
    this.left = to - from;
    while (this.left >= this.wanted) {
      if (this.opener === undefined) this.begin(source, from);
      else if (this.length === unknown) this.openLength(this.opener, source, from + this.consumed);
      else this.openPayload(this.opener, source, from + this.consumed, target, at + this.produced);
    }
  }

  /** Salt and first length together: only the length's tag tells whether this is a stream at all. */
  private begin(source: Block, from: number): void {
    const { saltSize } = this.method;
    const salt = source.bytes.subarray(from, from + saltSize);
    const opener = this.backend.opener(this.method, sessionSubkey(this.masterKey, salt));
    if (!opener.open(source, from + saltSize, lengthSize, openedLength, 0))
      throw forged('first record length');
    if (this.acceptSalt !== undefined && !this.acceptSalt(salt)) {
      throw new ProtocolError(
        'REPEATED_SALT',
        'the salt was seen before, expected a new one: a replayed stream',
      );
    }
    this.length = readLength();
    this.opener = opener;
    this.use(saltSize + sealedLengthSize);
  }

  private openLength(opener: Opener, source: Block, from: number): void {
    if (!opener.open(source, from, lengthSize, openedLength, 0)) throw forged('record length');
    this.length = readLength();
    this.use(sealedLengthSize);
  }

  /** A record of length 0 says nothing. No known sender makes one, some receivers allow it: it is passed over. */
  private openPayload(opener: Opener, source: Block, from: number, target: Block, at: number): void {
    const { length } = this;
    if (!opener.open(source, from, length, target, at)) throw forged('record payload');
    this.length = unknown;
    this.produced += length;
    this.use(length + tagSize);
  }

  private use(size: number): void {
    this.consumed += size;
    this.left -= size;
  }
}

/** Some receivers mask the two high bits off. They are 0 by specification, so we refuse a sender that sets them. */
function readLength(): number {
  const length = openedLength.bytes.readUInt16BE(0);
  if (length <= maxPayload) return length;
  throw new ProtocolError('BAD_LENGTH', `record length ${length}, expected 1..${maxPayload}`);
}

function forged(what: string): ProtocolError {
  return new ProtocolError(
    'FORGED',
    `the tag behind a ${what} does not match: other password, other method, or changed on the way`,
  );
}
