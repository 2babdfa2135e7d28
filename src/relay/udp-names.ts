/**
 * Names that datagrams are sent to: answers are kept for a while, and what comes while a question is open waits, but only so
 * much of it. Those of one session go on in the order they came.
 */
import { SyscallError } from '../errors.js';
import { connectUdp } from '../linux/datagram.js';
import { errno } from '../linux/ffi.js';
import { close, sendto } from '../linux/libc.js';
import { Block } from '../linux/memory.js';
import { type Endpoint, SockaddrBlock } from '../linux/sockaddr.js';
import { MSG_NOSIGNAL } from '../linux/socket.js';
import { errnoName } from '../linux/errno.js';
import type { Names } from './names.js';
import type { UdpContext } from './udp-context.js';
import type { UdpServerSession } from './udp-server-session.js';

/** Shorter than most records live, and longer than a flow's beginning takes. */
const keepMs = 30_000;
const keepFailureMs = 2000;
const maxNames = 1024;
const maxQuestions = 256;
const maxWaiting = 256;
const maxWaitingForOne = 16;

interface Waiting {
  session: UdpServerSession;
  payload: Block;
}

interface Known {
  endpoint: Endpoint | undefined;
  untilMs: number;
  waiting: Waiting[] | undefined;
}

export class UdpNames {
  private readonly context: UdpContext;
  private readonly names: Names;
  /** In the order of insertion, so the first is the oldest. */
  private readonly known = new Map<string, Known>();
  private questions = 0;
  private waiting = 0;
  private readonly sockaddr = new SockaddrBlock();

  constructor(context: UdpContext, names: Names) {
    this.context = context;
    this.names = names;
  }

  /**
   * The endpoint of `host`, if it is known at this moment. If not, `bytes[from..to)` is kept and sent when it is; when there
   * is no room for that, or no such name, it is counted and dropped.
   */
  find(
    session: UdpServerSession,
    host: string,
    port: number,
    bytes: Buffer,
    from: number,
    to: number,
  ): Endpoint | undefined {
    const { nowMs } = this.context.reactor;
    const key = `${host}:${port}`;
    let known = this.known.get(key);
    if (known !== undefined && known.waiting === undefined && known.untilMs <= nowMs) {
      this.known.delete(key);
      known = undefined;
    }
    if (known === undefined) known = this.ask(key, host, port);
    if (known === undefined) return this.overflow(host);
    if (known.waiting === undefined) return known.endpoint ?? this.unreachable();
    if (known.waiting.length >= maxWaitingForOne || this.waiting >= maxWaiting) return this.overflow(host);
    const payload = Block.allocate(Math.max(1, to - from));
    bytes.copy(payload.bytes, 0, from, to);
    known.waiting.push({
      session,
      payload: new Block(payload.bytes.subarray(0, to - from), payload.address),
    });
    this.waiting++;
    return undefined;
  }

  private ask(key: string, host: string, port: number): Known | undefined {
    if (this.questions >= maxQuestions) return undefined;
    if (this.known.size >= maxNames) this.forgetOldest();
    const known: Known = { endpoint: undefined, untilMs: 0, waiting: [] };
    this.known.set(key, known);
    this.questions++;
    this.names.resolve(host, port, (found, failure) => this.answered(known, host, found, failure));
    return known;
  }

  private forgetOldest(): void {
    for (const [key, { waiting }] of this.known) {
      if (waiting !== undefined) continue;
      this.known.delete(key);
      return;
    }
  }

  private answered(known: Known, host: string, found: Endpoint[], failure: string): void {
    const { reactor, counters, log } = this.context;
    const waiting = known.waiting!;
    known.waiting = undefined;
    known.endpoint = found.find((endpoint) => this.hasRoute(endpoint)) ?? found[0];
    known.untilMs = reactor.nowMs + (found.length > 0 ? keepMs : keepFailureMs);
    this.questions--;
    this.waiting -= waiting.length;
    if (known.endpoint !== undefined) {
      for (const { session, payload } of waiting) this.send(session, known.endpoint, payload);
      return;
    }
    counters.count('unreachable', waiting.length);
    log.limited('udp-name', `udp: ${host}: ${failure}`);
  }

  /** A name may have an IPv6 address, and this host no IPv6. Nothing is sent. */
  private hasRoute(endpoint: Endpoint): boolean {
    try {
      close(connectUdp(endpoint, this.context.socketOptions));
      return true;
    } catch (error) {
      if (error instanceof SyscallError) return false;
      throw error;
    }
  }

  private send(session: UdpServerSession, endpoint: Endpoint, payload: Block): void {
    const { counters, log } = this.context;
    if (session.closed) return counters.count('unreachable');
    try {
      const { fd } = session.outlet(!endpoint.isIpv4);
      const size = this.sockaddr.write(endpoint);
      const sent = sendto(fd, payload.address, payload.size, MSG_NOSIGNAL, this.sockaddr.address, size);
      if (sent >= 0) return;
      counters.count('unsent');
      log.limited('udp-send', `udp: to ${endpoint}: ${errnoName(errno())}: dropped`);
    } catch (error) {
      if (!(error instanceof SyscallError)) throw error;
      counters.count('no-socket');
      log.limited('udp-socket', `udp: to ${endpoint}: ${error.message}: dropped`);
    }
  }

  private unreachable(): undefined {
    this.context.counters.count('unreachable');
    return undefined;
  }

  private overflow(host: string): undefined {
    this.context.counters.count('overflow');
    this.context.log.limited(
      'udp-overflow',
      `udp: too many datagrams wait for names, dropped one to ${host}`,
    );
    return undefined;
  }
}
