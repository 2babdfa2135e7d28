/** Sockets that somebody else has made and bound: what they are, and what makes them ours. */
import { errno } from './ffi.js';
import { syscallError } from './errno.js';
import { fcntl } from './libc.js';
import { SyscallError } from '../errors.js';
import { AF_INET6, type Endpoint } from './sockaddr.js';
import { localEndpoint } from './socket.js';
import * as sockopt from './sockopt.js';

const SOCK_STREAM = 1; // include/linux/net.h
const SOCK_DGRAM = 2;
const F_SETFD = 2; // include/uapi/asm-generic/fcntl.h
const F_GETFL = 3;
const F_SETFL = 4;
const FD_CLOEXEC = 1;
const O_NONBLOCK = 0o4000;

export interface SocketDescription {
  kind: 'tcp' | 'udp';
  endpoint: Endpoint;
  /** Of an IPv6 socket; an IPv4 one has true. */
  ipv6Only: boolean;
  ipv6: boolean;
}

/** Undefined unless it listens for TCP, or has a port for UDP. */
export function describeSocket(fd: number): SocketDescription | undefined {
  try {
    const type = sockopt.socketType(fd);
    if (type !== SOCK_DGRAM && !(type === SOCK_STREAM && sockopt.isListening(fd))) return undefined;
    const endpoint = localEndpoint(fd);
    if (endpoint === undefined || endpoint.port === 0) return undefined;
    const ipv6 = sockopt.socketDomain(fd) === AF_INET6;
    const ipv6Only = !ipv6 || sockopt.isIpv6Only(fd);
    return { kind: type === SOCK_DGRAM ? 'udp' : 'tcp', endpoint, ipv6, ipv6Only };
  } catch (error) {
    if (error instanceof SyscallError) return undefined; // EBADF, ENOTSOCK
    throw error;
  }
}

/** No child gets it, and no call on it waits. */
export function takeOver(fd: number): void {
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) throw syscallError('fcntl(F_SETFD)', errno());
  const flags = fcntl(fd, F_GETFL, 0);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) throw syscallError('fcntl(F_SETFL)', errno());
}
