/** One named function a socket option. Constants carry the header they are from; all are the same on every Linux that
 * Node runs on (x86-64, arm64, arm, riscv64, loong64), unlike on mips and sparc. */
import { errno } from './ffi.js';
import { Block } from './memory.js';
import { EOPNOTSUPP, syscallError } from './errno.js';
import { getsockopt, setsockopt } from './libc.js';

const SOL_SOCKET = 1; // include/uapi/asm-generic/socket.h
const SO_REUSEADDR = 2;
const SO_TYPE = 3;
const SO_ERROR = 4;
const SO_SNDBUF = 7;
const SO_RCVBUF = 8;
const SO_KEEPALIVE = 9;
const SO_LINGER = 13;
const SO_REUSEPORT = 15;
const SO_BINDTODEVICE = 25;
const SO_ACCEPTCONN = 30;
const SO_SNDBUFFORCE = 32;
const SO_RCVBUFFORCE = 33;
const SO_MARK = 36;
const SO_DOMAIN = 39;
const SO_MEMINFO = 55;
const SK_MEMINFO_DROPS = 8; // include/uapi/linux/sock_diag.h

export const SOL_IP = 0; // include/linux/socket.h
const IP_TOS = 1; // include/uapi/linux/in.h
export const IP_PKTINFO = 8;
const IP_MTU_DISCOVER = 10;
const IP_PMTUDISC_DONT = 0;
const IP_FREEBIND = 15;
const IP_TRANSPARENT = 19;
/** IP_RECVORIGDSTADDR, and the type of the control message it makes. */
export const IP_ORIGDSTADDR = 20;
export const SO_ORIGINAL_DST = 80; // include/uapi/linux/netfilter_ipv4.h

export const SOL_IPV6 = 41; // include/linux/socket.h
const IPV6_V6ONLY = 26; // include/uapi/linux/in6.h
const IPV6_RECVPKTINFO = 49;
export const IPV6_PKTINFO = 50;
const IPV6_TCLASS = 67;
/** IPV6_RECVORIGDSTADDR, and the type of the control message it makes. */
export const IPV6_ORIGDSTADDR = 74;
const IPV6_TRANSPARENT = 75;
export const IP6T_SO_ORIGINAL_DST = 80; // include/uapi/linux/netfilter_ipv6/ip6_tables.h

const SOL_TCP = 6; // include/linux/socket.h
const TCP_NODELAY = 1; // include/uapi/linux/tcp.h
const TCP_KEEPIDLE = 4;
const TCP_KEEPINTVL = 5;
const TCP_KEEPCNT = 6;
const TCP_FASTOPEN = 23;
const TCP_FASTOPEN_CONNECT = 30;

export const SOL_UDP = 17; // include/linux/socket.h
export const UDP_SEGMENT = 103; // include/uapi/linux/udp.h

const value = Block.allocate(16);
const memoryInfo = Block.allocate(64);

function setInteger(fd: number, level: number, option: number, name: string, number: number): void {
  value.bytes.writeInt32LE(number, 0);
  if (setsockopt(fd, level, option, value.at(0, 4), 4) !== 0)
    throw syscallError(`setsockopt(${name})`, errno());
}

function getInteger(fd: number, level: number, option: number, name: string): number {
  value.bytes.writeUInt32LE(4, 4);
  if (getsockopt(fd, level, option, value.at(0, 4), value.at(4, 4)) !== 0) {
    throw syscallError(`getsockopt(${name})`, errno());
  }
  return value.bytes.readInt32LE(0);
}

/** Datagrams that found the socket's buffer full, since it was made, modulo 2^32. 0 before Linux 4.12, which does not tell. */
export function lostDatagrams(fd: number): number {
  const { bytes, address, size } = memoryInfo;
  bytes.fill(0);
  value.bytes.writeUInt32LE(size, 0);
  getsockopt(fd, SOL_SOCKET, SO_MEMINFO, address, value.at(0, 4));
  return bytes.readUInt32LE(4 * SK_MEMINFO_DROPS);
}

/** SOCK_STREAM or SOCK_DGRAM. */
export function socketType(fd: number): number {
  return getInteger(fd, SOL_SOCKET, SO_TYPE, 'SOL_SOCKET, SO_TYPE');
}

/** AF_INET or AF_INET6 (Linux 2.6.32). */
export function socketDomain(fd: number): number {
  return getInteger(fd, SOL_SOCKET, SO_DOMAIN, 'SOL_SOCKET, SO_DOMAIN');
}

export function isListening(fd: number): boolean {
  return getInteger(fd, SOL_SOCKET, SO_ACCEPTCONN, 'SOL_SOCKET, SO_ACCEPTCONN') !== 0;
}

export function setReuseAddress(fd: number): void {
  setInteger(fd, SOL_SOCKET, SO_REUSEADDR, 'SOL_SOCKET, SO_REUSEADDR', 1);
}

/** Lets several sockets of one user listen on one port; the kernel spreads connections over them. Set it before bind(). */
export function setReusePort(fd: number): void {
  setInteger(fd, SOL_SOCKET, SO_REUSEPORT, 'SOL_SOCKET, SO_REUSEPORT', 1);
}

/** The error that an asynchronous connect() or a reset left on the socket, 0 for none. Reading it clears it. */
export function takeSocketError(fd: number): number {
  return getInteger(fd, SOL_SOCKET, SO_ERROR, 'SOL_SOCKET, SO_ERROR');
}

/** Bytes; the kernel doubles the number and holds it to net.core.wmem_max. */
export function setSendBuffer(fd: number, bytes: number): void {
  setInteger(fd, SOL_SOCKET, SO_SNDBUF, 'SOL_SOCKET, SO_SNDBUF', bytes);
}

export function setReceiveBuffer(fd: number, bytes: number): void {
  setInteger(fd, SOL_SOCKET, SO_RCVBUF, 'SOL_SOCKET, SO_RCVBUF', bytes);
}

/** Beyond net.core.wmem_max. @throws {SyscallError} `EPERM` without CAP_NET_ADMIN. */
export function forceSendBuffer(fd: number, bytes: number): void {
  setInteger(fd, SOL_SOCKET, SO_SNDBUFFORCE, 'SOL_SOCKET, SO_SNDBUFFORCE', bytes);
}

/** Beyond net.core.rmem_max. @throws {SyscallError} `EPERM` without CAP_NET_ADMIN. */
export function forceReceiveBuffer(fd: number, bytes: number): void {
  setInteger(fd, SOL_SOCKET, SO_RCVBUFFORCE, 'SOL_SOCKET, SO_RCVBUFFORCE', bytes);
}

/**
 * Marks every packet that the socket sends.
 *
 * @throws {SyscallError} `EPERM` without CAP_NET_ADMIN (or, since Linux 5.17, CAP_NET_RAW).
 */
export function setMark(fd: number, mark: number): void {
  setInteger(fd, SOL_SOCKET, SO_MARK, 'SOL_SOCKET, SO_MARK', mark | 0);
}

/** The mark that the socket has, 0 for none. Asking needs no privilege. */
export function markOf(fd: number): number {
  return getInteger(fd, SOL_SOCKET, SO_MARK, 'SOL_SOCKET, SO_MARK') >>> 0;
}

/** Sends through this interface only; its name has 1 to 15 bytes. */
export function bindToDevice(fd: number, name: string): void {
  const text = Block.allocate(16); // IFNAMSIZ, include/uapi/linux/if.h
  text.bytes.write(name, 0, 15, 'latin1');
  if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, text.at(0, 16), 16) !== 0) {
    throw syscallError(`setsockopt(SOL_SOCKET, SO_BINDTODEVICE "${name}")`, errno());
  }
}

/**
 * With `reset`, close() sends RST and throws away what is unsent, and so does the kernel when the process dies: nobody
 * takes a cut stream for a whole one. Without it, close() is orderly. An accepted socket inherits it from its listener.
 */
export function setResetOnClose(fd: number, reset: boolean): void {
  value.bytes.writeInt32LE(reset ? 1 : 0, 0); // struct linger: l_onoff, l_linger
  value.bytes.writeInt32LE(0, 4);
  if (setsockopt(fd, SOL_SOCKET, SO_LINGER, value.at(0, 8), 8) !== 0) {
    throw syscallError('setsockopt(SOL_SOCKET, SO_LINGER)', errno());
  }
}

/** The timing is libev's: first probe after 40 s, then every 20 s, dead after 5 without an answer. */
export function setKeepAlive(fd: number): void {
  setInteger(fd, SOL_SOCKET, SO_KEEPALIVE, 'SOL_SOCKET, SO_KEEPALIVE', 1);
  setInteger(fd, SOL_TCP, TCP_KEEPIDLE, 'SOL_TCP, TCP_KEEPIDLE', 40);
  setInteger(fd, SOL_TCP, TCP_KEEPINTVL, 'SOL_TCP, TCP_KEEPINTVL', 20);
  setInteger(fd, SOL_TCP, TCP_KEEPCNT, 'SOL_TCP, TCP_KEEPCNT', 5);
}

export function setNoDelay(fd: number, on: boolean): void {
  setInteger(fd, SOL_TCP, TCP_NODELAY, 'SOL_TCP, TCP_NODELAY', on ? 1 : 0);
}

/** Server side of TCP Fast Open; `queue` bounds the connections that are not yet confirmed. */
export function setFastOpen(fd: number, queue: number): void {
  setInteger(fd, SOL_TCP, TCP_FASTOPEN, 'SOL_TCP, TCP_FASTOPEN', queue);
}

/**
 * Client side of TCP Fast Open (Linux 4.11): connect() returns at once and the first send carries data in the SYN.
 * False when this kernel has it switched off (net.ipv4.tcp_fastopen).
 */
export function setFastOpenConnect(fd: number): boolean {
  value.bytes.writeInt32LE(1, 0);
  if (setsockopt(fd, SOL_TCP, TCP_FASTOPEN_CONNECT, value.at(0, 4), 4) === 0) return true;
  const number = errno();
  if (number === EOPNOTSUPP) return false;
  throw syscallError('setsockopt(SOL_TCP, TCP_FASTOPEN_CONNECT)', number);
}

/** Type of service of IPv4 packets, traffic class of IPv6 ones: the DSCP is its upper six bits (RFC 2474). */
export function setTrafficClass(fd: number, tos: number, ipv6: boolean): void {
  if (ipv6) setInteger(fd, SOL_IPV6, IPV6_TCLASS, 'SOL_IPV6, IPV6_TCLASS', tos);
  else setInteger(fd, SOL_IP, IP_TOS, 'SOL_IP, IP_TOS', tos);
}

/** Lets an address be bound that this host does not have yet. */
export function setFreeBind(fd: number): void {
  setInteger(fd, SOL_IP, IP_FREEBIND, 'SOL_IP, IP_FREEBIND', 1);
}

export function setIpv6Only(fd: number, only: boolean): void {
  setInteger(fd, SOL_IPV6, IPV6_V6ONLY, 'SOL_IPV6, IPV6_V6ONLY', only ? 1 : 0);
}

export function isIpv6Only(fd: number): boolean {
  return getInteger(fd, SOL_IPV6, IPV6_V6ONLY, 'SOL_IPV6, IPV6_V6ONLY') !== 0;
}

/** Whether `setTransparent` has been done, perhaps by another. Asking needs no privilege. */
export function isTransparent(fd: number, ipv6: boolean): boolean {
  if (ipv6) return getInteger(fd, SOL_IPV6, IPV6_TRANSPARENT, 'SOL_IPV6, IPV6_TRANSPARENT') !== 0;
  return getInteger(fd, SOL_IP, IP_TRANSPARENT, 'SOL_IP, IP_TRANSPARENT') !== 0;
}

/**
 * Lets `fd` accept connections to, and send from, addresses that are not this host's. Set it before bind(). On a
 * dual-stack socket IPV6_TRANSPARENT serves IPv4 too: both set the same bit of the socket.
 *
 * @throws {SyscallError} `EPERM` without CAP_NET_ADMIN or CAP_NET_RAW.
 * @see Linux Documentation/networking/tproxy.rst, section 1
 */
export function setTransparent(fd: number, ipv6: boolean): void {
  if (ipv6) setInteger(fd, SOL_IPV6, IPV6_TRANSPARENT, 'SOL_IPV6, IPV6_TRANSPARENT', 1);
  else setInteger(fd, SOL_IP, IP_TRANSPARENT, 'SOL_IP, IP_TRANSPARENT', 1);
}

/**
 * Each datagram comes with a control message that holds the address it was sent to (Linux 2.6.37). An IPv6 socket serves
 * IPv4, too, whose option is another.
 */
export function setReceiveOriginalDestination(fd: number, ipv6: boolean): void {
  setInteger(fd, SOL_IP, IP_ORIGDSTADDR, 'SOL_IP, IP_RECVORIGDSTADDR', 1);
  if (ipv6) setInteger(fd, SOL_IPV6, IPV6_ORIGDSTADDR, 'SOL_IPV6, IPV6_RECVORIGDSTADDR', 1);
}

/**
 * Each datagram comes with a control message that holds which of our addresses it came to: struct in_pktinfo, or in6_pktinfo
 * on an IPv6 socket, where an IPv4 address is mapped.
 */
export function setReceivePacketInfo(fd: number, ipv6: boolean): void {
  if (ipv6) setInteger(fd, SOL_IPV6, IPV6_RECVPKTINFO, 'SOL_IPV6, IPV6_RECVPKTINFO', 1);
  else setInteger(fd, SOL_IP, IP_PKTINFO, 'SOL_IP, IP_PKTINFO', 1);
}

/**
 * IPv4 datagrams without the don't-fragment bit: a router with a smaller MTU cuts them instead of throwing them away, and
 * nobody here sends them again. IPv6 routers cut nothing; there the kernel learns of the MTU, and cuts.
 */
export function allowFragments(fd: number): void {
  setInteger(fd, SOL_IP, IP_MTU_DISCOVER, 'SOL_IP, IP_MTU_DISCOVER', IP_PMTUDISC_DONT);
}
