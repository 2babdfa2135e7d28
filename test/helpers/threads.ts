// The threads of a program under test: what each may do, and how to hang one of them alone.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { declare, errno } from '../../src/linux/ffi.js';

const ptrace = declare<(request: number, tid: number, address: number, data: number) => number>(
  'long ptrace(int request, int tid, uintptr_t address, uintptr_t data)',
);
const waitpid = declare<(tid: number, status: number, options: number) => number>(
  'int waitpid(int tid, uintptr_t status, int options)',
);
const PTRACE_DETACH = 17; // include/uapi/linux/ptrace.h
const PTRACE_SEIZE = 0x4206;
const PTRACE_INTERRUPT = 0x4207;
const WNOHANG = 1; // include/uapi/linux/wait.h
const __WALL = 0x40000000;

/** No loop of ours waits longer, and no other thread of Node waits in epoll_wait with an end so near (engine/reactor.ts). */
const longestWaitMs = 500;

export function threadsOf(pid: number): number[] {
  return readdirSync(`/proc/${pid}/task`).map(Number);
}

/** A line of /proc/PID/task/TID/status, such as `CapEff`. */
export function statusOf(pid: number, tid: number, name: string): string {
  const status = readFileSync(`/proc/${pid}/task/${tid}/status`, 'utf8');
  return new RegExp(`^${name}:\\s*(.*)$`, 'm').exec(status)![1]!.trim();
}

/** The threads that sit in a reactor. Looked at for a while: one that works is not waiting. */
export async function workersOf(pid: number, count: number): Promise<number[]> {
  const found = new Set<number>();
  for (let tries = 0; tries < 500 && found.size < count; tries++) {
    for (const tid of threadsOf(pid)) {
      if (tid !== pid && waitsInReactor(pid, tid)) found.add(tid);
    }
    await delay(5);
  }
  assert.equal(found.size, count, `workers of ${pid}`);
  return [...found];
}

/** epoll_wait(epfd, events, maxevents, timeout): /proc/PID/task/TID/syscall has the number and the arguments. */
function waitsInReactor(pid: number, tid: number): boolean {
  const [, , , maxEvents, timeout] = readFileSync(`/proc/${pid}/task/${tid}/syscall`, 'utf8').split(' ');
  return Number(maxEvents) === 256 && Number(timeout) <= longestWaitMs;
}

/** Hangs one thread, while the others of its process run (SIGSTOP would stop them all). */
export class HungThread {
  readonly #tid: number;

  constructor(tid: number) {
    this.#tid = tid;
    assert.equal(ptrace(PTRACE_SEIZE, tid, 0, 0), 0, `PTRACE_SEIZE ${tid}: errno ${errno()}`);
    assert.equal(ptrace(PTRACE_INTERRUPT, tid, 0, 0), 0, `PTRACE_INTERRUPT ${tid}: errno ${errno()}`);
  }

  /** Lets it go on. */
  async release(): Promise<void> {
    for (let tries = 0; tries < 200; tries++) {
      waitpid(this.#tid, 0, WNOHANG | __WALL);
      if (ptrace(PTRACE_DETACH, this.#tid, 0, 0) === 0) return;
      await delay(5);
    }
    assert.fail(`PTRACE_DETACH ${this.#tid}`);
  }

  /** A traced thread stays a zombie until its tracer has seen it die, and its process with it. */
  reap(): boolean {
    return waitpid(this.#tid, 0, WNOHANG | __WALL) !== 0;
  }
}
