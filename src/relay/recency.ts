/** Things in the order of their last use: the one that was not used for longest is at hand when room is needed, or at its age. */

export interface Used {
  lastUsedMs: number;
  /** The list's own. */
  newer: Used | undefined;
  older: Used | undefined;
}

export class Recency<T extends Used> {
  private newest: Used | undefined;
  private last: Used | undefined;
  private count = 0;

  get size(): number {
    return this.count;
  }

  get oldest(): T | undefined {
    return this.last as T | undefined;
  }

  /** From here on by `older`. */
  get latest(): T | undefined {
    return this.newest as T | undefined;
  }

  add(item: T, nowMs: number): void {
    item.lastUsedMs = nowMs;
    this.link(item);
    this.count++;
  }

  touch(item: T, nowMs: number): void {
    item.lastUsedMs = nowMs;
    if (this.newest === item) return;
    this.unlink(item);
    this.link(item);
  }

  remove(item: T): void {
    this.unlink(item);
    this.count--;
  }

  /** Hands over, from the oldest on, what was not used after `sinceMs`; `end` takes it out. */
  expire(sinceMs: number, end: (item: T) => void): void {
    for (let item = this.oldest; item !== undefined && item.lastUsedMs <= sinceMs; item = this.oldest)
      end(item);
  }

  private link(item: Used): void {
    item.older = this.newest;
    item.newer = undefined;
    if (this.newest === undefined) this.last = item;
    else this.newest.newer = item;
    this.newest = item;
  }

  private unlink(item: Used): void {
    if (item.newer === undefined) this.newest = item.older;
    else item.newer.older = item.older;
    if (item.older === undefined) this.last = item.newer;
    else item.older.newer = item.newer;
    item.newer = item.older = undefined;
  }
}
