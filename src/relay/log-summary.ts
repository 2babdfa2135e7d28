import type { Reactor } from '../engine/reactor.js';
import type { Deadlined } from '../engine/timers.js';
import type { WorkerLog } from './worker-log.js';

const everyMs = 2000;

/** Has a worker's log tell, when a storm of lines is over, how many were left out. */
export class LogSummary implements Deadlined {
  wheelBucket = -1;
  wheelIndex = 0;
  private readonly reactor: Reactor;
  private readonly log: WorkerLog;
  private nextMs: number;

  constructor(reactor: Reactor, log: WorkerLog) {
    this.reactor = reactor;
    this.log = log;
    this.nextMs = reactor.nowMs + everyMs;
  }

  start(): void {
    this.reactor.timers.set(this);
  }

  dueMs(): number {
    return this.nextMs;
  }

  onDeadline(nowMs: number): void {
    this.log.tellLeftOut(nowMs);
    this.nextMs = nowMs + everyMs;
    this.reactor.timers.set(this);
  }
}
