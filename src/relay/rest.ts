/**
 * The beginning of a record whose end has not come: kept between two reads in a block of its own, just large enough for
 * any record, so that nobody holds a block for a batch while waiting for the network.
 * memcpy(3), since every way to copy in JavaScript makes a view first (Node 20), one a batch.
 */
import type { BufferPool } from '../engine/pool.js';
import { memcpy } from '../linux/libc.js';
import type { Block } from '../linux/memory.js';

export class Rest {
  /** Bytes kept. */
  size = 0;
  private readonly pool: BufferPool;
  private block: Block | undefined;

  constructor(pool: BufferPool) {
    this.pool = pool;
  }

  /** Moves what is kept to the front of `block`; returns how much that was. */
  moveTo(block: Block): number {
    const { size } = this;
    if (this.block === undefined) return 0;
    memcpy(block.at(0, size), this.block.at(0, size), size);
    this.release();
    return size;
  }

  /** Copies `block[from..to)`, the beginning of one record. The pool has a block for every connection. */
  keep(block: Block, from: number, to: number): void {
    this.size = to - from;
    if (this.size === 0) return;
    this.block = this.pool.lease()!;
    memcpy(this.block.at(0, this.size), block.at(from, this.size), this.size);
  }

  release(): void {
    if (this.block !== undefined) this.pool.release(this.block);
    this.block = undefined;
    this.size = 0;
  }
}
