/**
 * Lines for people. Three shapes:
 *
 *     terminal          ESC[01;32m 2026-01-31 12:00:00 INFO: ESC[0mtext     as shadowsocks-libev
 *     not a terminal     2026-01-31 12:00:00 INFO: text                     as shadowsocks-libev, with its leading space
 *     systemd's journal  <6>text                                            sd-daemon(3); the journal has the time
 *
 * All of them go to standard error. shadowsocks-libev puts information on standard output; here that is for what was asked
 * for (--help, --version), so that a pipe gets that and nothing else, and lines keep their order.
 *
 * Nothing here waits. Lines that cannot be written stay in a queue with an end, and what finds it full is counted.
 */
import { fstatSync } from 'node:fs';
import { isatty } from 'node:tty';
import { openStderr } from './linux/stderr.js';
import type { Writer } from './linux/stderr.js';
import { openSyslog } from './linux/syslog.js';
import { oneLine } from './text.js';

/** `debug` lines, one or more a connection, are written with -v only. */
export type LogLevel = 'error' | 'warn' | 'info' | 'debug';

/** Where a line goes. */
export type Emit = (level: LogLevel, text: string) => void;

const priorities: Readonly<Record<LogLevel, number>> = { error: 3, warn: 4, info: 6, debug: 7 }; // RFC 5424, table 2
/** shadowsocks-libev has two; what its -v adds is INFO as well. */
const labels: Readonly<Record<LogLevel, string>> = {
  error: 'ERROR',
  warn: 'WARN',
  info: 'INFO',
  debug: 'INFO',
};
const colours: Readonly<Record<LogLevel, string>> = {
  error: '01;35',
  warn: '01;33',
  info: '01;32',
  debug: '01;32',
};

const longestText = 2000;
const mostQueuedLines = 1000;
const retryMs = 100;
const flushTries = 4;
const flushPauseMs = 5;
const limitedWindowMs = 60_000;
const mostLimitedKeys = 256;

interface Repeated {
  readonly startMs: number;
  lines: number;
  suppressed: number;
}

export class Logger {
  verbose: boolean;
  private readonly emit: Emit;
  private readonly drain: () => void;
  private readonly repeated = new Map<string, Repeated>();

  constructor(
    emit: Emit,
    { verbose = false, flush = () => {} }: { verbose?: boolean; flush?: () => void } = {},
  ) {
    this.emit = emit;
    this.verbose = verbose;
    this.drain = flush;
  }

  error(text: string): void {
    this.write('error', text);
  }

  warn(text: string): void {
    this.write('warn', text);
  }

  info(text: string): void {
    this.write('info', text);
  }

  /** Ask `verbose` first where making the text costs something. */
  debug(text: string): void {
    this.write('debug', text);
  }

  write(level: LogLevel, text: string): void {
    if (level === 'debug' && !this.verbose) return;
    const cut = text.length <= longestText ? text : `${text.slice(0, longestText)}…`;
    this.emit(level, oneLine(cut)); // a host name with a line end in it must not look like a line of ours
  }

  /** At most `perMinute` lines of one `key` a minute; how many were left out is told at the end of that minute. */
  limited(key: string, text: string, level: LogLevel = 'error', perMinute = 5): void {
    if (level === 'debug' && !this.verbose) return;
    const nowMs = performance.now();
    let entry = this.repeated.get(key);
    if (entry === undefined || nowMs - entry.startMs >= limitedWindowMs) {
      this.forgetOld(nowMs);
      entry = { startMs: nowMs, lines: 0, suppressed: 0 };
      this.repeated.set(key, entry);
    }
    if (entry.lines < perMinute) {
      entry.lines++;
      this.write(level, text);
      return;
    }
    if (entry.suppressed++ === 0) this.tellLater(level, text, entry, entry.startMs + limitedWindowMs - nowMs);
  }

  private tellLater(level: LogLevel, text: string, entry: Repeated, delayMs: number): void {
    const tell = (): void => {
      const others = entry.suppressed - 1;
      this.write(level, others === 0 ? text : `${text} (and ${others} more lines like this one)`);
    };
    setTimeout(tell, delayMs).unref();
  }

  private forgetOld(nowMs: number): void {
    if (this.repeated.size < mostLimitedKeys) return;
    for (const [key, { startMs }] of this.repeated) {
      if (nowMs - startMs >= limitedWindowMs || this.repeated.size >= mostLimitedKeys)
        this.repeated.delete(key);
    }
  }

  /** Writes what is queued, as far as that takes milliseconds. */
  flush(): void {
    this.drain();
  }
}

export interface LogOptions {
  readonly verbose?: boolean;
  /** syslog(3) instead of standard error. */
  readonly useSyslog?: boolean;
  /** The name that syslog lines carry. */
  readonly ident: string;
}

/** The program's logger. It flushes by itself when the process exits. */
export function openLog({ verbose = false, useSyslog = false, ident }: LogOptions): Logger {
  if (useSyslog) {
    const send = openSyslog(ident);
    return new Logger((level, text) => send(priorities[level], text), { verbose });
  }
  const format = isJournal() ? journalLine : isatty(2) && !process.env['NO_COLOR'] ? colouredLine : plainLine;
  const queue = new LineQueue(openStderr(), (count) => format('warn', `${count} log lines dropped`));
  const flush = (): void => queue.flush();
  process.on('exit', flush);
  return new Logger((level, text) => queue.add(format(level, text)), { verbose, flush });
}

/** systemd names the device and inode of the socket that leads to its journal: systemd.exec(5), JOURNAL_STREAM. */
function isJournal(): boolean {
  const journal = process.env['JOURNAL_STREAM'];
  if (journal === undefined) return false;
  try {
    const { dev, ino } = fstatSync(2, { bigint: true });
    return journal === `${dev}:${ino}`;
  } catch {
    return false;
  }
}

type Format = (level: LogLevel, text: string) => string;

const journalLine: Format = (level, text) => `<${priorities[level]}>${text}\n`;
const plainLine: Format = (level, text) => ` ${localTime(new Date())} ${labels[level]}: ${text}\n`;
const colouredLine: Format = (level, text) =>
  `\u001b[${colours[level]}m ${localTime(new Date())} ${labels[level]}: \u001b[0m${text}\n`;

function localTime(date: Date): string {
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function two(number: number): string {
  return String(number).padStart(2, '0');
}

/** Lines on their way to a writer that takes what it can and never waits. */
export class LineQueue {
  private readonly writer: Writer;
  private readonly dropNotice: (count: number) => string;
  private readonly lines: Uint8Array[] = [];
  private dropped = 0;
  private retry: NodeJS.Timeout | undefined;

  constructor(writer: Writer, dropNotice: (count: number) => string) {
    this.writer = writer;
    this.dropNotice = dropNotice;
  }

  /** Writes the line now, queues it, or counts it as dropped. */
  add(line: string): void {
    if (this.lines.length >= mostQueuedLines) {
      this.dropped++;
      return;
    }
    this.noteDropped(); // where they are missing: behind what was queued before them
    this.lines.push(Buffer.from(line));
    if (this.retry === undefined) this.writeQueued();
  }

  /** Tries for 20 ms at most to write everything. */
  flush(): void {
    this.writeQueued();
    for (let i = 0; i < flushTries && this.lines.length > 0; i++) {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, flushPauseMs);
      this.writeQueued();
    }
  }

  private writeQueued(): void {
    clearTimeout(this.retry);
    this.retry = undefined;
    for (;;) {
      const line = this.lines[0];
      if (line === undefined) {
        if (this.dropped === 0) return;
        this.noteDropped();
        continue;
      }
      const written = this.writer(line);
      if (written === 0) break;
      if (written < 0) {
        this.lines.length = 0; // nobody reads any more
        this.dropped = 0;
        return;
      }
      if (written < line.length) this.lines[0] = line.subarray(written);
      else this.lines.shift();
    }
    this.retry = setTimeout(() => this.writeQueued(), retryMs).unref();
  }

  private noteDropped(): void {
    if (this.dropped === 0) return;
    const notice = this.dropNotice(this.dropped);
    this.dropped = 0;
    this.lines.push(Buffer.from(notice));
  }
}
