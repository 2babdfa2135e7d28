import type { BufferPool } from '../engine/pool.js';
import type { Reactor } from '../engine/reactor.js';
import type { Deadlined } from '../engine/timers.js';

const everyMs = 2000;

/** Has a pool give memory back that nobody needed between two of its rounds. */
export class PoolTrimmer implements Deadlined {
  wheelBucket = -1;
  wheelIndex = 0;
  private readonly reactor: Reactor;
  private readonly pool: BufferPool;
  private nextMs: number;

  constructor(reactor: Reactor, pool: BufferPool) {
    this.reactor = reactor;
    this.pool = pool;
    this.nextMs = reactor.nowMs + everyMs;
  }

  start(): void {
    this.reactor.timers.set(this);
  }

  dueMs(): number {
    return this.nextMs;
  }

  onDeadline(nowMs: number): void {
    this.pool.trim();
    this.nextMs = nowMs + everyMs;
    this.reactor.timers.set(this);
  }
}
