/** UDP sockets: the listener of a TPROXY rule or of a server, the sockets of sessions, and those that answer in another's name. */
import { SyscallError } from '../errors.js';
import { EACCES, EPERM, syscallError } from './errno.js';
import { errno } from './ffi.js';
import * as libc from './libc.js';
import { AF_INET, AF_INET6, Endpoint, SockaddrBlock } from './sockaddr.js';
import * as sockopt from './sockopt.js';

const SOCK_DGRAM = 2; // include/linux/net.h
const SOCK_RAW = 3;
const SOCK_CLOEXEC = 0o2000000; // include/uapi/asm-generic/fcntl.h: O_CLOEXEC
const SOCK_NONBLOCK = 0o4000; // O_NONBLOCK
const IPPROTO_RAW = 255; // include/uapi/linux/in.h: the sender writes the IP header

/** Room for bursts: with the kernel's default of 208 KiB datagrams were lost at 40,000 a second, with this none. */
const burstBytes = 4 << 20;
/** A socket that only sends is never read: what strays to it shall take no memory. The kernel raises it to its least. */
const leastBytes = 1;

const sockaddr = new SockaddrBlock();

export interface UdpListenOptions {
  /** Take datagrams to foreign addresses (TPROXY), and tell where each was going. */
  transparent?: boolean;
  /** Tell which of our addresses each datagram came to: the answer must leave from there. */
  packetInfo?: boolean;
  /** `::` without IPv4: another socket serves that. */
  ipv6Only?: boolean;
  reusePort?: boolean;
  /** SO_MARK of what is sent, 0 for none. */
  mark?: number;
}

/**
 * A bound, non-blocking socket. `::` serves IPv4, too, and tells of both families where their datagrams were going. Without
 * SO_REUSEADDR: on UDP it would let any other program that sets it take the port over.
 *
 * @throws {SyscallError} EADDRINUSE, EADDRNOTAVAIL, EACCES for bind; EPERM for the transparent option and the mark.
 */
export function listenUdp(endpoint: Endpoint, options: UdpListenOptions = {}): number {
  const ipv6 = !endpoint.isIpv4;
  return withSocket(ipv6 ? AF_INET6 : AF_INET, (fd) => {
    if (options.reusePort) sockopt.setReusePort(fd);
    if (ipv6) sockopt.setIpv6Only(fd, options.ipv6Only === true);
    applyListenOptions(fd, ipv6, options);
    bindTo(fd, endpoint);
  });
}

/**
 * Makes a listener of one that somebody else has made and bound. What it has already is not set again: that may need a
 * privilege which its maker had and we have not.
 *
 * @throws {SyscallError} EPERM for the transparent option and the mark.
 */
export function adoptUdp(fd: number, ipv6: boolean, options: UdpListenOptions): void {
  applyListenOptions(fd, ipv6, options);
}

function applyListenOptions(fd: number, ipv6: boolean, options: UdpListenOptions): void {
  const { transparent, packetInfo, mark = 0 } = options;
  if (transparent && !sockopt.isTransparent(fd, ipv6)) sockopt.setTransparent(fd, ipv6);
  if (transparent) sockopt.setReceiveOriginalDestination(fd, ipv6);
  if (packetInfo) sockopt.setReceivePacketInfo(fd, ipv6);
  if (mark !== 0 && sockopt.markOf(fd) !== mark) sockopt.setMark(fd, mark);
  sockopt.allowFragments(fd);
  forceBuffers(fd);
}

export interface UdpSocketOptions {
  mark: number;
  tos: number;
  /** Source address for each family. */
  bind4?: Endpoint | undefined;
  bind6?: Endpoint | undefined;
  interface?: string | undefined;
}

/**
 * A socket that talks to `peer` alone: the kernel spares us its address with every datagram, and tells of ICMP errors.
 *
 * @throws {SyscallError} of socket(), an option, bind() or connect() (EMFILE, ENETUNREACH …).
 */
export function connectUdp(peer: Endpoint, options: UdpSocketOptions): number {
  return withSocket(peer.isIpv4 ? AF_INET : AF_INET6, (fd) => {
    applyOptions(fd, !peer.isIpv4, options);
    if (libc.connect(fd, sockaddr.address, sockaddr.write(peer)) !== 0) {
      throw syscallError(`connect(${peer})`, errno());
    }
  });
}

/** A socket that talks to anybody of one family: one mapping, whomever it sends to (full cone). */
export function openUdp(ipv6: boolean, options: UdpSocketOptions): number {
  return withSocket(ipv6 ? AF_INET6 : AF_INET, (fd) => {
    if (ipv6) sockopt.setIpv6Only(fd, true);
    applyOptions(fd, ipv6, options);
    const source = ipv6 ? options.bind6 : options.bind4;
    // Without an address the first send would choose a port: bound now, answers can come before.
    if (source === undefined) bindTo(fd, new Endpoint(new Uint8Array(ipv6 ? 16 : 4), 0));
  });
}

/**
 * A socket that sends as if it were `source`, somebody else's address.
 *
 * @throws {SyscallError} `EADDRINUSE` where a service on this host owns the port on every address and does not share it.
 */
export function openReplySocket(source: Endpoint, mark: number): number {
  const ipv6 = !source.isIpv4;
  return withSocket(ipv6 ? AF_INET6 : AF_INET, (fd) => {
    sockopt.setTransparent(fd, ipv6);
    sockopt.setReuseAddress(fd);
    if (mark !== 0) sockopt.setMark(fd, mark);
    sockopt.setReceiveBuffer(fd, leastBytes);
    sockopt.allowFragments(fd);
    bindTo(fd, source);
  });
}

/** Whether `openReplySocket` would be allowed: it takes CAP_NET_ADMIN or CAP_NET_RAW. */
export function mayBeTransparent(): boolean {
  try {
    libc.close(withSocket(AF_INET, (fd) => sockopt.setTransparent(fd, false)));
    return true;
  } catch (error) {
    if (error instanceof SyscallError && error.errno === EPERM) return false;
    throw error;
  }
}

/**
 * A socket whose sender writes IP and UDP header himself (raw(7)).
 *
 * @throws {SyscallError} `EPERM` without CAP_NET_RAW.
 */
export function openRawSocket(ipv6: boolean, mark: number): number {
  const type = SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC;
  const fd = libc.socket(ipv6 ? AF_INET6 : AF_INET, type, IPPROTO_RAW);
  if (fd < 0) throw syscallError('socket(SOCK_RAW)', errno());
  try {
    if (mark !== 0) sockopt.setMark(fd, mark);
    sockopt.setReceiveBuffer(fd, leastBytes);
    return fd;
  } catch (error) {
    libc.close(fd);
    throw error;
  }
}

function withSocket(family: number, prepare: (fd: number) => void): number {
  const fd = libc.socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw syscallError('socket(SOCK_DGRAM)', errno());
  try {
    prepare(fd);
    return fd;
  } catch (error) {
    libc.close(fd);
    throw error;
  }
}

function applyOptions(fd: number, ipv6: boolean, options: UdpSocketOptions): void {
  if (options.mark !== 0) sockopt.setMark(fd, options.mark);
  if (options.interface !== undefined) sockopt.bindToDevice(fd, options.interface);
  if (options.tos !== 0) sockopt.setTrafficClass(fd, options.tos, ipv6);
  sockopt.allowFragments(fd);
  forceBuffers(fd);
  const source = ipv6 ? options.bind6 : options.bind4;
  if (source !== undefined) bindTo(fd, source);
}

/** What the kernel lets us have: it is held to net.core.rmem_max and wmem_max without CAP_NET_ADMIN. */
function forceBuffers(fd: number): void {
  try {
    sockopt.forceReceiveBuffer(fd, burstBytes);
    sockopt.forceSendBuffer(fd, burstBytes);
  } catch (error) {
    if (!(error instanceof SyscallError) || (error.errno !== EPERM && error.errno !== EACCES)) throw error;
    sockopt.setReceiveBuffer(fd, burstBytes);
    sockopt.setSendBuffer(fd, burstBytes);
  }
}

function bindTo(fd: number, endpoint: Endpoint): void {
  if (libc.bind(fd, sockaddr.address, sockaddr.write(endpoint)) !== 0) {
    throw syscallError(`bind(${endpoint})`, errno());
  }
}
