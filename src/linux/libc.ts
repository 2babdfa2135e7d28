/** One declared prototype a call. Every pointer is an address (see ffi.ts); failure is -1 and `errno()`. */
import { declare, declareOptional } from './ffi.js';

type Fd = number;
type Address = number;

// Sockets: socket(2) and its family
export const socket: (domain: number, type: number, protocol: number) => Fd = declare(
  'int socket(int domain, int type, int protocol)',
);
export const bind: (fd: Fd, sockaddr: Address, length: number) => number = declare(
  'int bind(int fd, uintptr_t sockaddr, uint32_t length)',
);
export const listen: (fd: Fd, backlog: number) => number = declare('int listen(int fd, int backlog)');
export const connect: (fd: Fd, sockaddr: Address, length: number) => number = declare(
  'int connect(int fd, uintptr_t sockaddr, uint32_t length)',
);
export const accept4: (fd: Fd, sockaddr: Address, length: Address, flags: number) => Fd = declare(
  'int accept4(int fd, uintptr_t sockaddr, uintptr_t length, int flags)',
);
export const shutdown: (fd: Fd, how: number) => number = declare('int shutdown(int fd, int how)');
export const close: (fd: Fd) => number = declare('int close(int fd)');
/** Variadic in C; on every Linux that we run on, an int there travels as it would in a prototype. */
export const fcntl: (fd: Fd, command: number, argument: number) => number = declare(
  'int fcntl(int fd, int command, int argument)',
);
export const getsockname: (fd: Fd, sockaddr: Address, length: Address) => number = declare(
  'int getsockname(int fd, uintptr_t sockaddr, uintptr_t length)',
);
export const getpeername: (fd: Fd, sockaddr: Address, length: Address) => number = declare(
  'int getpeername(int fd, uintptr_t sockaddr, uintptr_t length)',
);
export const getsockopt: (fd: Fd, level: number, name: number, value: Address, length: Address) => number =
  declare('int getsockopt(int fd, int level, int name, uintptr_t value, uintptr_t length)');
export const setsockopt: (fd: Fd, level: number, name: number, value: Address, length: number) => number =
  declare('int setsockopt(int fd, int level, int name, uintptr_t value, uint32_t length)');

// Bytes
export const recv: (fd: Fd, to: Address, size: number, flags: number) => number = declare(
  'intptr_t recv(int fd, uintptr_t to, size_t size, int flags)',
);
export const send: (fd: Fd, from: Address, size: number, flags: number) => number = declare(
  'intptr_t send(int fd, uintptr_t from, size_t size, int flags)',
);
export const readv: (fd: Fd, iovec: Address, count: number) => number = declare(
  'intptr_t readv(int fd, uintptr_t iovec, int count)',
);
export const read: (fd: Fd, to: Address, size: number) => number = declare(
  'intptr_t read(int fd, uintptr_t to, size_t size)',
);
export const write: (fd: Fd, from: Address, size: number) => number = declare(
  'intptr_t write(int fd, uintptr_t from, size_t size)',
);
export const sendto: (
  fd: Fd,
  from: Address,
  size: number,
  flags: number,
  sockaddr: Address,
  length: number,
) => number = declare(
  'intptr_t sendto(int fd, uintptr_t from, size_t size, int flags, uintptr_t sockaddr, uint32_t length)',
);
export const sendmsg: (fd: Fd, msghdr: Address, flags: number) => number = declare(
  'intptr_t sendmsg(int fd, uintptr_t msghdr, int flags)',
);
export const sendmmsg: (fd: Fd, mmsghdrs: Address, count: number, flags: number) => number = declare(
  'int sendmmsg(int fd, uintptr_t mmsghdrs, unsigned int count, int flags)',
);
/** Without a time limit: our sockets do not block. */
export const recvmmsg: (fd: Fd, mmsghdrs: Address, count: number, flags: number, timeout: Address) => number =
  declare('int recvmmsg(int fd, uintptr_t mmsghdrs, unsigned int count, int flags, uintptr_t timeout)');

/** The two places must not overlap. */
export const memcpy: (to: Address, from: Address, size: number) => Address = declare(
  'uintptr_t memcpy(uintptr_t to, uintptr_t from, size_t size)',
);

// Readiness
export const epollCreate1: (flags: number) => Fd = declare('int epoll_create1(int flags)');
export const epollCtl: (epoll: Fd, operation: number, fd: Fd, event: Address) => number = declare(
  'int epoll_ctl(int epoll, int operation, int fd, uintptr_t event)',
);
export const epollWait: (epoll: Fd, events: Address, count: number, timeoutMs: number) => number = declare(
  'int epoll_wait(int epoll, uintptr_t events, int count, int timeout)',
);
export const eventfd: (initial: number, flags: number) => Fd = declare(
  'int eventfd(unsigned int initial, int flags)',
);

export const usleep: (microseconds: number) => number = declare('int usleep(uint32_t microseconds)');

// Text and binary addresses
export const inetPton: (family: number, text: string, to: Address) => number = declare(
  'int inet_pton(int family, const char *text, uintptr_t to)',
);
export const inetNtop: (family: number, from: Address, to: Address, size: number) => number = declare(
  'uintptr_t inet_ntop(int family, uintptr_t from, uintptr_t to, uint32_t size)',
);
export const ifNametoindex: (name: string) => number = declare(
  'unsigned int if_nametoindex(const char *name)',
);

// The process and its memory
export const getpagesize: () => number = declare('int getpagesize()');
export const madvise: (from: Address, length: number, advice: number) => number = declare(
  'int madvise(uintptr_t from, size_t length, int advice)',
);
/** With 64-bit limits on every system: glibc on 32-bit needs the names ending in 64, musl has no others. */
export const getrlimit: (resource: number, limits: Address) => number =
  declareOptional('int getrlimit64(int resource, uintptr_t limits)') ??
  declare('int getrlimit(int resource, uintptr_t limits)');
export const setrlimit: (resource: number, limits: Address) => number =
  declareOptional('int setrlimit64(int resource, uintptr_t limits)') ??
  declare('int setrlimit(int resource, uintptr_t limits)');
