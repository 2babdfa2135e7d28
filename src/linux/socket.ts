/** TCP sockets: listening, connecting, and where an accepted connection was going before the firewall sent it here. */
import { errno } from './ffi.js';
import { SyscallError } from '../errors.js';
import {
  EACCES,
  EAFNOSUPPORT,
  EAGAIN,
  EINPROGRESS,
  EINVAL,
  ENOENT,
  ENOPROTOOPT,
  EPROTONOSUPPORT,
  syscallError,
} from './errno.js';
import * as libc from './libc.js';
import { AF_INET, AF_INET6, Endpoint, SockaddrBlock } from './sockaddr.js';
import * as sockopt from './sockopt.js';

const SOCK_STREAM = 1; // include/linux/net.h
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000; // include/uapi/asm-generic/fcntl.h: O_CLOEXEC
const SOCK_NONBLOCK = 0o4000; // O_NONBLOCK
const IPPROTO_TCP = 6; // include/uapi/linux/in.h
const IPPROTO_MPTCP = 262;

/** Flags of every send: no SIGPIPE. Sockets are non-blocking by themselves. */
export const MSG_NOSIGNAL = 0x4000; // include/linux/socket.h
/** On TCP: throw the received bytes away without copying them (tcp(7)). */
export const MSG_TRUNC = 0x20;
export const SHUT_WR = 1; // include/linux/net.h

/** As many as net.core.somaxconn allows; the kernel cuts it to that. */
const backlog = 65535;

/** What socket(IPPROTO_MPTCP) says where MPTCP is switched off, not built in, or unknown (before Linux 5.6). */
const noMptcp: ReadonlySet<number> = new Set([ENOPROTOOPT, EPROTONOSUPPORT, EINVAL]);

const sockaddr = new SockaddrBlock();

export interface ListenOptions {
  /** Accept connections to foreign addresses (TPROXY). */
  transparent?: boolean;
  /** `::` without IPv4: another socket serves that. */
  ipv6Only?: boolean;
  reusePort?: boolean;
  mptcp?: boolean;
  /** Queue length of TCP Fast Open, 0 for none. */
  fastOpenQueue?: number;
  /** SO_MARK of the packets that the accepted sockets send, 0 for none. */
  mark?: number;
  /** Bytes, 0 for the kernel's choice. Set before listen(), so that the window scale fits. */
  sendBuffer?: number;
  receiveBuffer?: number;
}

/**
 * A listening, non-blocking socket. `::` serves IPv4 too. What accepted sockets inherit is set here once instead of on
 * each of them: reset on close, keep-alive, no delay, mark, buffers.
 *
 * @throws {SyscallError} EADDRINUSE, EADDRNOTAVAIL, EACCES for bind; EPERM for the transparent option and the mark.
 */
export function listenTcp(
  endpoint: Endpoint,
  options: ListenOptions = {},
  onLacking: (text: string) => void = () => {},
): number {
  const ipv6 = !endpoint.isIpv4;
  const fd = openSocketFor(endpoint, options, onLacking);
  try {
    sockopt.setReuseAddress(fd);
    if (options.reusePort) sockopt.setReusePort(fd);
    if (ipv6) sockopt.setIpv6Only(fd, options.ipv6Only === true);
    applyListenOptions(fd, ipv6, options);
    if (libc.bind(fd, sockaddr.address, sockaddr.write(endpoint)) !== 0) {
      throw syscallError(`bind(${endpoint})`, errno());
    }
    if (options.fastOpenQueue) sockopt.setFastOpen(fd, options.fastOpenQueue);
    if (libc.listen(fd, backlog) !== 0) throw syscallError(`listen(${endpoint})`, errno());
    return fd;
  } catch (error) {
    libc.close(fd);
    throw error;
  }
}

/**
 * Makes a listener of one that somebody else has made and bound. What it has already is not set again: that may need a
 * privilege which its maker had and we have not.
 *
 * @throws {SyscallError} EPERM for the transparent option and the mark.
 */
export function adoptTcp(fd: number, ipv6: boolean, options: ListenOptions = {}): void {
  applyListenOptions(fd, ipv6, options);
  if (options.fastOpenQueue) sockopt.setFastOpen(fd, options.fastOpenQueue);
}

function applyListenOptions(fd: number, ipv6: boolean, options: ListenOptions): void {
  const { transparent, mark = 0, sendBuffer, receiveBuffer } = options;
  if (transparent && !sockopt.isTransparent(fd, ipv6)) sockopt.setTransparent(fd, ipv6);
  if (mark !== 0 && sockopt.markOf(fd) !== mark) sockopt.setMark(fd, mark);
  if (sendBuffer) sockopt.setSendBuffer(fd, sendBuffer);
  if (receiveBuffer) sockopt.setReceiveBuffer(fd, receiveBuffer);
  sockopt.setResetOnClose(fd, true);
  sockopt.setNoDelay(fd, true);
  sockopt.setKeepAlive(fd);
}

/** Whether this process may mark its packets: it takes CAP_NET_ADMIN, or since Linux 5.17 CAP_NET_RAW. */
export function mayMark(mark: number): boolean {
  const fd = openSocket(AF_INET, false);
  try {
    sockopt.setMark(fd, mark);
    return true;
  } catch (error) {
    if (error instanceof SyscallError && error.code === 'EPERM') return false;
    throw error;
  } finally {
    libc.close(fd);
  }
}

/** The next connection of a listener as a non-blocking socket, or the negative errno (EAGAIN, EMFILE …). */
export function acceptTcp(listener: number): number {
  const fd = libc.accept4(listener, sockaddr.address, sockaddr.prepareLength(), SOCK_NONBLOCK | SOCK_CLOEXEC);
  return fd >= 0 ? fd : -errno();
}

/** Who the connection is from that `acceptTcp` has just returned. */
export function acceptedPeer(): Endpoint {
  return sockaddr.read()!;
}

export interface ConnectOptions {
  mark: number;
  mptcp: boolean;
  /** Data goes with the SYN where the kernel can; the first send must follow. */
  fastOpen: boolean;
  tos: number;
  sendBuffer: number;
  receiveBuffer: number;
  /** Source address for each family. */
  bind4?: Endpoint | undefined;
  bind6?: Endpoint | undefined;
  interface?: string | undefined;
}

/**
 * Begins to connect: epoll tells when it is done, `takeSocketError` how. What `options` asks for and this kernel lacks
 * (Fast Open, Multipath TCP) is switched off in them, and told once: the connection is made without.
 *
 * @throws {SyscallError} of socket(), an option, or connect() where it fails at once (ENETUNREACH, EMFILE …).
 */
export function connectTcp(
  endpoint: Endpoint,
  options: ConnectOptions,
  onLacking: (text: string) => void = () => {},
): number {
  const fd = openSocketFor(endpoint, options, onLacking);
  try {
    applyConnectOptions(fd, endpoint, options, onLacking);
    if (libc.connect(fd, sockaddr.address, sockaddr.write(endpoint)) !== 0) {
      const number = errno();
      if (number !== EINPROGRESS) throw syscallError(`connect(${endpoint})`, number);
    }
    return fd;
  } catch (error) {
    libc.close(fd);
    throw error;
  }
}

/** Switches `options.mptcp` off where this kernel has none. */
function openSocketFor(
  endpoint: Endpoint,
  options: { mptcp?: boolean },
  onLacking: (text: string) => void,
): number {
  const family = endpoint.isIpv4 ? AF_INET : AF_INET6;
  if (!options.mptcp) return openSocket(family, false);
  try {
    return openSocket(family, true);
  } catch (error) {
    if (!(error instanceof SyscallError) || !noMptcp.has(error.errno)) throw error;
    options.mptcp = false;
    onLacking(`no Multipath TCP in this kernel (${error.message}; net.mptcp.enabled): going on without`);
    return openSocket(family, false);
  }
}

function applyConnectOptions(
  fd: number,
  endpoint: Endpoint,
  options: ConnectOptions,
  onLacking: (text: string) => void,
): void {
  const ipv6 = !endpoint.isIpv4;
  if (options.mark !== 0) sockopt.setMark(fd, options.mark);
  if (options.interface !== undefined) sockopt.bindToDevice(fd, options.interface);
  if (options.sendBuffer !== 0) sockopt.setSendBuffer(fd, options.sendBuffer);
  if (options.receiveBuffer !== 0) sockopt.setReceiveBuffer(fd, options.receiveBuffer);
  if (options.tos !== 0) sockopt.setTrafficClass(fd, options.tos, ipv6);
  if (options.fastOpen && !sockopt.setFastOpenConnect(fd)) {
    options.fastOpen = false;
    onLacking('TCP Fast Open is switched off in this kernel (net.ipv4.tcp_fastopen): connecting without');
  }
  sockopt.setResetOnClose(fd, true);
  sockopt.setNoDelay(fd, true);
  sockopt.setKeepAlive(fd);
  const source = ipv6 ? options.bind6 : options.bind4;
  if (source !== undefined && libc.bind(fd, sockaddr.address, sockaddr.write(source)) !== 0) {
    throw syscallError(`bind(${source})`, errno());
  }
}

function openSocket(family: number, mptcp: boolean): number {
  const type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  const fd = libc.socket(family, type, mptcp ? IPPROTO_MPTCP : IPPROTO_TCP);
  if (fd < 0) throw syscallError(mptcp ? 'socket(IPPROTO_MPTCP)' : 'socket()', errno());
  return fd;
}

/** Whether the kernel knows IPv6 at all. That it is switched off on interfaces (disable_ipv6) is another matter. */
export function hasIpv6(): boolean {
  const fd = libc.socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno() !== EAFNOSUPPORT;
  libc.close(fd);
  return true;
}

export function localEndpoint(fd: number): Endpoint | undefined {
  return libc.getsockname(fd, sockaddr.address, sockaddr.prepareLength()) === 0 ? sockaddr.read() : undefined;
}

export function remoteEndpoint(fd: number): Endpoint | undefined {
  return libc.getpeername(fd, sockaddr.address, sockaddr.prepareLength()) === 0 ? sockaddr.read() : undefined;
}

/**
 * Where a connection that a REDIRECT rule sent here was going: connection tracking remembers. The option goes by the
 * connection's own family, and an IPv4 client of a `::` listener is IPv4. Undefined when connection tracking does not
 * know the connection.
 */
export function originalDestination(fd: number, ipv4: boolean): Endpoint | undefined {
  const level = ipv4 ? sockopt.SOL_IP : sockopt.SOL_IPV6;
  const option = ipv4 ? sockopt.SO_ORIGINAL_DST : sockopt.IP6T_SO_ORIGINAL_DST;
  if (libc.getsockopt(fd, level, option, sockaddr.address, sockaddr.prepareLength()) === 0)
    return sockaddr.read();
  const number = errno();
  if (number === ENOENT) return undefined;
  throw syscallError(
    `getsockopt(${ipv4 ? 'SOL_IP, SO_ORIGINAL_DST' : 'SOL_IPV6, IP6T_SO_ORIGINAL_DST'})`,
    number,
  );
}

/**
 * Whether the address is one of this host's own, or the broadcast address of one of its networks, at this moment: to such a one the kernel would talk from that same
 * address. Binding it would tell too, but not where net.ipv4.ip_nonlocal_bind lets any address be bound.
 *
 * @throws {SyscallError} without a descriptor or a port for the question.
 */
export function isLocalAddress(endpoint: Endpoint): boolean {
  if (endpoint.isIpv4 && endpoint.address[0] === 127) return true;
  const type = SOCK_DGRAM | SOCK_CLOEXEC;
  const fd = libc.socket(endpoint.isIpv4 ? AF_INET : AF_INET6, type, 0);
  if (fd < 0) throw syscallError('socket(SOCK_DGRAM)', errno());
  try {
    const somePort = new Endpoint(endpoint.address, 9, endpoint.scope); // nothing is sent
    if (libc.connect(fd, sockaddr.address, sockaddr.write(somePort)) !== 0) {
      const number = errno();
      if (number === EAGAIN) throw syscallError(`connect(${endpoint})`, number);
      return number === EACCES; // a broadcast address, or no route: not ours
    }
    const source = localEndpoint(fd);
    return source !== undefined && source.host === endpoint.host;
  } finally {
    libc.close(fd);
  }
}

/** Ends a connection in order: what the kernel still holds is sent, then FIN. */
export function closeOrderly(fd: number): void {
  sockopt.setResetOnClose(fd, false);
  libc.close(fd);
}

/** Ends a connection with RST, by the reset-on-close that every socket of ours is made with. */
export function closeReset(fd: number): void {
  libc.close(fd);
}
