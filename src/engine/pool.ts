/**
 * Buffers that a connection leases only while bytes wait in it. One arena is reserved at the start and costs nothing until
 * it is touched; what has not been in use for a while is given back to the kernel.
 */
import { addressOf, errno } from '../linux/ffi.js';
import { syscallError } from '../linux/errno.js';
import { getpagesize, madvise } from '../linux/libc.js';
import { Block, checked } from '../linux/memory.js';

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

  /** @throws {RangeError} in checked mode, for a block that is not out: two would lease it next, and mix their bytes. */
  release(block: Block): void {
    if (checked) this.check(block);
    this.free.push(block);
    if (this.waiting.length > 0) this.wake();
  }

  /**
   * Calls back, once, when it is worth to `lease` again. First come, first served. Who waits may need two blocks and gives
   * the first back when there is no second: with one free block, several of them would wake each other without end.
   */
  whenFree(callback: () => void): void {
    this.waiting.push(callback);
  }

  private wake(): void {
    if (this.leased === 0) this.wakeAll();
    else if (this.available >= 2) this.waiting.shift()!();
  }

  /** Whoever is woken may be gone, or need nothing any more. Where nothing is out, nobody else would come to wake the next. */
  private wakeAll(): void {
    for (const callback of this.waiting.splice(0)) callback();
  }

  private get available(): number {
    return this.capacity - this.leased;
  }

  /** Gives back to the kernel what was free ever since the last call. Call it every few seconds. */
  trim(): void {
    if (this.waiting.length > 0 && this.available >= 2) this.wakeAll();
    const unused = Math.min(this.leastFree, this.free.length - warmBlocks);
    for (; this.cold < unused; this.cold++) this.giveBack(this.free[this.cold]!);
    this.leastFree = this.free.length;
  }

  private make(): Block {
    const offset = this.firstOffset + this.made * this.blockSize;
    this.made++;
    return new Block(this.arena.subarray(offset, offset + this.blockSize), this.arenaAddress + offset);
  }

  private check(block: Block): void {
    const offset = block.address - this.arenaAddress - this.firstOffset;
    if (offset < 0 || offset >= this.made * this.blockSize || offset % this.blockSize !== 0) {
      throw new RangeError(`a block of ${block.size} bytes came back to a pool that it is not from`);
    }
    if (this.free.includes(block)) throw new RangeError('a block came back that is free already');
  }

  private giveBack(block: Block): void {
    const from = Math.ceil(block.address / pageSize) * pageSize;
    const to = Math.floor((block.address + block.size) / pageSize) * pageSize;
    if (to > from && madvise(from, to - from, MADV_DONTNEED) !== 0) {
      throw syscallError('madvise(MADV_DONTNEED)', errno());
    }
  }
}
