/** What SIGHUP means, and one reload after the other. */
import { isatty } from 'node:tty';

/**
 * Whether the terminal that the command was started at has gone: then SIGHUP is its farewell. To whoever has none, or still
 * has it, somebody says "reload".
 */
export function watchTerminal(): () => boolean {
  const terminals = [0, 1, 2].filter((fd) => isatty(fd));
  return () => terminals.length > 0 && !terminals.some((fd) => isatty(fd));
}

/** Work that is asked for again and again: never twice at once, and once more if it was asked for meanwhile. */
export class Turns {
  private hasBegun = false;
  private isOver = false;
  private isRunning = false;
  private waiting: (() => Promise<void>) | undefined;

  /** What was asked for earlier is done now. */
  begin(): void {
    this.hasBegun = true;
    void this.next();
  }

  /** Nothing more is begun. */
  end(): void {
    this.isOver = true;
  }

  run(work: () => Promise<void>): void {
    this.waiting = work;
    void this.next();
  }

  private async next(): Promise<void> {
    if (!this.hasBegun || this.isOver || this.isRunning || this.waiting === undefined) return;
    const work = this.waiting;
    this.waiting = undefined;
    this.isRunning = true;
    await work();
    this.isRunning = false;
    void this.next();
  }
}
