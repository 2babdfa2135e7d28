/*
 * A transfer's progress: a bar that is redrawn on a terminal, a line every few seconds elsewhere.
 */
const barWidth = 30;
const lineMs = 5000;

export class ProgressBar {
  readonly #title: string;
  readonly #total: number;
  readonly #start = performance.now();
  readonly #out: NodeJS.WriteStream;
  #lastLine = performance.now();

  constructor(title: string, total: number, out: NodeJS.WriteStream = process.stdout) {
    this.#title = title;
    this.#total = total;
    this.#out = out;
    if (out.isTTY) this.update(0);
  }

  update(bytes: number): void {
    if (this.#out.isTTY) {
      this.#redraw(`${this.#bar(bytes)} ${this.#percent(bytes)}  ${this.#rate(bytes)}`);
      return;
    }
    if (performance.now() - this.#lastLine < lineMs) return;
    this.#lastLine = performance.now();
    this.#out.write(`  ${this.#title} ${this.#percent(bytes)}  ${this.#rate(bytes)}\n`);
  }

  /** Replaces the bar by its last words. */
  finish(words: string): void {
    if (this.#out.isTTY) this.#redraw(`${words}\n`);
    else this.#out.write(`  ${this.#title} ${words}\n`);
  }

  #redraw(text: string): void {
    this.#out.write(`\r\u001b[K  ${this.#title} ${text}`); // ECMA-48: erase to the end of the line
  }

  #bar(bytes: number): string {
    const filled = Math.round((barWidth * bytes) / this.#total);
    return `[${'#'.repeat(filled)}${'.'.repeat(barWidth - filled)}]`;
  }

  #percent(bytes: number): string {
    return `${Math.floor((100 * bytes) / this.#total)} %`.padStart(5);
  }

  #rate(bytes: number): string {
    return megabytesPerSecond(bytes, (performance.now() - this.#start) / 1000);
  }
}

export function megabytesPerSecond(bytes: number, seconds: number): string {
  return `${(bytes / 1e6 / seconds).toFixed(0)} MB/s`;
}
