/**
 * Buffers that a connection leases only while bytes wait in it. One arena is reserved at the start and costs nothing until
 * it is touched; what has not been in use for a while is given back to the kernel.
 */
import { addressOf, errno } from '../linux/ffi.js';
import { syscallError } from '../linux/errno.js';
import { getpagesize, madvise } from '../linux/libc.js';
import { Block } from '../linux/memory.js';

const pageSize = getpagesize(); // 4, 16 or 64 KiB
const MADV_DONTNEED = 4; // include/uapi/asm-generic/mman-common.h

/** Free blocks that stay warm however long nobody wants them. */
const warmBlocks = 4;

export class BufferPool {
  readonly blockSize: number;
  readonly capacity: number;
  private readonly arena: Buffer;
  private readonly arenaAddress: number;
  private readonly firstOffset: number;
  private readonly free: Block[] = [];
  private made = 0;
  /** Fewest free blocks since the last trim: so many were not needed. */
  private leastFree = 0;
  /** How many at the bottom of `free` are given back already. */
  private cold = 0;
  private readonly waiting: (() => void)[] = [];

  constructor(blockSize: number, capacity: number) {
    this.blockSize = blockSize;
    this.capacity = capacity;
    this.arena = Buffer.allocUnsafeSlow(blockSize * capacity + pageSize);
    this.arenaAddress = addressOf(this.arena);
    this.firstOffset = (pageSize - (this.arenaAddress % pageSize)) % pageSize;
  }

  get leased(): number {
    return this.made - this.free.length;
  }

  /** A block whose content is whatever was left in it; undefined when all are out: see `whenFree`. */
  lease(): Block | undefined {
    const block = this.free.pop();
    if (block === undefined) return this.made < this.capacity ? this.make() : undefined;
    if (this.free.length < this.leastFree) this.leastFree = this.free.length;
    if (this.free.length < this.cold) this.cold = this.free.length;
    return block;
  }

  release(block: Block): void {
    this.free.push(block);
    if (this.waiting.length > 0) this.waiting.shift()!();
  }

  /** Calls back, once, when a block has come back. First come, first served. */
  whenFree(callback: () => void): void {
    this.waiting.push(callback);
  }

  /** Gives back to the kernel what was free ever since the last call. Call it every few seconds. */
  trim(): void {
    const unused = Math.min(this.leastFree, this.free.length - warmBlocks);
    for (; this.cold < unused; this.cold++) this.giveBack(this.free[this.cold]!);
    this.leastFree = this.free.length;
  }

  private make(): Block {
    const offset = this.firstOffset + this.made * this.blockSize;
    this.made++;
    return new Block(this.arena.subarray(offset, offset + this.blockSize), this.arenaAddress + offset);
  }

  private giveBack(block: Block): void {
    const from = Math.ceil(block.address / pageSize) * pageSize;
    const to = Math.floor((block.address + block.size) / pageSize) * pageSize;
    if (to > from && madvise(from, to - from, MADV_DONTNEED) !== 0) {
      throw syscallError('madvise(MADV_DONTNEED)', errno());
    }
  }
}
