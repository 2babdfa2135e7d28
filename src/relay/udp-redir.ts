/**
 * ss-redir over UDP. A datagram's way, and the way of its answer:
 *
 *     client → [TPROXY] → listener → session of the client's address → seal → its socket → server
 *     client ← socket bound to the remote's address ← open ← the session's socket ← server
 *
 * A session is one client address and port, whomever it talks to (endpoint-independent mapping), and whoever answers may
 * (endpoint-independent filtering): full cone, RFC 4787.
 */
import type { EventHandler } from '../engine/reactor.js';
import type { Deadlined } from '../engine/timers.js';
import { SyscallError } from '../errors.js';
import { EPOLLIN } from '../linux/epoll.js';
import { EAGAIN, EMFILE, EMSGSIZE, ENFILE, errnoName } from '../linux/errno.js';
import type { ReceiveBatch } from '../linux/messages.js';
import { Block } from '../linux/memory.js';
import type { Endpoint } from '../linux/sockaddr.js';
import { IP_ORIGDSTADDR, IPV6_ORIGDSTADDR, lostDatagrams, SOL_IP, SOL_IPV6 } from '../linux/sockopt.js';
import type { Access } from './access.js';
import { AddressTable } from './address-table.js';
import { DatagramQueue } from './datagram-queue.js';
import { LocalAddresses } from './local-addresses.js';
import { RawReply } from './raw-reply.js';
import { Recency } from './recency.js';
import { ReplySockets } from './reply-sockets.js';
import type { Upstreams } from './upstream.js';
import { endpointAt, sockaddrPort, socksSize, writeSockaddr, writeSocksBefore } from './udp-address.js';
import {
  batchSize,
  noteSize,
  packetOffset,
  plainOffset,
  setLimits,
  type UdpContext,
  type UdpLimits,
} from './udp-context.js';
import { drop } from './udp-drops.js';
import { countLosses, forLatelyUsed, type Receiver } from './udp-losses.js';
import { UdpSession, type Voice } from './udp-session.js';

/** How many full batches one event may move before the other sockets get their turn. */
const batchesPerEvent = 4;
const sweepMs = 1000;
/** A server that has answered anybody so recently is not silent. */
const silentServerMs = 3000;

export interface UdpRedirParts {
  /** What is known of the servers over UDP. */
  upstreams: Upstreams;
  /** And over TCP, where that is relayed, too: who cannot be reached there is down. */
  tcpUpstreams: Upstreams;
  /** How a server is spoken to. */
  accessOf: (server: Endpoint) => Access;
  maxReplySockets: number;
}

export class UdpRedir implements Deadlined {
  wheelBucket = -1;
  wheelIndex = 0;
  readonly context: UdpContext;
  private readonly upstreams: Upstreams;
  private readonly tcpUpstreams: Upstreams;
  private readonly accessOf: UdpRedirParts['accessOf'];
  private readonly sessions: AddressTable<UdpSession>;
  private readonly recency = new Recency<UdpSession>();
  private readonly replies: ReplySockets;
  private readonly raw: RawReply;
  /** Who asks fears a loop. */
  private readonly locals = new LocalAddresses(true);
  private readonly voices = new Map<string, Voice>();
  /** Datagrams of clients, received where their packets' beginnings fit before them. */
  private readonly plain: ReceiveBatch;
  private readonly packets: ReceiveBatch;
  /** sockaddr of the remote that an answer is from. */
  private readonly remote = Block.allocate(32);
  readonly queue: DatagramQueue<UdpSession>;
  private readonly listeners: UdpRedirListener[] = [];
  private sweepDueMs = 0;

  constructor(context: UdpContext, { upstreams, tcpUpstreams, accessOf, maxReplySockets }: UdpRedirParts) {
    this.context = context;
    this.upstreams = upstreams;
    this.tcpUpstreams = tcpUpstreams;
    this.accessOf = accessOf;
    this.sessions = new AddressTable(context.maxSessions);
    this.raw = new RawReply(context.socketOptions.mark);
    this.replies = new ReplySockets(context, maxReplySockets, this.raw.isAllowed);
    this.plain = context.datagrams.batch(plainOffset, { names: true, control: true });
    this.packets = context.datagrams.batch(packetOffset, { names: false, control: false });
    this.queue = new DatagramQueue(context.datagrams.block);
  }

  /** Serves the listening socket `fd`, bound to `port`; sessions that begin there send with this type of service. */
  listen(fd: number, port: number, tos: number): void {
    const { reactor } = this.context;
    const listener = new UdpRedirListener(this, fd, port, tos);
    this.listeners.push(listener);
    reactor.add(fd, listener, EPOLLIN);
    if (this.wheelBucket >= 0) return;
    this.sweepDueMs = reactor.nowMs + sweepMs;
    reactor.timers.set(this);
  }

  // ---- from the client to the server

  onListener(listener: UdpRedirListener): void {
    const { datagrams, log } = this.context;
    for (let round = 0; round < batchesPerEvent; round++) {
      const count = this.plain.receive(listener.fd, batchSize);
      if (count < 0) {
        if (-count !== EAGAIN) log.limited('udp-receive', `udp: recvmmsg: ${errnoName(-count)}`);
        return;
      }
      datagrams.used(count);
      for (let slot = 0; slot < count; slot++) this.take(listener, slot);
      for (let i = 0; i < this.queue.senderCount; i++) this.flush(this.queue.senders[i]!);
      this.queue.senderCount = 0;
      if (count < batchSize) return;
    }
  }

  private take(listener: UdpRedirListener, slot: number): void {
    const { plain } = this;
    const known =
      plain.hasControl(slot, SOL_IP, IP_ORIGDSTADDR) || plain.hasControl(slot, SOL_IPV6, IPV6_ORIGDSTADDR);
    const target = plain.controlData(slot);
    if (!known || this.isForUs(listener, target)) return this.refuse(slot);
    const session = this.sessionOf(listener, slot);
    if (session === undefined) return;

    const block = this.context.datagrams.block;
    const payload = this.context.datagrams.slotAt(slot) + plainOffset;
    const from = writeSocksBefore(plain.controlBytes, target, block.bytes, payload);
    const { sealer } = session.packets;
    sealer.seal(block, from, payload + plain.lengthOf(slot));
    if (this.context.mtu > 0) noteSize(this.context, sealer.end - sealer.start, session.server);
    this.queue.put(session, slot, sealer.start, sealer.end, 0);
  }

  /** A datagram to the listener itself, or one that a REDIRECT rule has rewritten to it: to relay it would be a loop. */
  private isForUs(listener: UdpRedirListener, target: number): boolean {
    const { controlBytes } = this.plain;
    if (sockaddrPort(controlBytes, target) !== listener.port) return false;
    return this.locals.has(controlBytes, target, this.context.reactor.nowMs);
  }

  private refuse(slot: number): void {
    const { counters, log } = this.context;
    counters.count('no-destination');
    if (!log.isDue('no-destination')) return;
    const client = endpointAt(this.plain.names.bytes, this.plain.nameAt(slot));
    log.limited(
      'no-destination',
      `udp: a datagram from ${client} has no destination but this port: UDP needs a TPROXY rule, REDIRECT is for TCP`,
    );
  }

  private sessionOf(listener: UdpRedirListener, slot: number): UdpSession | undefined {
    const { nowMs } = this.context.reactor;
    const { names } = this.plain;
    const at = this.plain.nameAt(slot);
    const place = this.sessions.findSockaddr(names.bytes, at);
    if (place >= 0) {
      const session = this.sessions.at(place)!;
      this.recency.touch(session, nowMs);
      return session;
    }
    if (this.isLoop(slot)) return undefined;
    if (this.recency.size >= this.context.maxSessions) this.evict(this.recency.oldest!);
    const session = this.open(names.bytes, at, listener.tos);
    if (session === undefined) return undefined;
    this.sessions.findSockaddr(names.bytes, at);
    session.place = this.sessions.insert(session);
    this.recency.add(session, nowMs);
    if (this.context.log.verbose) {
      const target = endpointAt(this.plain.controlBytes, this.plain.controlData(slot));
      this.context.log.debug(`udp: ${session.client} -> ${target} by ${session.server}`);
    }
    return session;
  }

  /** Our own packet to a server, that rules have brought back: to relay it would make another, for ever. */
  private isLoop(slot: number): boolean {
    const { controlBytes, names } = this.plain;
    const target = this.plain.controlData(slot);
    const client = this.plain.nameAt(slot);
    const server = endpointAt(controlBytes, target);
    if (!this.upstreams.has(server)) return false;
    if (!this.locals.has(names.bytes, client, this.context.reactor.nowMs)) return false;
    this.context.counters.count('no-destination');
    this.context.log.limited(
      'udp-loop',
      `udp: refused ${endpointAt(names.bytes, client)}: our own packet to the server ${server} came back: let marked traffic out first`,
    );
    return true;
  }

  private open(bytes: Buffer, at: number, tos: number): UdpSession | undefined {
    const { counters, log } = this.context;
    const server = this.chooseServer();
    if (server === undefined) {
      counters.count('unreachable');
      log.limited('udp-no-server', 'udp: no server address is known yet: datagrams are dropped');
      return undefined;
    }
    const client = endpointAt(bytes, at);
    const session = new UdpSession(this, client, server, this.accessOf(server), this.voiceOf(server), tos);
    session.setClientName(bytes, at);
    for (;;) {
      try {
        session.connect();
        return session;
      } catch (error) {
        if (!(error instanceof SyscallError)) throw error;
        session.close();
        const full = error.errno === EMFILE || error.errno === ENFILE;
        const oldest = this.recency.oldest;
        if (full && oldest !== undefined) {
          this.evict(oldest);
          continue;
        }
        counters.count(full ? 'no-socket' : 'unreachable');
        if (!full) this.failed(session, error.message);
        log.limited('udp-socket', `udp: no socket for ${session.client}: ${error.message}`);
        return undefined;
      }
    }
  }

  private voiceOf(server: Endpoint): Voice {
    const known = this.voices.get(String(server));
    if (known !== undefined) return known;
    const voice = { heardMs: -Infinity };
    this.voices.set(String(server), voice);
    return voice;
  }

  private chooseServer(): Endpoint | undefined {
    const { nowMs } = this.context.reactor;
    const order = this.upstreams.order(nowMs);
    const first = order[0];
    if (first === undefined || !this.upstreams.isHealthy(first, nowMs)) return first;
    return order.find((server) => this.tcpUpstreams.isHealthy(server, nowMs)) ?? first;
  }

  /** At the cap the session that was silent for longest makes room. */
  private evict(session: UdpSession): void {
    this.flush(session);
    this.close(session);
  }

  private flush(session: UdpSession): void {
    if (!session.hasQueued) return;
    const { counters, log } = this.context;
    const lost = session.flush();
    if (lost === 0) return;
    const { failure } = session;
    counters.count(failure === EMSGSIZE ? 'too-large' : 'unsent', lost);
    if (!log.isDue('udp-send')) return;
    log.limited('udp-send', `udp: ${session.client} -> ${session.server}: ${errnoName(failure)}: dropped`);
  }

  // ---- from the server to the client

  onAnswer(session: UdpSession): void {
    const { datagrams } = this.context;
    for (let round = 0; round < batchesPerEvent; round++) {
      const slots = session.slots;
      const count = this.packets.receive(session.fd, slots);
      if (count < 0) return this.answerFailed(session, -count);
      datagrams.used(count);
      this.deliver(session, count);
      session.received(count);
      if (count < slots || session.fd < 0) return;
      if (slots < batchSize) return; // a small look that was full: a larger one next turn
    }
  }

  private deliver(session: UdpSession, count: number): void {
    const { datagrams, reactor, counters } = this.context;
    const { block, sends } = datagrams;
    const { opener } = session.packets;
    let fd = -1;
    let accepted = false;
    for (let slot = 0; slot < count; slot++) {
      const start = datagrams.slotAt(slot) + packetOffset;
      const verdict = opener.open(block, start, start + this.packets.lengthOf(slot), reactor.nowMs);
      if (verdict !== 'accepted') {
        drop(this.context, verdict, opener, () => `server ${session.server}`);
        continue;
      }
      accepted = true;
      const { from, to } = opener;
      const size = writeSockaddr(block.bytes, from, this.remote.bytes, 0);
      if (size !== session.nameSize) {
        counters.count('misaddressed');
        continue;
      }
      const payload = from + socksSize(block.bytes, from);
      const reply = this.replies.find(this.remote.bytes, 0);
      if (reply === undefined) {
        this.refuseName(session);
        continue;
      }
      if (reply.fd < 0) {
        this.sendRaw(session, payload, to);
        continue;
      }
      if (reply.fd !== fd) {
        if (fd >= 0) this.sendReplies(session, fd);
        fd = reply.fd;
      }
      sends.add(block.at(payload, to - payload), to - payload, session.name.address, session.nameSize);
    }
    if (fd >= 0) this.sendReplies(session, fd);
    if (!accepted) return;
    session.answered();
    this.recency.touch(session, reactor.nowMs);
    if (session.healthy) return;
    session.healthy = true;
    this.upstreams.succeeded(session.server);
  }

  private refuseName(session: UdpSession): void {
    const { counters, log } = this.context;
    counters.count('misaddressed');
    if (!log.isDue('udp-name')) return;
    const name = endpointAt(this.remote.bytes, 0);
    log.limited(
      'udp-name',
      `udp: server ${session.server} answers as ${name}, which is this host's or nobody's address: dropped`,
    );
  }

  private sendReplies(session: UdpSession, fd: number): void {
    const { datagrams, counters, log } = this.context;
    const lost = datagrams.sends.send(fd);
    if (lost === 0) return;
    counters.count('unsent', lost);
    if (!log.isDue('udp-reply')) return;
    log.limited('udp-reply', `udp: to ${session.client}: ${errnoName(datagrams.sends.failure)}: dropped`);
  }

  private sendRaw(session: UdpSession, from: number, to: number): void {
    const { datagrams, counters, log } = this.context;
    const number = this.raw.send(datagrams.block, from, to, this.remote.bytes, session.name.bytes);
    if (number === 0) return;
    counters.count('unsent');
    if (!log.isDue('udp-raw')) return;
    log.limited('udp-raw', `udp: raw socket to ${session.client}: ${errnoName(number)}: dropped`);
  }

  /** An ICMP error in answer to what we sent: the server, or the way to it, is down. The session stays with its server. */
  private answerFailed(session: UdpSession, number: number): void {
    if (number === EAGAIN) return;
    session.healthy = false;
    this.failed(session, errnoName(number));
  }

  /**
   * It goes on sending, and has heard nothing for some time: told once. Where the server answers others, it is the target that
   * does not.
   */
  onSilence(session: UdpSession): void {
    const { log, reactor } = this.context;
    if (reactor.nowMs - session.voice.heardMs < silentServerMs) return;
    session.healthy = false;
    if (this.upstreams.silent(session.server, reactor.nowMs))
      log.error(
        `udp: server ${session.server}: no answers: wrong password or method, down, or it relays no UDP`,
      );
  }

  private failed(session: UdpSession, reason: string): void {
    const { log, reactor } = this.context;
    const news = this.upstreams.failed(session.server, reactor.nowMs);
    if (news) log.error(`udp: server ${session.server}: ${reason}`);
  }

  // ---- the end

  /** Sessions whose server is no more, because its name has another address by now, end: their clients' next datagrams begin new ones. */
  onServers(): void {
    for (let session = this.recency.oldest; session !== undefined;) {
      const next = session.newer as UdpSession | undefined;
      const { access, server } = session;
      if (!this.upstreams.has(server, (other) => this.accessOf(other).isLike(access))) this.close(session);
      session = next;
    }
  }

  get size(): number {
    return this.recency.size;
  }

  /** After a reload. */
  changeLimits(limits: UdpLimits): void {
    setLimits(this.context, limits, this.sessions.capacity);
    while (this.recency.size > this.context.maxSessions) this.evict(this.recency.oldest!);
  }

  close(session: UdpSession): void {
    countLosses(this.context, session, 'a session');
    this.sessions.remove(session.place);
    this.recency.remove(session);
    session.close();
  }

  dueMs(): number {
    return this.sweepDueMs;
  }

  onDeadline(nowMs: number): void {
    for (const listener of this.listeners) countLosses(this.context, listener, 'the listener');
    forLatelyUsed(this.recency, (session) => countLosses(this.context, session, 'a session'));
    this.recency.expire(nowMs - this.context.timeoutMs, (session) => this.close(session));
    this.replies.expire(nowMs);
    this.sweepDueMs = nowMs + sweepMs;
    this.context.reactor.timers.set(this);
  }
}

class UdpRedirListener implements EventHandler, Receiver {
  lostBefore: number;
  readonly fd: number;
  readonly port: number;
  readonly tos: number;
  private readonly redir: UdpRedir;

  constructor(redir: UdpRedir, fd: number, port: number, tos: number) {
    this.redir = redir;
    this.fd = fd;
    this.lostBefore = lostDatagrams(fd); // it may be older than this process
    this.port = port;
    this.tos = tos;
  }

  onEvents(): void {
    this.redir.onListener(this);
  }
}
