const cell = new Int32Array(new SharedArrayBuffer(4));

/** Sleeps, the whole thread with it; parts of a millisecond count. The kernel adds 50 µs or so (timer slack). */
export function pause(ms: number): void {
  Atomics.wait(cell, 0, 0, ms);
}
