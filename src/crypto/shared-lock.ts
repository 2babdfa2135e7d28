/** A lock between worker threads: one Int32 of shared memory, after Drepper, "Futexes Are Tricky", section 6. */
const free = 0;
const held = 1;
/** Held, and perhaps somebody waits: whoever frees it has to wake one. */
const wanted = 2;

/** Far longer than anybody holds it. Whoever does has died then, and waiting on would hang this thread for ever. */
const defaultPatienceMs = 10_000;

export class SharedLock {
  private readonly word: Int32Array;
  private readonly patienceMs: number;

  /** @param word one element of 0, in a SharedArrayBuffer. */
  constructor(word: Int32Array, patienceMs: number = defaultPatienceMs) {
    this.word = word;
    this.patienceMs = patienceMs;
  }

  /** @throws {Error} when nobody frees it: a thread has died with it, so the program has to end. */
  acquire(): void {
    if (Atomics.compareExchange(this.word, 0, free, held) === free) return;
    while (Atomics.exchange(this.word, 0, wanted) !== free) {
      if (Atomics.wait(this.word, 0, wanted, this.patienceMs) !== 'timed-out') continue;
      throw new Error(
        `a lock was not freed in ${this.patienceMs} ms: the thread that held it must have died`,
      );
    }
  }

  release(): void {
    if (Atomics.exchange(this.word, 0, free) === wanted) Atomics.notify(this.word, 0, 1);
  }
}
