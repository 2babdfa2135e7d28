// A relay without its worker: the context that data-plane.ts builds, with a pool as small as a test likes, real sockets on
// loopback, and peers that live in the same reactor, so that one thread plays all parts and nothing is left to chance.
import assert from 'node:assert/strict';
import { selectBackend } from '../../src/crypto/aead.js';
import type { Credentials } from '../../src/crypto/credentials.js';
import { findMethod, type Method } from '../../src/crypto/methods.js';
import { BufferPool } from '../../src/engine/pool.js';
import { type EventHandler, Reactor } from '../../src/engine/reactor.js';
import type { Deadlined } from '../../src/engine/timers.js';
import { EPOLLIN, EPOLLOUT } from '../../src/linux/epoll.js';
import { EAGAIN, errnoName } from '../../src/linux/errno.js';
import { errno } from '../../src/linux/ffi.js';
import { recv, send, shutdown } from '../../src/linux/libc.js';
import { Block } from '../../src/linux/memory.js';
import { Scatter } from '../../src/linux/scatter.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import {
  acceptTcp,
  closeOrderly,
  closeReset,
  type ConnectOptions,
  connectTcp,
  listenTcp,
  localEndpoint,
  MSG_NOSIGNAL,
  SHUT_WR,
} from '../../src/linux/socket.js';
import type { RelayContext, Timeouts } from '../../src/relay/context.js';
import { blockSize, recordsPerBatch, restSize } from '../../src/relay/geometry.js';
import { Limits } from '../../src/relay/limits.js';
import { Names } from '../../src/relay/names.js';
import type { UserCounters } from '../../src/relay/user-counters.js';
import { WorkerLog } from '../../src/relay/worker-log.js';

export const methodName = 'aes-128-gcm';
export const password = 'correct horse';

export const plainConnect: ConnectOptions = {
  mark: 0,
  mptcp: false,
  fastOpen: false,
  tos: 0,
  sendBuffer: 0,
  receiveBuffer: 0,
};

export interface RigOptions {
  blocks?: number;
  rests?: number;
  timeouts?: Partial<Timeouts>;
  maxConnections?: number;
  /** Its default is methodName. */
  method?: string;
  /** Of the method's size; a default is there. */
  key?: Uint8Array;
  /** In place of `key`. */
  credentials?: Credentials;
  userCounters?: UserCounters;
  connectOptions?: Partial<ConnectOptions>;
}

/** A scenario is a generator: it yields what it waits for, and goes on in the turn in which that is so. */
export type Scenario = Generator<() => boolean, void, void>;

export class Rig {
  readonly context: RelayContext;
  readonly reactor = new Reactor();
  readonly lines: string[] = [];
  readonly asked: { id: number; host: string }[] = [];
  turns = 0;

  constructor(options: RigOptions = {}) {
    const method: Method = findMethod(options.method ?? methodName)!;
    const key = options.key ?? Uint8Array.from({ length: method.keySize }, (_, i) => i);
    this.context = {
      reactor: this.reactor,
      blocks: new BufferPool(blockSize, options.blocks ?? 64),
      rests: new BufferPool(restSize[method.edition], options.rests ?? 64),
      scatter: new Scatter(recordsPerBatch[method.edition]),
      backend: selectBackend(),
      method,
      credentials: options.credentials ?? { key, identityKeys: [], users: [] },
      userCounters: options.userCounters,
      timeouts: { connectMs: 10_000, halfOpenMs: 60_000, idleMs: 60_000, ...options.timeouts },
      connectOptions: { ...plainConnect, ...options.connectOptions },
      noDelay: true,
      limits: new Limits(options.maxConnections ?? 1000),
      names: new Names((id, host) => this.asked.push({ id, host })),
      log: new WorkerLog(true, (_, text) => this.lines.push(text)),
    };
  }

  /** Runs the reactor until the scenario has ended. Once only: a reactor closes its epoll behind itself. */
  run(scenario: Scenario, limitMs = 10_000): void {
    const { reactor } = this;
    const startMs = performance.now();
    new Ticker(reactor).start();
    let wanted = scenario.next();
    reactor.run(() => {
      this.turns++;
      while (!wanted.done && wanted.value()) wanted = scenario.next();
      if (wanted.done) return true;
      if (performance.now() - startMs < limitMs) return false;
      assert.fail(`still waiting after ${limitMs} ms for ${wanted.value}; log: ${this.lines.join(' | ')}`);
    });
  }

  /** Waits, and says how often the reactor turned meanwhile: the ticker alone makes it 20 times a second. */
  *turnsWithin(ms: number, tell: (turns: number) => void): Scenario {
    const { turns } = this;
    const untilMs = performance.now() + ms;
    yield () => performance.now() >= untilMs;
    tell(this.turns - turns);
  }
}

/** Most turns a second of a reactor that has nothing to do but tick. */
export const quietTurns = 40;

/** Lets the reactor look at its scenario when no event comes. */
class Ticker implements Deadlined {
  wheelBucket = -1;
  wheelIndex = 0;
  private readonly reactor: Reactor;

  constructor(reactor: Reactor) {
    this.reactor = reactor;
  }

  start(): void {
    this.reactor.timers.set(this);
  }

  dueMs(): number {
    return this.reactor.nowMs + 1;
  }

  onDeadline(): void {
    this.reactor.timers.set(this);
  }
}

export interface PairOfSockets {
  /** As accepted from a listener of ours. */
  accepted: number;
  connected: number;
}

/** Two ends of one connection on loopback, both non-blocking. */
export function socketPair(
  options: { sendBuffer?: number; receiveBuffer?: number } = {},
  host = '127.0.0.1',
): PairOfSockets {
  const listener = listenTcp(Endpoint.parse(host, 0)!, options);
  const connected = connectTcp(localEndpoint(listener)!, { ...plainConnect, ...options });
  const accepted = acceptSoon(listener);
  closeReset(listener);
  return { accepted, connected };
}

export function acceptSoon(listener: number): number {
  const untilMs = performance.now() + 2000;
  for (;;) {
    const fd = acceptTcp(listener);
    if (fd >= 0) return fd;
    assert.ok(performance.now() < untilMs, `accept: ${errnoName(-fd)}`);
  }
}

const scratch = Block.allocate(256 * 1024);

/** Who is at the other end of a socket: sends what it is given as the socket takes it, keeps what it reads. */
export class Peer implements EventHandler {
  readonly fd: number;
  readonly got: Buffer[] = [];
  size = 0;
  /** 'FIN', or the name of the error that ended the reading. */
  ended: string | undefined;
  reading = true;
  /** Bytes a read, to be slow. */
  readSize = scratch.size;
  private readonly reactor: Reactor;
  private readonly queue: Buffer[] = [];
  private finWanted = false;
  private finSent = false;
  private open = true;

  constructor(reactor: Reactor, fd: number) {
    this.reactor = reactor;
    this.fd = fd;
    reactor.add(fd, this, EPOLLIN);
  }

  get bytes(): Buffer {
    return Buffer.concat(this.got);
  }

  /** All that was given is in the kernel. */
  get flushed(): boolean {
    return this.queue.length === 0;
  }

  say(...pieces: Uint8Array[]): void {
    this.queue.push(...pieces.map((piece) => Buffer.from(piece)));
    this.flush();
    this.updateInterest();
  }

  /** FIN, after everything that is queued. */
  finish(): void {
    this.finWanted = true;
    this.flush();
    this.updateInterest();
  }

  pause(): void {
    this.reading = false;
    this.updateInterest();
  }

  resume(): void {
    this.reading = true;
    this.updateInterest();
  }

  reset(): void {
    if (!this.open) return;
    this.leave();
    closeReset(this.fd);
  }

  close(): void {
    if (!this.open) return;
    this.leave();
    closeOrderly(this.fd);
  }

  onEvents(events: number): void {
    if (events & EPOLLOUT) this.flush();
    if (this.reading && this.ended === undefined) this.read();
    if (this.open) this.updateInterest();
  }

  private read(): void {
    const count = recv(this.fd, scratch.address, this.readSize, 0);
    const number = count < 0 ? errno() : 0;
    if (count > 0) {
      this.got.push(Buffer.from(scratch.bytes.subarray(0, count)));
      this.size += count;
    } else if (count === 0) this.ended = 'FIN';
    else if (number !== EAGAIN) this.ended = errnoName(number);
    if (this.ended !== undefined && this.ended !== 'FIN') this.reset();
  }

  private flush(): void {
    while (this.queue.length > 0) {
      const piece = this.queue[0]!.subarray(0, scratch.size);
      scratch.bytes.set(piece);
      const count = piece.length === 0 ? 0 : send(this.fd, scratch.address, piece.length, MSG_NOSIGNAL);
      if (count < 0) {
        const number = errno();
        if (number !== EAGAIN) this.queue.length = 0;
        return;
      }
      this.queue[0] = this.queue[0]!.subarray(count);
      if (this.queue[0].length === 0) this.queue.shift();
    }
    if (!this.finWanted || this.finSent) return;
    this.finSent = true;
    shutdown(this.fd, SHUT_WR);
  }

  private updateInterest(): void {
    if (!this.open) return;
    if (this.ended !== undefined && this.finSent) return this.close();
    const wantsRead = this.reading && this.ended === undefined;
    this.reactor.change(this.fd, (wantsRead ? EPOLLIN : 0) | (this.queue.length > 0 ? EPOLLOUT : 0));
  }

  private leave(): void {
    if (!this.open) return;
    this.open = false;
    this.reactor.remove(this.fd);
  }
}

/** Bytes that differ at every place, the same for the same seed: xorshift32. */
export function patterned(size: number, seed: number): Buffer {
  const bytes = Buffer.allocUnsafe(size);
  let x = seed * 2654435761 || 1;
  for (let i = 0; i < size; i++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    bytes[i] = x;
  }
  return bytes;
}
