/** The last lines of ss-redir and ss-server, to be shown when something fails. */
export class LogLines {
  static readonly kept = 20;
  recent: string[] = [];
  onLine: ((line: string) => void) | undefined;

  add(line: string): void {
    this.recent = [...this.recent, line].slice(-LogLines.kept);
    this.onLine?.(line);
  }
}
