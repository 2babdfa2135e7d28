/** How many connections a worker holds; who waits for room is told when one ends. */
export class Limits {
  /** A reload may change it; who is above it by then stays. */
  maxConnections: number;
  private connections = 0;
  private waiting: (() => void)[] = [];

  constructor(maxConnections: number) {
    this.maxConnections = maxConnections;
  }

  get open(): number {
    return this.connections;
  }

  get full(): boolean {
    return this.connections >= this.maxConnections;
  }

  enter(): void {
    this.connections++;
  }

  leave(): void {
    this.connections--;
    if (this.waiting.length === 0) return;
    const callbacks = this.waiting;
    this.waiting = [];
    for (const callback of callbacks) callback();
  }

  /** Calls back, once, after the next connection has ended. */
  whenRoom(callback: () => void): void {
    this.waiting.push(callback);
  }
}
