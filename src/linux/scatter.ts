/**
 * The vector of readv(2): struct iovec { void *base; size_t length }, two words each (include/uapi/linux/uio.h).
 * One read fills the payload places of several records.
 */
import { Block } from './memory.js';

const longWords = process.arch === 'arm' || process.arch === 'ia32' ? 1 : 2;

export class Scatter {
  readonly count: number;
  private readonly vector: Block;
  private readonly words: Uint32Array;

  constructor(count: number) {
    this.count = count;
    this.vector = Block.allocate(count * 2 * longWords * 4);
    this.words = new Uint32Array(
      this.vector.bytes.buffer,
      this.vector.bytes.byteOffset,
      count * 2 * longWords,
    );
  }

  /** Points the vector at `count` places of `size` bytes in `block`, `stride` apart from `offset` on. Returns its address. */
  point(block: Block, offset: number, size: number, stride: number): number {
    for (let i = 0; i < this.count; i++) {
      const base = block.at(offset + i * stride, size);
      const at = i * 2 * longWords;
      this.words[at] = base; // the low 32 bits: stores into a Uint32Array are modulo 2^32
      if (longWords === 2) this.words[at + 1] = base / 0x1_0000_0000;
      this.words[at + longWords] = size;
    }
    return this.vector.address;
  }
}
