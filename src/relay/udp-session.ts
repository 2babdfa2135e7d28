/** One client address of ss-redir over UDP: its socket to the server, and what it has to send in the present batch. */
import type { EventHandler } from '../engine/reactor.js';
import { SyscallError } from '../errors.js';
import { connectUdp } from '../linux/datagram.js';
import { EPOLLIN } from '../linux/epoll.js';
import { EAGAIN, ECONNREFUSED, EMSGSIZE } from '../linux/errno.js';
import { close } from '../linux/libc.js';
import { Block } from '../linux/memory.js';
import type { Endpoint } from '../linux/sockaddr.js';
import { localEndpoint } from '../linux/socket.js';
import type { ClientPacketSession } from '../protocol/packet.js';
import type { Sender } from './datagram-queue.js';
import type { Used } from './recency.js';
import { copySockaddr } from './udp-address.js';
import { batchSize } from './udp-context.js';
import type { UdpRedir } from './udp-redir.js';

/** A server that has said nothing for so long, though asked, may be waiting behind another way out. */
const silentMs = 3000;

export class UdpSession implements EventHandler, Used, Sender {
  lastUsedMs = 0;
  newer: Used | undefined = undefined;
  older: Used | undefined = undefined;
  place = -1;
  /** Connected to the server; -1 before and after. */
  fd = -1;
  /** How many datagrams to look for at once. */
  slots = 1;
  /** sockaddr of the client. */
  readonly name = Block.allocate(28);
  nameSize = 0;
  readonly client: Endpoint;
  readonly server: Endpoint;
  readonly packets: ClientPacketSession;
  /** errno of the last datagram that `flush` could not send. */
  failure = 0;
  private readonly redir: UdpRedir;
  private readonly tos: number;
  firstQueued = -1;
  lastQueued = -1;
  /** Answered since it was last thought to be down. */
  healthy = false;
  private answeredMs: number;
  private checkedMs: number;

  constructor(
    redir: UdpRedir,
    client: Endpoint,
    server: Endpoint,
    packets: ClientPacketSession,
    tos: number,
  ) {
    this.redir = redir;
    this.client = client;
    this.server = server;
    this.packets = packets;
    this.tos = tos;
    this.answeredMs = redir.context.reactor.nowMs;
    this.checkedMs = this.answeredMs;
  }

  setClientName(bytes: Buffer, at: number): void {
    this.nameSize = copySockaddr(bytes, at, this.name.bytes, 0);
  }

  /** @throws {SyscallError} without a descriptor, or without a way to the server. */
  connect(): void {
    const { reactor, socketOptions } = this.redir.context;
    this.fd = connectUdp(this.server, { ...socketOptions, tos: this.tos });
    reactor.add(this.fd, this, EPOLLIN);
  }

  get hasQueued(): boolean {
    return this.firstQueued >= 0;
  }

  /** Sends what is queued. Returns how many datagrams were lost; `failure` says why. */
  flush(): number {
    this.checkRoute();
    let lost = this.send();
    if (lost > 0 && this.needsNewSocket() && this.reconnect()) lost = this.send();
    this.firstQueued = this.lastQueued = -1;
    return lost;
  }

  private send(): number {
    const { sends } = this.redir.context.datagrams;
    this.redir.queue.take(this, sends);
    const lost = sends.send(this.fd);
    this.failure = sends.failure;
    return lost;
  }

  /** A socket keeps the source address it was connected with: when this host has lost that, every send fails from then on. */
  private needsNewSocket(): boolean {
    return this.failure !== EAGAIN && this.failure !== EMSGSIZE && this.failure !== ECONNREFUSED;
  }

  private reconnect(): boolean {
    const { reactor } = this.redir.context;
    reactor.forget(this.fd);
    close(this.fd);
    this.fd = -1;
    try {
      this.connect();
      return true;
    } catch (error) {
      if (error instanceof SyscallError) return false;
      throw error;
    }
  }

  /** Where a second uplink has taken over, sends do not fail, but answers do not come: ask for the way anew. */
  private checkRoute(): void {
    const { nowMs } = this.redir.context.reactor;
    if (nowMs - this.answeredMs < silentMs || nowMs - this.checkedMs < silentMs) return;
    this.checkedMs = nowMs;
    try {
      const { socketOptions } = this.redir.context;
      const probe = connectUdp(this.server, { ...socketOptions, tos: this.tos });
      const source = localEndpoint(probe)?.host;
      close(probe);
      if (source !== undefined && source !== localEndpoint(this.fd)?.host) this.reconnect();
    } catch (error) {
      if (!(error instanceof SyscallError)) throw error; // no way at present: the send will tell
    }
  }

  onEvents(): void {
    this.redir.onAnswer(this);
  }

  received(count: number): void {
    this.answeredMs = this.redir.context.reactor.nowMs;
    if (count >= this.slots) this.slots = Math.min(batchSize, this.slots * 2);
    else if (count * 4 < this.slots) this.slots = Math.max(1, this.slots >> 1);
  }

  close(): void {
    if (this.fd < 0) return;
    this.redir.context.reactor.forget(this.fd);
    close(this.fd);
    this.fd = -1;
  }
}
