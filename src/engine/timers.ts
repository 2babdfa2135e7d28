/**
 * Deadlines without a timer object each: a wheel of buckets, one per tick. Whoever has a deadline lies in the bucket where
 * it was last seen due. Putting a deadline off costs a store and nothing here: when the bucket comes up, the item is asked
 * again and moves on if it is not due yet. Only an earlier deadline needs `set` to move it.
 */

const tickMs = 50;
const buckets = 4096; // about 205 s ahead; what is due later is looked at again then

export interface Deadlined {
  /** When this is due, in the reactor's milliseconds, asked again each time its bucket comes up. */
  dueMs(): number;
  /** Called once when due; the item has left the wheel by then. */
  onDeadline(nowMs: number): void;
  /** The wheel's own: which bucket, and where in it. -1 when not in the wheel. */
  wheelBucket: number;
  wheelIndex: number;
}

export class TimerWheel {
  private readonly wheel: Deadlined[][] = Array.from({ length: buckets }, () => []);
  /** Everything due before this tick has been handled. */
  private tick: number;
  private count = 0;

  constructor(nowMs: number) {
    this.tick = Math.floor(nowMs / tickMs);
  }

  get size(): number {
    return this.count;
  }

  /** Puts `item` in by its `dueMs()`, or moves it there. */
  set(item: Deadlined): void {
    this.delete(item);
    const due = Math.ceil(item.dueMs() / tickMs);
    const tick = Math.min(Math.max(due, this.tick + 1), this.tick + buckets - 1);
    const bucket = this.wheel[tick % buckets]!;
    item.wheelBucket = tick % buckets;
    item.wheelIndex = bucket.length;
    bucket.push(item);
    this.count++;
  }

  delete(item: Deadlined): void {
    if (item.wheelBucket < 0) return;
    const bucket = this.wheel[item.wheelBucket]!;
    const last = bucket.pop()!;
    if (last !== item) {
      bucket[item.wheelIndex] = last;
      last.wheelIndex = item.wheelIndex;
    }
    item.wheelBucket = -1;
    this.count--;
  }

  /** Runs what is due. */
  advance(nowMs: number): void {
    const until = Math.floor(nowMs / tickMs);
    if (until - this.tick >= buckets) this.tick = until - buckets; // a long sleep: one turn of the wheel sees everything
    while (this.tick < until) {
      this.tick++;
      const bucket = this.wheel[this.tick % buckets]!;
      for (let left = bucket.length; left > 0; left--) {
        const item = bucket.at(-1);
        if (item === undefined) break;
        this.delete(item);
        if (item.dueMs() <= nowMs) item.onDeadline(nowMs);
        else this.set(item);
      }
    }
  }

  /** Milliseconds until the next bucket with something in it, at most `limitMs`. */
  waitMs(nowMs: number, limitMs: number): number {
    if (this.count === 0) return limitMs;
    for (let tick = this.tick + 1; tick * tickMs - nowMs < limitMs; tick++) {
      if (this.wheel[tick % buckets]!.length > 0) return Math.max(0, Math.ceil(tick * tickMs - nowMs));
    }
    return limitMs;
  }
}
