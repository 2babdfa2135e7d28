/**
 * Memory at a fixed address, handed to C by number. A wrong address ends the process, so addresses are made in one
 * place, `Block.at`, which a checked mode (SS_REDIR_CHECKED=1, on in every test) holds to the bounds of the block.
 */
import { addressOf } from './ffi.js';

export const checked = process.env['SS_REDIR_CHECKED'] === '1';

export class Block {
  /** The same memory for JavaScript. Must come from Buffer.allocUnsafeSlow, or be a part of such a buffer. */
  readonly bytes: Buffer;
  readonly address: number;
  readonly size: number;

  constructor(bytes: Buffer, address: number = addressOf(bytes)) {
    this.bytes = bytes;
    this.address = address;
    this.size = bytes.length;
  }

  static allocate(size: number): Block {
    return new Block(Buffer.allocUnsafeSlow(size).fill(0));
  }

  /**
   * The address of `bytes[offset]`, for a call that will touch `length` bytes from there.
   *
   * @throws {RangeError} in checked mode, when those bytes are not all inside the block.
   */
  at(offset: number, length: number): number {
    if (checked) this.check(offset, length);
    return this.address + offset;
  }

  private check(offset: number, length: number): void {
    if (Number.isInteger(offset) && Number.isInteger(length) && offset >= 0 && length >= 0) {
      if (offset + length <= this.size) return;
    }
    throw new RangeError(`bytes ${offset}..+${length} are outside the block of ${this.size}`);
  }
}
