/**
 * A worker's lines, sent to the main thread, which writes them. A storm of failing connections must not become a storm of
 * messages: what is above the budget of a second is counted and told later.
 */
export type LogLevel = 'error' | 'info' | 'debug';

const linesPerSecond = 200;
const verboseLinesPerSecond = 5000;

export class WorkerLog {
  readonly verbose: boolean;
  private readonly post: (level: LogLevel, text: string) => void;
  private secondStartMs = 0;
  private lines = 0;
  private suppressed = 0;

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
