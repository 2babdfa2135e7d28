/** One client session of ss-server over UDP: where its answers go, and the sockets that its targets see. */
import type { EventHandler } from '../engine/reactor.js';
import { openUdp } from '../linux/datagram.js';
import { EPOLLIN } from '../linux/epoll.js';
import { close } from '../linux/libc.js';
import { Block } from '../linux/memory.js';
import { AF_INET } from '../linux/sockaddr.js';
import type { PacketSealer, ServerPacketSession } from '../protocol/packet.js';
import type { Sender } from './datagram-queue.js';
import type { Used } from './recency.js';
import { batchSize } from './udp-context.js';
import type { Receiver } from './udp-losses.js';
import type { UdpServer, UdpServerListener } from './udp-server.js';

const maxNameSize = 28; // sockaddr_in6
const nothing = Buffer.alloc(0);

export class UdpServerSession implements Used {
  lastUsedMs = 0;
  newer: Used | undefined = undefined;
  older: Used | undefined = undefined;
  /** 2017: in the table of client addresses. */
  place = -1;
  /** 2022: what the codec keeps. */
  readonly packets: ServerPacketSession<UdpServerSession> | undefined;
  readonly sealer: PacketSealer;
  /** Who is to get the answers, by which listener, and from which of our addresses: as the last valid packet has it. */
  readonly client = Block.allocate(maxNameSize);
  clientSize = 0;
  listener: UdpServerListener;
  /** Packet info as it was received. */
  readonly source = Buffer.alloc(20);
  hasSource = false;
  /** The last name that was asked for, as in its packet, and the sockaddr that it stands for. */
  lastTarget: Buffer = nothing;
  private lastName: Uint8Array = nothing;
  private lastNameUntilMs = 0;
  closed = false;
  private outlet4: UdpOutlet | undefined;
  private outlet6: UdpOutlet | undefined;
  private readonly server: UdpServer;

  constructor(
    server: UdpServer,
    listener: UdpServerListener,
    sealer: PacketSealer,
    packets: ServerPacketSession<UdpServerSession> | undefined,
  ) {
    this.server = server;
    this.listener = listener;
    this.sealer = sealer;
    this.packets = packets;
  }

  get user(): number {
    return this.packets === undefined ? -1 : this.packets.user;
  }

  setClient(names: Buffer, at: number): void {
    this.clientSize = names[at] === AF_INET ? 16 : 28;
    const { bytes } = this.client;
    for (let i = 0; i < this.clientSize; i++) bytes[i] = names[at + i]!;
  }

  setSource(control: Buffer, at: number, size: number): void {
    for (let i = 0; i < size; i++) this.source[i] = control[at + i]!;
  }

  /** @throws {SyscallError} without a descriptor, or where this host has no IPv6. */
  outlet(ipv6: boolean): UdpOutlet {
    const known = ipv6 ? this.outlet6 : this.outlet4;
    if (known !== undefined) return known;
    const { context } = this.server;
    const outlet = new UdpOutlet(this.server, this, openUdp(ipv6, context.socketOptions));
    context.reactor.add(outlet.fd, outlet, EPOLLIN);
    if (ipv6) this.outlet6 = outlet;
    else this.outlet4 = outlet;
    return outlet;
  }

  isLastName(bytes: Buffer, from: number, to: number, nowMs: number): boolean {
    const size = this.lastName.length;
    if (size !== to - from || nowMs >= this.lastNameUntilMs) return false;
    for (let i = 0; i < size; i++) if (bytes[from + i] !== this.lastName[i]) return false;
    return true;
  }

  setLastName(
    bytes: Buffer,
    from: number,
    to: number,
    target: Buffer,
    at: number,
    size: number,
    untilMs: number,
  ): void {
    this.lastName = Uint8Array.from(bytes.subarray(from, to));
    this.lastTarget = Buffer.from(target.subarray(at, at + size));
    this.lastNameUntilMs = untilMs;
  }

  forOutlets(each: (outlet: UdpOutlet) => void): void {
    if (this.outlet4 !== undefined) each(this.outlet4);
    if (this.outlet6 !== undefined) each(this.outlet6);
  }

  /** @param before is called for each outlet that is closed. */
  close(before: (outlet: UdpOutlet) => void): void {
    this.closed = true;
    this.forOutlets((outlet) => {
      before(outlet);
      outlet.close();
    });
    this.outlet4 = this.outlet6 = undefined;
    if (this.packets !== undefined) this.packets.state = undefined;
  }
}

/** The socket of one family by which a session talks to all its targets. */
export class UdpOutlet implements EventHandler, Sender, Receiver {
  lostBefore = 0;
  firstQueued = -1;
  lastQueued = -1;
  readonly fd: number;
  readonly session: UdpServerSession;
  /** How many datagrams to look for at once. */
  slots = 1;
  private readonly server: UdpServer;

  constructor(server: UdpServer, session: UdpServerSession, fd: number) {
    this.server = server;
    this.session = session;
    this.fd = fd;
  }

  onEvents(): void {
    this.server.onOutlet(this);
  }

  received(count: number): void {
    if (count >= this.slots) this.slots = Math.min(batchSize, this.slots * 2);
    else if (count * 4 < this.slots) this.slots = Math.max(1, this.slots >> 1);
  }

  close(): void {
    this.server.context.reactor.forget(this.fd);
    close(this.fd);
  }
}
