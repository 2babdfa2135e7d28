/**
 * What both directions of a TCP stream of the 2022 edition have in common (SIP022, section 3.1):
 *
 *     request    salt | identity header … | fixed header | tag | variable header | tag | record | record | …
 *     response   salt |                     header       | tag | payload         | tag | record | record | …
 *
 *     record     | length | tag | payload | tag |      length: u16be, of the payload, 1..0xFFFF
 *                | 2      | 16  | length  | 16  |      34 bytes more than the payload
 *
 * The first header tells the length of what is sealed next: the variable header of a request, the first payload of a
 * response. So a stream is salt and header (tcp-2022-request.ts, tcp-2022-response.ts), then one chunk of a known length,
 * then records. The salt, as long as the key, gives the stream its key; the nonce counts AEAD operations from 0.
 *
 * Headers carry the sender's clock, and a receiver refuses one that is more than 30 s off: what was recorded is worthless
 * soon, and a server needs to remember salts for a minute only (salt-pool.ts).
 */
import type { Opener, Sealer } from '../crypto/aead.js';
import { tagSize } from '../crypto/methods.js';
import { ProtocolError } from '../errors.js';
import { Block } from '../linux/memory.js';
import type { StreamDecoder } from './stream.js';

// From the specification.
export const maxPayload2022 = 0xffff;
export const typeRequest = 0;
export const typeResponse = 1;
/** A clock that is exactly so far off passes. */
const maxSkewSeconds = 30;
const lengthSize = 2;

export const sealedLengthSize = lengthSize + tagSize;
export const stride2022 = sealedLengthSize + maxPayload2022 + tagSize;

/** Whole seconds since 1970, asked once a header. */
export type Clock = () => number;

// ---- sealing

/** Seals the `length` payload bytes that stand at `block[at..]` as records, laid out as stream.ts says. Returns their end. */
export function sealRecords(sealer: Sealer, block: Block, at: number, length: number): number {
  let payload = at;
  let size = Math.min(length, maxPayload2022);
  sealRecord(sealer, block, payload, size);
  for (let left = length - size; left > 0; left -= size) {
    payload += stride2022;
    size = Math.min(left, maxPayload2022);
    sealRecord(sealer, block, payload, size);
  }
  return payload + size + tagSize;
}

function sealRecord(sealer: Sealer, block: Block, payload: number, size: number): void {
  const lengthAt = payload - sealedLengthSize;
  block.bytes[lengthAt] = size >>> 8;
  block.bytes[lengthAt + 1] = size & 0xff;
  sealer.seal(block, lengthAt, lengthSize);
  sealer.seal(block, payload, size);
}

/** u64be. */
export function writeTimestamp(bytes: Buffer, at: number, seconds: number): void {
  bytes.writeUInt32BE(Math.floor(seconds / 2 ** 32), at);
  bytes.writeUInt32BE(seconds % 2 ** 32, at + 4);
}

// ---- opening

/** What a header says of the stream behind it. */
export interface Opening {
  readonly opener: Opener;
  /** Bytes that salt and header took. */
  readonly size: number;
  /** Plaintext bytes of the chunk that comes next. */
  readonly chunkSize: number;
}

/** The part of a stream in which the two directions differ. */
export interface HeaderReader {
  /** Size of salt and header: what the first read has to bring at least. */
  readonly size: number;
  /** Reads salt and header at `source[from..]`. @throws {ProtocolError} for one that may not be. */
  read(source: Block, from: number): Opening;
  /**
   * Takes out of the opened chunk at `target[at..at + length)` what is not the stream's plaintext. Returns the size of the
   * plaintext, which begins at `at` then. @throws {ProtocolError} for a chunk that may not be.
   */
  unpack(target: Block, at: number, length: number): number;
}

/** Where a record's length is decrypted to; read at once, so one serves the thread. */
const openedLength = Block.allocate(lengthSize);

/** `length` while the next record's length is not known. */
const unknown = -1;

export class StreamDecoder2022 implements StreamDecoder {
  consumed = 0;
  produced = 0;
  private readonly header: HeaderReader;
  /** Undefined until the header has come. */
  private opener: Opener | undefined;
  /** Plaintext size of the chunk or payload that comes next, once it is known. */
  private length = unknown;
  /** The next one is the chunk behind the header. */
  private isChunk = true;
  /** Bytes at the end of what `open` last got that it did not use. */
  private left = 0;

  constructor(header: HeaderReader) {
    this.header = header;
  }

  get wanted(): number {
    if (this.opener === undefined) return this.header.size;
    return this.length === unknown ? sealedLengthSize : this.length + tagSize;
  }

  get atBoundary(): boolean {
    return this.length === unknown && this.left === 0;
  }

  open(source: Block, from: number, to: number, target: Block, at: number): void {
    this.consumed = 0;
    this.produced = 0;
    this.left = to - from;
    if (this.opener === undefined && this.left > 0) this.begin(source, from);
    while (this.opener !== undefined && this.left >= this.wanted) {
      if (this.length === unknown) this.openLength(this.opener, source, from + this.consumed);
      else this.openPayload(this.opener, source, from + this.consumed, target, at + this.produced);
    }
  }

  /**
   * A sender writes salt and header at once, so the first read brings them whole (SIP022, section 3.1.3). Waiting for the
   * rest of a shorter one would show whoever sends byte after byte where the header ends.
   */
  private begin(source: Block, from: number): void {
    const { header, left } = this;
    if (left < header.size) {
      throw new ProtocolError(
        'SHORT_READ',
        `the first read brought ${left} bytes, expected at least ${header.size}: no 2022 stream, or one that was cut on the way`,
      );
    }
    const { opener, size, chunkSize } = header.read(source, from);
    this.opener = opener;
    this.length = chunkSize;
    this.use(size);
  }

  private openLength(opener: Opener, source: Block, from: number): void {
    if (!opener.open(source, from, lengthSize, openedLength, 0)) throw forged('record length');
    const length = openedLength.bytes.readUInt16BE(0);
    if (length === 0) throw new ProtocolError('BAD_LENGTH', `record length 0, expected 1..${maxPayload2022}`);
    this.length = length;
    this.use(sealedLengthSize);
  }

  private openPayload(opener: Opener, source: Block, from: number, target: Block, at: number): void {
    const { length, isChunk } = this;
    if (!opener.open(source, from, length, target, at))
      throw forged(isChunk ? 'first chunk' : 'record payload');
    this.length = unknown;
    this.use(length + tagSize);
    this.produced += isChunk ? this.header.unpack(target, at, length) : length;
    this.isChunk = false;
  }

  private use(size: number): void {
    this.consumed += size;
    this.left -= size;
  }
}

/**
 * Type and timestamp, with which every header begins.
 *
 * @throws {ProtocolError} BAD_HEADER, BAD_CLOCK.
 */
export function checkTypeAndClock(header: Buffer, type: number, now: Clock, peer: string): void {
  if (header[0] !== type) throw new ProtocolError('BAD_HEADER', `header type ${header[0]}, expected ${type}`);
  // As a Number: beyond 2^53 it is not exact, and far more than 30 s off all the same.
  const seconds = header.readUInt32BE(1) * 2 ** 32 + header.readUInt32BE(5);
  const skew = seconds - now();
  if (Math.abs(skew) <= maxSkewSeconds) return;
  const distance = `${Math.abs(skew)} s ${skew > 0 ? 'ahead of' : 'behind'} ours`;
  throw new ProtocolError(
    'BAD_CLOCK',
    `the ${peer}'s clock is ${distance}, at most ${maxSkewSeconds} s are allowed: check the clock on both sides, or this is a replay`,
  );
}

export function forged(what: string): ProtocolError {
  return new ProtocolError(
    'FORGED',
    `the tag behind a ${what} does not match: other key, other method, or changed on the way`,
  );
}
