/** Tells when policy rules or routes have changed: some network managers take away what they have not made. */
import { setTimeout as delay } from 'node:timers/promises';
import { startTool, type RunningTool } from './tools.js';

/** Changes come in bursts, and our own are among them. */
const settleMs = 100;
const restartMs = 1000;

export class RoutingWatch {
  readonly #onChange: () => void;
  #monitor: RunningTool | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(onChange: () => void) {
    this.#onChange = onChange;
    void this.#run();
  }

  close(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#monitor?.kill('SIGTERM');
  }

  async #run(): Promise<void> {
    while (!this.#isOver) {
      this.#monitor = startTool('ip', ['monitor', 'rule', 'route'], {}, () => this.#changed());
      await this.#monitor.ended;
      if (this.#isOver) return;
      await delay(restartMs, undefined, { ref: false });
      this.#changed(); // what happened meanwhile nobody has said
    }
  }

  #changed(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      if (!this.#isOver) this.#onChange();
    }, settleMs);
  }
}
