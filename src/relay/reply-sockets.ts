/**
 * Sockets that answer in the name of a remote address: bound to it, and kept, because to open one for each datagram took
 * four times as long as to send it. Where a local service owns the port, or may want it, and when there are too many remotes at
 * once, the raw socket answers instead.
 *
 * No remote has an address of this host. What a client sends to one is not proxied (fib daddr type local), so nobody was asked
 * there. A third party behind such an address could not be answered. And a server that speaks in the router's name could
 * pass for its name service, or, by a bound socket, take the datagrams of its services.
 */
import { SyscallError } from '../errors.js';
import { openReplySocket } from '../linux/datagram.js';
import { EADDRINUSE } from '../linux/errno.js';
import { close } from '../linux/libc.js';
import { AF_INET, type Endpoint } from '../linux/sockaddr.js';
import { AddressTable } from './address-table.js';
import { LocalAddresses } from './local-addresses.js';
import { Recency, type Used } from './recency.js';
import { endpointAt, sockaddrPort } from './udp-address.js';
import type { UdpContext } from './udp-context.js';

/**
 * UDP ports of services that routers run: DNS, NTP, DHCP, TFTP, SNMP, IKE, syslog, RADIUS, STUN, SSDP, mDNS, and VPNs (OpenVPN,
 * L2TP, WireGuard). A socket of ours on a remote's such port would keep a service from binding it on all addresses, for as long
 * as somebody in the LAN uses that remote. The raw socket owns no port.
 */
const servicePorts: ReadonlySet<number> = new Set([
  53, 67, 68, 69, 123, 161, 162, 500, 514, 546, 547, 853, 1194, 1701, 1812, 1813, 1900, 3478, 4500, 5353,
  51820,
]);

/** A remote that said nothing for so long gets a new socket. */
const maxAgeMs = 60_000;
/** A socket that was in use so recently is not closed for another remote. */
const busyMs = 1000;
/** How soon a bound socket is closed when its address has become this host's (DHCP, a new uplink). */
const checkMs = 2000;

export class ReplySocket implements Used {
  lastUsedMs = 0;
  newer: Used | undefined = undefined;
  older: Used | undefined = undefined;
  place = -1;
  /** When its address was last known not to be this host's. */
  checkedMs = 0;
  readonly source: Endpoint | undefined;
  /** -1: by the raw socket. */
  readonly fd: number;

  /** @param source undefined for one that speaks for many. */
  constructor(source: Endpoint | undefined, fd: number) {
    this.source = source;
    this.fd = fd;
  }
}

export class ReplySockets {
  private readonly context: UdpContext;
  private readonly table: AddressTable<ReplySocket>;
  private readonly recency = new Recency<ReplySocket>();
  /** For a remote that finds no place. */
  private readonly raw = new ReplySocket(undefined, -1);
  /** Without a descriptor to ask with there is none to bind either: the raw socket answers, which takes nobody's datagrams. */
  private readonly locals = new LocalAddresses(false);
  private readonly mayUseRaw: boolean;

  /** @param mayUseRaw without CAP_NET_RAW there is no other way than to bind. */
  constructor(context: UdpContext, capacity: number, mayUseRaw: boolean) {
    this.context = context;
    this.table = new AddressTable(capacity);
    this.mayUseRaw = mayUseRaw;
  }

  /** The socket that speaks for the sockaddr at `bytes[at]`; undefined for one that no remote can have. */
  find(bytes: Buffer, at: number): ReplySocket | undefined {
    const { nowMs } = this.context.reactor;
    if (this.mayUseRaw && servicePorts.has(sockaddrPort(bytes, at))) {
      return this.isNoRemote(bytes, at, nowMs) ? undefined : this.raw;
    }
    const place = this.table.findSockaddr(bytes, at);
    if (place < 0) return this.open(bytes, at, nowMs);
    const socket = this.table.at(place)!;
    this.recency.touch(socket, nowMs);
    return socket;
  }

  private open(bytes: Buffer, at: number, nowMs: number): ReplySocket | undefined {
    if (sockaddrPort(bytes, at) === 0 || this.isNoRemote(bytes, at, nowMs)) return undefined;
    if (this.table.full) {
      const oldest = this.recency.oldest!;
      if (this.mayUseRaw && nowMs - oldest.lastUsedMs < busyMs) return this.raw;
      this.close(oldest);
      this.table.findSockaddr(bytes, at);
    }
    const source = endpointAt(bytes, at);
    const socket = new ReplySocket(source, this.bind(source));
    socket.checkedMs = nowMs;
    socket.place = this.table.insert(socket);
    this.recency.add(socket, nowMs);
    return socket;
  }

  /** -1 where it cannot be bound: that must never end anything, and the raw socket needs no port. */
  private bind(source: Endpoint): number {
    const { log, socketOptions } = this.context;
    try {
      return openReplySocket(source, socketOptions.mark);
    } catch (error) {
      if (!(error instanceof SyscallError)) throw error;
      if (error.errno === EADDRINUSE)
        log.debug(`udp: port ${source.port} is taken here: ${source} answers by raw socket`);
      else
        log.limited(
          'reply-socket',
          `udp: no socket to answer as ${source}: ${error.message}; using the raw socket`,
        );
      return -1;
    }
  }

  /** Closes what nobody used for a while, and what speaks for an address that is this host's by now. */
  expire(nowMs: number): void {
    this.recency.expire(nowMs - maxAgeMs, (socket) => this.close(socket));
    for (let socket = this.recency.oldest; socket !== undefined;) {
      const next = socket.newer as ReplySocket | undefined;
      if (nowMs - socket.checkedMs >= checkMs) this.check(socket, nowMs);
      socket = next;
    }
  }

  private check(socket: ReplySocket, nowMs: number): void {
    socket.checkedMs = nowMs;
    if (this.locals.ask(socket.source!)) this.close(socket);
  }

  private close(socket: ReplySocket): void {
    this.table.remove(socket.place);
    this.recency.remove(socket);
    if (socket.fd >= 0) close(socket.fd);
  }

  private isNoRemote(bytes: Buffer, at: number, nowMs: number): boolean {
    return isOfNobody(bytes, at) || this.locals.has(bytes, at, nowMs);
  }
}

/**
 * Loopback, unspecified, multicast and broadcast addresses (RFC 1122, 5771, 919, 4291), and IPv6's of one link alone, which
 * nobody can have sent from.
 */
function isOfNobody(bytes: Buffer, at: number): boolean {
  if (bytes[at] === AF_INET) return bytes[at + 4] === 0 || bytes[at + 4] === 127 || bytes[at + 4]! >= 224;
  if (bytes[at + 8] === 0xff || (bytes[at + 8] === 0xfe && (bytes[at + 9]! & 0xc0) === 0x80)) return true;
  for (let i = 8; i < 23; i++) if (bytes[at + i] !== 0) return false;
  return bytes[at + 23]! <= 1;
}
