/**
 * A worker's lines, sent to the main thread, which writes them. A storm of failing connections must not become a storm of
 * messages: what is above the budget of a second is counted and told later.
 */
export type LogLevel = 'error' | 'info' | 'debug';

const linesPerSecond = 200;
const verboseLinesPerSecond = 5000;
const limitedMs = 2000;
/** Lines that were left out and that no line of their kind has told of by then are told of alone. */
const forgottenMs = 10_000;

interface Kind {
  /** The line last shown. */
  text: string;
  shownMs: number;
  /** Left out since then. */
  suppressed: number;
}

export class WorkerLog {
  /** A reload may change it. */
  verbose: boolean;
  private readonly post: (level: LogLevel, text: string) => void;
  private secondStartMs = 0;
  private lines = 0;
  private suppressed = 0;
  /** By kind: there are only as many as there are places in the code. */
  private readonly kinds = new Map<string, Kind>();

  constructor(verbose: boolean, post: (level: LogLevel, text: string) => void) {
    this.verbose = verbose;
    this.post = post;
  }

  error(text: string): void {
    this.write('error', text);
  }

  info(text: string): void {
    this.write('info', text);
  }

  /** An error that may come again and again: one line of a kind every few seconds, with the number left out between. */
  limited(kind: string, text: string): void {
    const last = this.kinds.get(kind);
    if (!this.isDue(kind)) return;
    this.kinds.set(kind, { text, shownMs: performance.now(), suppressed: 0 });
    const more =
      last !== undefined && last.suppressed > 0 ? ` (and ${last.suppressed} more like it before)` : '';
    this.error(text + more);
  }

  /**
   * Whether `limited` would show a line of this kind now; if not, it counts as left out. For where making the text costs
   * something.
   */
  isDue(kind: string): boolean {
    const last = this.kinds.get(kind);
    if (last === undefined || performance.now() - last.shownMs >= limitedMs) return true;
    last.suppressed++;
    return false;
  }

  /** Tells of what was left out and has no successor. Call it every few seconds. */
  tellLeftOut(nowMs: number): void {
    for (const kind of this.kinds.values()) {
      if (kind.suppressed === 0 || nowMs - kind.shownMs < forgottenMs) continue;
      this.error(`${kind.suppressed} more lines like this one: ${kind.text}`);
      kind.suppressed = 0;
    }
  }

  /** Per connection: ask `verbose` first where making the text costs something. */
  debug(text: string): void {
    if (this.verbose) this.write('debug', text);
  }

  private write(level: LogLevel, text: string): void {
    const nowMs = Date.now();
    if (nowMs - this.secondStartMs >= 1000 || nowMs < this.secondStartMs) this.nextSecond(nowMs);
    if (this.lines++ < (this.verbose ? verboseLinesPerSecond : linesPerSecond)) this.post(level, text);
    else this.suppressed++;
  }

  private nextSecond(nowMs: number): void {
    const { suppressed } = this;
    this.secondStartMs = nowMs;
    this.lines = 0;
    this.suppressed = 0;
    if (suppressed > 0) this.post('info', `${suppressed} more lines like these were left out`);
  }
}
