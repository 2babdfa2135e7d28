/**
 * What the relay knows of an encrypted TCP stream: one interface for every edition of the protocol.
 *
 * A sender's block is laid out so that payload is read from the socket to where it is sealed, and the sealed bytes leave
 * in one send:
 *
 *     0          headroom            headroom + stride
 *     | …prefix | payload 0    | …  | payload 1     | …
 *
 * Record k's payload stands at `headroom + k * stride` and has at most `maxPayload` bytes; only the last record of a batch
 * may be shorter. What belongs before and behind each payload (salt, header, length, tags) fits in the gaps.
 *
 * In either edition what comes out of a request begins with the target's address (address.ts), and the client's bytes follow;
 * a response is the target's bytes and nothing else.
 */
import type { Block } from '../linux/memory.js';

export interface StreamEncoder {
  /** Offset of the first payload byte in a block. */
  readonly headroom: number;
  /** Distance from one record's payload to the next. */
  readonly stride: number;
  /** Most payload bytes in one record. */
  readonly maxPayload: number;
  /** Most payload bytes that the next `seal` takes: Infinity, but for the one that has to bring a header along. */
  readonly room: number;
  /** After `seal`: the wire bytes are `block[start..end)`. */
  readonly start: number;
  readonly end: number;
  /**
   * Seals `length` payload bytes, laid out as above, in place. The first call of a stream puts salt and header before
   * them; it may have length 0 to send a header alone. Any other call wants length >= 1.
   *
   * @throws {RangeError} for a length that is too small or beyond `room`: the stream is as before.
   */
  seal(block: Block, length: number): void;
}

export interface StreamDecoder {
  /** After `open`: how many bytes of the source were used up, how many plaintext bytes came out. */
  readonly consumed: number;
  readonly produced: number;
  /** Bytes, counted from the first one not consumed, with fewer than which the next `open` can do nothing. */
  readonly wanted: number;
  /** True where the stream may end: no byte of it came yet, or the last one that `open` got ended a record. */
  readonly atBoundary: boolean;
  /**
   * Opens every complete record in `source[from..to)` and writes the plaintext to `target[at..]`, which needs room for
   * `to - from` bytes and must not be the same block.
   * The bytes not consumed must be given again, in front of what follows them. The first bytes of a stream must be what one
   * read brought: the 2022 edition judges by that.
   *
   * @throws {ProtocolError} of any code: the stream is over. `consumed` and `produced` count what
   *   was good before the fault; what stands in the target behind that is worth nothing.
   */
  open(source: Block, from: number, to: number, target: Block, at: number): void;
}
