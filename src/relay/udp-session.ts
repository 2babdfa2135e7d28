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
import type { Access } from './access.js';
import type { Sender } from './datagram-queue.js';
import type { Used } from './recency.js';
import { copySockaddr } from './udp-address.js';
import { batchSize } from './udp-context.js';
import { countLosses, type Receiver } from './udp-losses.js';
import type { UdpRedir } from './udp-redir.js';

/** A server that has said nothing for so long, though asked, may be waiting behind another way out. */
const silentMs = 3000;
/** No more than this often is a socket replaced because its sends fail. */
const reconnectMs = 100;

/** When a server was last heard over UDP. */
export interface Voice {
  heardMs: number;
}

export class UdpSession implements EventHandler, Used, Sender, Receiver {
  lastUsedMs = 0;
  newer: Used | undefined = undefined;
  older: Used | undefined = undefined;
  place = -1;
  /** Connected to the server; -1 before and after. */
  fd = -1;
  lostBefore = 0;
  /** How many datagrams to look for at once. */
  slots = 1;
  /** sockaddr of the client. */
  readonly name = Block.allocate(28);
  nameSize = 0;
  readonly client: Endpoint;
  readonly server: Endpoint;
  /** How that is spoken to: what it was at the beginning. */
  readonly access: Access;
  readonly packets: ClientPacketSession;
  /** Of its server, shared by all its sessions. */
  readonly voice: Voice;
  /** errno of the last datagram that `flush` could not send. */
  failure = 0;
  private readonly redir: UdpRedir;
  private readonly tos: number;
  firstQueued = -1;
  lastQueued = -1;
  /** Answered since it was last thought to be down. */
  healthy = false;
  /** Since when an answer is waited for; -1 while nothing was sent since the last one. */
  private askedMs = -1;
  private wasSilent = false;
  private connectedMs = -Infinity;
  private allLost = false;

  constructor(
    redir: UdpRedir,
    client: Endpoint,
    server: Endpoint,
    access: Access,
    voice: Voice,
    tos: number,
  ) {
    this.redir = redir;
    this.client = client;
    this.server = server;
    this.access = access;
    this.packets = access.createPackets();
    this.voice = voice;
    this.tos = tos;
  }

  setClientName(bytes: Buffer, at: number): void {
    this.nameSize = copySockaddr(bytes, at, this.name.bytes, 0);
  }

  /** @throws {SyscallError} without a descriptor, or without a way to the server. */
  connect(): void {
    const { reactor, socketOptions } = this.redir.context;
    this.connectedMs = reactor.nowMs;
    this.fd = connectUdp(this.server, { ...socketOptions, tos: this.tos });
    reactor.add(this.fd, this, EPOLLIN);
  }

  get hasQueued(): boolean {
    return this.firstQueued >= 0;
  }

  /** Sends what is queued. Returns how many datagrams were lost; `failure` says why. */
  flush(): number {
    this.checkSilence();
    let lost = this.send();
    if (lost > 0 && this.needsNewSocket() && this.reconnect()) lost = this.send();
    this.firstQueued = this.lastQueued = -1;
    return lost;
  }

  private send(): number {
    const { sends } = this.redir.context.datagrams;
    this.redir.queue.take(this, sends);
    const count = sends.size;
    const lost = sends.send(this.fd);
    this.failure = sends.failure;
    this.allLost = lost === count;
    return lost;
  }

  /** A socket keeps the source address it was connected with: when this host has lost that, every send fails from then on. */
  private needsNewSocket(): boolean {
    const { failure } = this;
    if (!this.allLost || failure === EAGAIN || failure === EMSGSIZE || failure === ECONNREFUSED) return false;
    return this.redir.context.reactor.nowMs - this.connectedMs >= reconnectMs;
  }

  private reconnect(): boolean {
    countLosses(this.redir.context, this, 'a session');
    this.close();
    try {
      this.connect();
      return true;
    } catch (error) {
      if (error instanceof SyscallError) return false; // no way at present: the next datagram tries again
      throw error;
    }
  }

  /** Where a second uplink has taken over, sends do not fail, but answers do not come: ask for the way anew. */
  private checkSilence(): void {
    const { nowMs } = this.redir.context.reactor;
    if (this.askedMs < 0) this.askedMs = nowMs;
    if (nowMs - this.askedMs < silentMs) return;
    this.askedMs = nowMs;
    if (!this.wasSilent) this.redir.onSilence(this);
    this.wasSilent = true;
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

  /** By a packet that proved to be the server's. */
  answered(): void {
    this.askedMs = -1;
    this.wasSilent = false;
    this.voice.heardMs = this.redir.context.reactor.nowMs;
  }

  received(count: number): void {
    if (count >= this.slots) this.slots = Math.min(batchSize, this.slots * 2);
    else if (count * 4 < this.slots) this.slots = Math.max(1, this.slots >> 1);
  }

  close(): void {
    if (this.fd < 0) return;
    this.redir.context.reactor.forget(this.fd);
    close(this.fd);
    this.fd = -1;
    this.lostBefore = 0;
  }
}
