import { constants } from 'node:os';
import { SyscallError } from '../errors.js';

/** Error numbers of this architecture (include/uapi/asm-generic/errno*.h), as Node was built with them. */
export const {
  EAGAIN,
  EINTR,
  EINPROGRESS,
  EMFILE,
  ENFILE,
  ENOBUFS,
  ENOMEM,
  ECONNABORTED,
  EOPNOTSUPP,
  EPROTO,
  ENOENT,
} = constants.errno;
export const {
  EADDRINUSE,
  EADDRNOTAVAIL,
  EACCES,
  EPERM,
  ENOTCONN,
  EAFNOSUPPORT,
  ENOPROTOOPT,
  ECONNREFUSED,
  EINVAL,
  EPROTONOSUPPORT,
} = constants.errno;
export const { EMSGSIZE, EIO, EHOSTUNREACH, ENETUNREACH, ENETDOWN, EHOSTDOWN } = constants.errno as Record<
  string,
  number
>;
export const { ECONNRESET, ETIMEDOUT, EPIPE } = constants.errno;

const names = new Map<number, string>();
for (const [name, number] of Object.entries(constants.errno)) {
  if (!names.has(number)) names.set(number, name);
}

/** `EPERM` for 1; `errno 512` for a number without a name. */
export function errnoName(number: number): string {
  return names.get(number) ?? `errno ${number}`;
}

/** The error of the system call that just failed; `syscall` as in `setsockopt(SOL_IP, IP_TRANSPARENT)`. */
export function syscallError(syscall: string, number: number): SyscallError {
  return new SyscallError(syscall, number, errnoName(number));
}
