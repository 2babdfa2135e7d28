/**
 * ss-server over UDP. A packet's way, and the way of its answer:
 *
 *     client → listener → open → session → its socket of the target's family → target
 *     client ← listener ← seal ← session ← that socket ← whoever answers (full cone)
 *
 * 2017: a session is a client address. 2022: it is what the packets say, and moves with its client. Either way it has one
 * socket a family, so that all targets see it at one address and port.
 */
import { randomInt } from 'node:crypto';
import type { EventHandler } from '../engine/reactor.js';
import type { Deadlined } from '../engine/timers.js';
import { ProtocolError, SyscallError } from '../errors.js';
import { EPOLLIN } from '../linux/epoll.js';
import { EAGAIN, EMFILE, EMSGSIZE, ENFILE, errnoName } from '../linux/errno.js';
import { nameStride, packetInfoSize, type ReceiveBatch, SendControl } from '../linux/messages.js';
import { AF_INET6, SockaddrBlock } from '../linux/sockaddr.js';
import { IP_PKTINFO, IPV6_PKTINFO, lostDatagrams, SOL_IP, SOL_IPV6 } from '../linux/sockopt.js';
import { readAddress } from '../protocol/address.js';
import type { ServerPackets } from '../protocol/packet.js';
import { clientShares } from '../protocol/packets.js';
import { AddressTable } from './address-table.js';
import { DatagramQueue } from './datagram-queue.js';
import type { Names } from './names.js';
import { Recency } from './recency.js';
import {
  endpointAt,
  networkHash,
  sockaddrPort,
  socksSize,
  writeSockaddr,
  writeSocksBefore,
} from './udp-address.js';
import {
  batchSize,
  noteSize,
  packetOffset,
  plainOffset,
  setLimits,
  type UdpContext,
  type UdpLimits,
} from './udp-context.js';
import type { UserCounters } from './user-counters.js';
import { drop } from './udp-drops.js';
import { countLosses, forLatelyUsed, type Receiver } from './udp-losses.js';
import { UdpNames } from './udp-names.js';
import { type UdpOutlet, UdpServerSession } from './udp-server-session.js';

/** How many full batches one event may move before the other sockets get their turn. */
const batchesPerEvent = 4;
const sweepMs = 1000;
/** A name's answer is looked at again, though its session goes on asking for it. */
const sameNameMs = 5000;

export interface UdpServerParts {
  packets: ServerPackets<UdpServerSession>;
  names: Names;
  userCounters: UserCounters | undefined;
}

export class UdpServer implements Deadlined {
  wheelBucket = -1;
  wheelIndex = 0;
  readonly context: UdpContext;
  private codec: ServerPackets<UdpServerSession>;
  private readonly names: UdpNames;
  private userCounters: UserCounters | undefined;
  /** 2017: by client address. */
  private readonly byClient: AddressTable<UdpServerSession>;
  private readonly recency = new Recency<UdpServerSession>();
  private readonly packets: ReceiveBatch;
  /** What targets say, received where a packet's beginning fits before it. */
  private readonly plain: ReceiveBatch;
  private readonly queue: DatagramQueue<UdpOutlet>;
  private readonly sockaddr = new SockaddrBlock();
  private readonly source4 = new SendControl('ipv4');
  private readonly source6 = new SendControl('ipv6');
  private readonly listeners: UdpServerListener[] = [];
  private sweepDueMs = 0;
  /** Of the packet that is being opened. */
  private slot = 0;
  private readonly seed = randomInt(2 ** 32);

  constructor(context: UdpContext, { packets, names, userCounters }: UdpServerParts) {
    this.context = context;
    this.codec = packets;
    this.userCounters = userCounters;
    this.names = new UdpNames(context, names);
    this.byClient = new AddressTable(context.maxSessions);
    this.packets = context.datagrams.batch(packetOffset, { names: true, control: true });
    this.plain = context.datagrams.batch(plainOffset, { names: true, control: false });
    this.queue = new DatagramQueue(context.datagrams.block);
  }

  /** Serves the listening socket `fd`. */
  listen(fd: number, ipv6: boolean): void {
    const { reactor } = this.context;
    const listener = new UdpServerListener(this, fd, ipv6);
    this.listeners.push(listener);
    reactor.add(fd, listener, EPOLLIN);
    if (this.wheelBucket >= 0) return;
    this.sweepDueMs = reactor.nowMs + sweepMs;
    reactor.timers.set(this);
  }

  // ---- from the client to the target

  onListener(listener: UdpServerListener): void {
    const { datagrams, log } = this.context;
    const { queue } = this;
    for (let round = 0; round < batchesPerEvent; round++) {
      const count = this.packets.receive(listener.fd, batchSize);
      if (count < 0) {
        if (-count !== EAGAIN) log.limited('udp-receive', `udp: recvmmsg: ${errnoName(-count)}`);
        return;
      }
      datagrams.used(count);
      for (let slot = 0; slot < count; slot++) this.take(listener, slot);
      for (let i = 0; i < queue.senderCount; i++) this.flush(queue.senders[i]!);
      queue.senderCount = 0;
      if (count < batchSize) return;
    }
  }

  private take(listener: UdpServerListener, slot: number): void {
    const { datagrams, reactor } = this.context;
    const { block } = datagrams;
    const start = datagrams.slotAt(slot) + packetOffset;
    const size = this.packets.lengthOf(slot);
    this.slot = slot;
    const verdict = this.codec.open(block, start, start + size, reactor.nowMs);
    if (verdict !== 'accepted') {
      const name = this.packets.nameAt(slot);
      return drop(this.context, verdict, this.codec, () =>
        endpointAt(this.packets.names.bytes, name).toString(),
      );
    }
    const session = this.sessionOf(listener, slot);
    if (session === undefined) return;
    session.setClient(this.packets.names.bytes, this.packets.nameAt(slot));
    this.noteSource(listener, session, slot);

    const { from, to } = this.codec;
    const payload = from + socksSize(block.bytes, from);
    this.userCounters?.add(session.user, to - payload, 0);
    const nameSize = this.targetOf(session, slot, from, payload, to);
    if (nameSize === 0) return;
    const outlet = this.outletOf(session, slot);
    if (outlet !== undefined) this.queue.put(outlet, slot, payload, to, nameSize);
  }

  /** Whose share of the codec's sessions the packet would take that is being opened. */
  clientShare(): number {
    return networkHash(this.packets.names.bytes, this.packets.nameAt(this.slot), this.seed) % clientShares;
  }

  /** 2022: the codec knows. 2017: by the address that the packet is from. */
  private sessionOf(listener: UdpServerListener, slot: number): UdpServerSession | undefined {
    const { nowMs } = this.context.reactor;
    const { session: packetSession, sealer } = this.codec;
    const names = this.packets.names.bytes;
    const at = this.packets.nameAt(slot);
    if (packetSession === undefined) {
      const place = this.byClient.findSockaddr(names, at);
      if (place >= 0) return this.touch(this.byClient.at(place)!, nowMs);
    } else if (packetSession.state !== undefined) {
      return this.touch(packetSession.state, nowMs);
    }
    if (this.recency.size >= this.context.maxSessions) this.evict();
    const session = new UdpServerSession(this, listener, packetSession?.sealer ?? sealer!, packetSession);
    if (packetSession === undefined) {
      this.byClient.findSockaddr(names, at);
      session.place = this.byClient.insert(session);
    } else {
      packetSession.state = session;
    }
    this.recency.add(session, nowMs);
    this.userCounters?.connected(session.user);
    if (this.context.log.verbose) this.context.log.debug(`udp: new session of ${endpointAt(names, at)}`);
    return session;
  }

  private touch(session: UdpServerSession, nowMs: number): UdpServerSession {
    this.recency.touch(session, nowMs);
    return session;
  }

  private noteSource(listener: UdpServerListener, session: UdpServerSession, slot: number): void {
    session.listener = listener;
    const { packets } = this;
    const { ipv6 } = listener;
    const known = packets.hasControl(slot, ipv6 ? SOL_IPV6 : SOL_IP, ipv6 ? IPV6_PKTINFO : IP_PKTINFO);
    session.hasSource = known;
    if (known) session.setSource(packets.controlBytes, packets.controlData(slot), packetInfoSize(ipv6));
  }

  /** Writes the sockaddr of the target to the slot's name. Returns its size, 0 when it cannot be sent, or not now. */
  private targetOf(
    session: UdpServerSession,
    slot: number,
    from: number,
    payload: number,
    to: number,
  ): number {
    const { bytes } = this.context.datagrams.block;
    const names = this.queue.names.bytes;
    const at = slot * nameStride;
    const size =
      writeSockaddr(bytes, from, names, at) || this.namedTarget(session, names, at, from, payload, to);
    if (size === 0 || sockaddrPort(names, at) !== 0) return size;
    this.context.counters.count('misaddressed');
    return 0;
  }

  private namedTarget(
    session: UdpServerSession,
    names: Buffer,
    at: number,
    from: number,
    payload: number,
    to: number,
  ): number {
    const { datagrams, reactor, counters, log } = this.context;
    const { bytes } = datagrams.block;
    if (session.isLastName(bytes, from, payload, reactor.nowMs)) {
      session.lastTarget.copy(names, at);
      return session.lastTarget.length;
    }
    try {
      const { host, port, endpoint } = readAddress(bytes, from, payload)!;
      const found = endpoint ?? this.names.find(session, host, port, bytes, payload, to);
      if (found === undefined) return 0;
      const size = this.sockaddr.write(found);
      this.sockaddr.contents.copy(names, at, 0, size);
      session.setLastName(bytes, from, payload, names, at, size, reactor.nowMs + sameNameMs);
      return size;
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      counters.count('misaddressed');
      log.limited('udp-misaddressed', `udp: ${error.message}`);
      return 0;
    }
  }

  private outletOf(session: UdpServerSession, slot: number): UdpOutlet | undefined {
    const ipv6 = this.queue.names.bytes[slot * nameStride] === AF_INET6;
    for (;;) {
      try {
        return session.outlet(ipv6);
      } catch (error) {
        if (!(error instanceof SyscallError)) throw error;
        const full = error.errno === EMFILE || error.errno === ENFILE;
        if (full && this.recency.oldest !== session) {
          this.evict();
          continue;
        }
        this.context.counters.count(full ? 'no-socket' : 'unreachable');
        this.context.log.limited('udp-socket', `udp: no socket for a session: ${error.message}`);
        return undefined;
      }
    }
  }

  private flush(outlet: UdpOutlet): void {
    if (outlet.firstQueued < 0) return;
    const { datagrams, counters, log } = this.context;
    this.queue.take(outlet, datagrams.sends);
    outlet.firstQueued = outlet.lastQueued = -1;
    const lost = datagrams.sends.send(outlet.fd);
    if (lost === 0) return;
    const { failure } = datagrams.sends;
    counters.count(failure === EMSGSIZE ? 'too-large' : 'unsent', lost);
    log.limited('udp-send', `udp: to a target: ${errnoName(failure)}: dropped`);
  }

  // ---- from the target to the client

  onOutlet(outlet: UdpOutlet): void {
    const { datagrams } = this.context;
    for (let round = 0; round < batchesPerEvent; round++) {
      const { slots } = outlet;
      const count = this.plain.receive(outlet.fd, slots);
      if (count < 0) return; // EAGAIN, or an error about one datagram that the kernel tells once
      datagrams.used(count);
      this.answer(outlet, count);
      outlet.received(count);
      if (count < slots || slots < batchSize) return; // a small look that was full: a larger one next turn
    }
  }

  private answer({ session }: UdpOutlet, count: number): void {
    const { datagrams, reactor, counters, log } = this.context;
    const { block, sends } = datagrams;
    const { sealer, client, clientSize, listener } = session;
    let bytes = 0;
    for (let slot = 0; slot < count; slot++) {
      const payload = datagrams.slotAt(slot) + plainOffset;
      const from = writeSocksBefore(this.plain.names.bytes, this.plain.nameAt(slot), block.bytes, payload);
      sealer.seal(block, from, payload + this.plain.lengthOf(slot));
      const size = sealer.end - sealer.start;
      if (this.context.mtu > 0) noteSize(this.context, size, endpointAt(client.bytes, 0));
      sends.add(block.at(sealer.start, size), size, client.address, clientSize);
      bytes += this.plain.lengthOf(slot);
    }
    this.recency.touch(session, reactor.nowMs);
    this.userCounters?.add(session.user, 0, bytes);
    const lost = sends.send(listener.fd, this.controlOf(session));
    if (lost === 0) return;
    counters.count(sends.failure === EMSGSIZE ? 'too-large' : 'unsent', lost);
    if (!log.isDue('udp-answer')) return;
    log.limited('udp-answer', `udp: to ${endpointAt(client.bytes, 0)}: ${errnoName(sends.failure)}: dropped`);
  }

  /** From the address that the client has sent to: it may hear no other. */
  private controlOf(session: UdpServerSession): SendControl | undefined {
    if (!session.hasSource) return undefined;
    const { ipv6 } = session.listener;
    const control = ipv6 ? this.source6 : this.source4;
    control.setSource(ipv6, session.source, 0);
    return control;
  }

  get size(): number {
    return this.recency.size;
  }

  // ---- reload

  changeLimits(limits: UdpLimits): void {
    setLimits(this.context, limits, this.byClient.capacity);
    while (this.recency.size > this.context.maxSessions) this.evict();
  }

  /** Other keys altogether: no session goes on, since what it would say is for nobody. */
  changeKeys(packets: ServerPackets<UdpServerSession>): void {
    for (let oldest = this.recency.oldest; oldest !== undefined; oldest = this.recency.oldest)
      this.close(oldest);
    this.codec = packets;
  }

  countUsersIn(counters: UserCounters | undefined): void {
    this.userCounters = counters;
  }

  // ---- the end

  /** At the cap the session that was silent for longest makes room. */
  private evict(): void {
    this.close(this.recency.oldest!);
  }

  close(session: UdpServerSession): void {
    if (session.place >= 0) this.byClient.remove(session.place);
    this.recency.remove(session);
    session.close((outlet) => {
      this.flush(outlet);
      countLosses(this.context, outlet, 'a session');
    });
  }

  dueMs(): number {
    return this.sweepDueMs;
  }

  onDeadline(nowMs: number): void {
    const count = (receiver: Receiver): void => countLosses(this.context, receiver, 'a session');
    for (const listener of this.listeners) countLosses(this.context, listener, 'the listener');
    forLatelyUsed(this.recency, (session) => session.forOutlets(count));
    this.recency.expire(nowMs - this.context.timeoutMs, (session) => this.close(session));
    this.codec.expire(nowMs);
    this.sweepDueMs = nowMs + sweepMs;
    this.context.reactor.timers.set(this);
  }
}

export class UdpServerListener implements EventHandler, Receiver {
  lostBefore: number;
  readonly fd: number;
  readonly ipv6: boolean;
  private readonly server: UdpServer;

  constructor(server: UdpServer, fd: number, ipv6: boolean) {
    this.server = server;
    this.fd = fd;
    this.lostBefore = lostDatagrams(fd); // it may be older than this process
    this.ipv6 = ipv6;
  }

  onEvents(): void {
    this.server.onListener(this);
  }
}
