/**
 * `-f`: the command leaves a process behind. Node cannot fork, so it starts itself once more, in a session of its own, and
 * waits for what that one says over a socket:
 *
 *     level text LF      a line for people, at the terminal while it starts; also in the system log
 *     ready LF           it serves: the command ends with status 0
 *
 * When it ends instead, its refusal has been shown, and its status is the command's.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { close } from '../linux/libc.js';
import { discardStderr } from '../linux/process.js';
import { Logger, openLog, type LogLevel } from '../log.js';

const channelFd = 3;
const marker = 'SS_REDIR_BACKGROUND';
const levels: ReadonlySet<string> = new Set<LogLevel>(['error', 'warn', 'info', 'debug']);

/** Whether this is the process that is left behind. Children of it are not. */
export function takeBackgroundMark(env: NodeJS.ProcessEnv): boolean {
  const marked = env[marker] === String(process.ppid);
  delete env[marker];
  return marked;
}

/** Starts the process that stays; resolves with the status to end with. */
export async function startInBackground(log: Logger): Promise<number> {
  const [node, ...words] = [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
  const child = spawn(node!, words, {
    detached: true, // setsid(2)
    stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
    env: { ...process.env, [marker]: String(process.pid) },
  });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => {
      child.kill('SIGTERM');
      process.exit(1);
    });
  }
  child.stderr!.pipe(process.stderr); // what comes before it can speak, such as a package that is missing
  log.verbose = true; // the child knows what to leave out
  const closed = once(child, 'close') as Promise<[code: number | null]>;
  const ready = passOn(child.stdio[channelFd] as Readable, log);
  const isReady = await Promise.race([ready, closed.then(() => false)]);
  if (isReady) return 0;
  await ready;
  const [code] = await closed;
  return code === 0 || code === null ? 1 : code;
}

/** Resolves with true at `ready`, with false when the other end is closed before. */
async function passOn(channel: Readable, log: Logger): Promise<boolean> {
  let rest = '';
  channel.setEncoding('utf8');
  try {
    for await (const chunk of channel) {
      const lines = (rest + String(chunk)).split('\n');
      rest = lines.pop()!;
      for (const line of lines) {
        if (line === 'ready') return true;
        const space = line.indexOf(' ');
        const level = line.slice(0, space);
        if (levels.has(level)) log.write(level as LogLevel, line.slice(space + 1));
      }
    }
  } catch {
    // reset: it ended
  }
  return false;
}

/** The other end. */
export class Launcher {
  private open = true;

  tell(level: LogLevel, text: string): void {
    this.write(`${level} ${text}\n`);
  }

  /** Lets the command end. From now on nothing of the terminal is held. */
  ready(): void {
    if (!this.open) return;
    process.chdir('/'); // as shadowsocks-libev: no file system is kept from being unmounted
    this.write('ready\n');
    this.open = false;
    close(channelFd);
    discardStderr();
  }

  private write(text: string): void {
    if (!this.open) return;
    try {
      writeSync(channelFd, text);
    } catch {
      // the command has been killed: nobody waits any more
    }
  }
}

/** To the system log, and to the terminal as long as the command there waits. */
export function openBackgroundLog(ident: string, launcher: Launcher): Logger {
  const syslog = openLog({ ident, useSyslog: true, verbose: true });
  return new Logger((level, text) => {
    launcher.tell(level, text);
    syslog.write(level, text);
  });
}
