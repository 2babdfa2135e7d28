/*
 * A program that runs inside a namespace: its output, its end, when it listens, what it uses.
 */
import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import type { Netns, Spawned, SpawnOptions } from './netns.js';

const pollMs = 5;
const startMs = 15_000;
const maxOutput = 1024 * 1024; // characters kept, the latest
const ticksPerSecond = 100; // USER_HZ, the same on every Linux architecture Node runs on

export interface ServiceOptions extends SpawnOptions {
  /** TCP port or ports to wait for. */
  listen?: number | number[];
  /** How long to wait for them; a default for busy machines. */
  timeoutMs?: number;
  /** What messages call it. Default: the command's file name. */
  label?: string;
  /** Gets what it writes, as it comes. */
  onOutput?: (text: string) => void;
}

export interface Exit {
  /** Undefined when a signal ended it. */
  code: number | undefined;
  signal: string | undefined;
}

export class Service {
  readonly pid: number;
  readonly label: string;
  /** Resolves when it has ended; never rejects. */
  readonly exited: Promise<Exit>;
  #exit: Exit | undefined;
  #output = '';
  readonly #netns: Netns;
  readonly #child: Spawned;

  constructor(netns: Netns, label: string, child: Spawned, onOutput?: (text: string) => void) {
    if (child.pid === undefined) throw new Error(`${label}: could not be started with ip netns exec`);
    this.pid = child.pid;
    this.label = label;
    this.#netns = netns;
    this.#child = child;
    child.all?.on('data', (chunk: Buffer) => {
      const text = chunk.toString();
      this.#output = (this.#output + text).slice(-maxOutput);
      onOutput?.(text);
    });
    this.exited = child.then((result) => {
      this.#exit = { code: result.exitCode, signal: result.signal };
      return this.#exit;
    });
  }

  /** What it has written to stdout and stderr so far, at most the last 1 Mi characters. */
  get output(): string {
    return this.#output;
  }

  get running(): boolean {
    return this.#exit === undefined;
  }

  /** Waits until some process in its namespace listens on the TCP port, IPv4 or IPv6. */
  async waitForListen(port: number, timeoutMs = startMs): Promise<void> {
    await this.#waitFor(
      () => isInNetns(this.pid, this.#netns.name) && listensTcp(this.pid, port),
      timeoutMs,
      {
        goal: `listens on port ${port}`,
      },
    );
  }

  async waitForOutput(pattern: RegExp, timeoutMs = startMs): Promise<void> {
    await this.#waitFor(() => pattern.test(this.#output), timeoutMs, { goal: `writes ${pattern}` });
  }

  /** Sends the signal and waits; SIGKILL when it has not ended after `killAfterMs`. */
  async stop(signal: NodeJS.Signals = 'SIGTERM', killAfterMs = 3000): Promise<Exit> {
    this.#child.kill(signal);
    const exit = await Promise.race([this.exited, delay(killAfterMs, undefined, { ref: false })]);
    if (exit !== undefined) return exit;
    this.#child.kill('SIGKILL');
    return this.exited;
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  usage(): Usage {
    return readUsage(this.pid);
  }

  async #waitFor(isTrue: () => boolean, timeoutMs: number, { goal }: { goal: string }): Promise<void> {
    const deadline = Date.now() + timeoutMs;
    while (!isTrue()) {
      if (this.#exit !== undefined) {
        const how = this.#exit.signal ?? `status ${this.#exit.code}`;
        throw new Error(`${this.label} ended (${how}) before it ${goal}: ${this.#output.trim()}`);
      }
      if (Date.now() > deadline) {
        throw new Error(
          `${this.label}: not true after ${timeoutMs} ms: ${goal}; output: ${this.#output.trim()}`,
        );
      }
      await delay(pollMs);
    }
  }
}

/** Whether `pid` has entered the namespace: between fork and exec, `ip netns exec` is still outside. */
function isInNetns(pid: number, name: string): boolean {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`) === `net:[${statSync(`/run/netns/${name}`).ino}]`;
  } catch {
    return false;
  }
}

/** /proc/PID/net is the table of the namespace that PID is in, so no program has to run inside to ask. */
function listensTcp(pid: number, port: number): boolean {
  const listen = '0A'; // TCP_LISTEN, include/net/tcp_states.h
  const wanted = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  return ['tcp', 'tcp6'].some((table) => {
    const fields = readLines(`/proc/${pid}/net/${table}`).map((line) => line.trim().split(/\s+/));
    return fields.some(([, local, , state]) => state === listen && local?.endsWith(wanted));
  });
}

export interface Usage {
  /** Open descriptors. */
  fds: number;
  /** Resident memory, VmRSS. */
  rssBytes: number;
  /** CPU time of all threads, ended ones too. Resolution 10 ms. */
  userSeconds: number;
  systemSeconds: number;
  threads: ThreadUsage[];
}

export interface ThreadUsage {
  tid: number;
  name: string;
  userSeconds: number;
  systemSeconds: number;
}

/** What a process uses, from /proc (proc(5)). */
export function readUsage(pid: number): Usage {
  const rssKiB = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  const { userSeconds, systemSeconds } = readStat(`/proc/${pid}/stat`);
  return {
    fds: readdirSync(`/proc/${pid}/fd`).length,
    rssBytes: Number(rssKiB) * 1024,
    userSeconds,
    systemSeconds,
    threads: readThreads(pid),
  };
}

function readThreads(pid: number): ThreadUsage[] {
  const threads: ThreadUsage[] = [];
  for (const tid of readdirSync(`/proc/${pid}/task`)) {
    try {
      threads.push({ tid: Number(tid), ...readStat(`/proc/${pid}/task/${tid}/stat`) });
    } catch {
      // ended between readdir and read
    }
  }
  return threads;
}

function readStat(file: string): Omit<ThreadUsage, 'tid'> {
  const text = readFileSync(file, 'utf8');
  // The name stands in parentheses and may itself hold spaces and parentheses; fields are counted from behind it.
  const close = text.lastIndexOf(')');
  const fields = text.slice(close + 2).split(' '); // fields[0] is field 3, the state
  return {
    name: text.slice(text.indexOf('(') + 1, close),
    userSeconds: Number(fields[14 - 3]) / ticksPerSecond,
    systemSeconds: Number(fields[15 - 3]) / ticksPerSecond,
  };
}

function readLines(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').split('\n');
  } catch {
    return [];
  }
}
