/** The process itself: who it runs as, its standard descriptors, and files that one process at a time may hold. */
import { closeSync, openSync } from 'node:fs';
import { declare, errno } from './ffi.js';
import { EAGAIN, EINTR, syscallError } from './errno.js';
import { memcpy } from './libc.js';
import { Block } from './memory.js';

const PR_SET_KEEPCAPS = 8; // include/uapi/linux/prctl.h
const LOCK_EX = 2; // include/uapi/asm-generic/fcntl.h
const LOCK_NB = 4;

const callPrctl = declare<(option: number, a: number, b: number, c: number, d: number) => number>(
  'int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)',
);
const getpwnam = declare<(name: string) => number>('uintptr_t getpwnam(const char *name)');
const getpwuid = declare<(uid: number) => number>('uintptr_t getpwuid(unsigned int uid)');
const strlen = declare<(text: number) => number>('size_t strlen(uintptr_t text)');
const initgroups = declare<(user: string, group: number) => number>(
  'int initgroups(const char *user, unsigned int group)',
);
const flock = declare<(fd: number, operation: number) => number>('int flock(int fd, int operation)');
const dup3 = declare<(from: number, to: number, flags: number) => number>(
  'int dup3(int from, int to, int flags)',
);

/** prctl(2): of this thread, for most options. -1 and `errno()` when it fails. */
export function prctl(option: number, argument: number): number {
  return callPrctl(option, argument, 0, 0, 0);
}

export interface User {
  name: string;
  uid: number;
  gid: number;
}

/** By name or number, from whatever the system keeps its users in; undefined when there is none. */
export function findUser(nameOrNumber: string): User | undefined {
  // struct passwd: char *name, *password; uid_t; gid_t; … (pwd.h)
  const found =
    getpwnam(nameOrNumber) || (/^\d{1,10}$/.test(nameOrNumber) ? getpwuid(Number(nameOrNumber)) : 0);
  if (found === 0) return undefined;
  const long = process.arch === 'arm' || process.arch === 'ia32' ? 4 : 8;
  const entry = Block.allocate(2 * long + 4 + 4);
  memcpy(entry.at(0, entry.size), found, entry.size);
  const { bytes } = entry;
  const name = long === 8 ? Number(bytes.readBigUInt64LE(0)) : bytes.readUInt32LE(0);
  return { name: textAt(name), uid: bytes.readUInt32LE(2 * long), gid: bytes.readUInt32LE(2 * long + 4) };
}

function textAt(address: number): string {
  const size = strlen(address);
  const text = Block.allocate(Math.max(1, size));
  memcpy(text.at(0, size), address, size);
  return text.bytes.toString('utf8', 0, size);
}

/**
 * Becomes `user` with all its groups, in every thread. This one keeps the capabilities that it is permitted, though none in
 * effect; the others lose theirs for good, so it must be before the first worker starts.
 *
 * @throws {SyscallError} EPERM without CAP_SETUID and CAP_SETGID.
 */
export function becomeUser({ name, uid, gid }: User): void {
  if (prctl(PR_SET_KEEPCAPS, 1) !== 0) throw syscallError('prctl(PR_SET_KEEPCAPS)', errno());
  if (initgroups(name, gid) !== 0) throw syscallError('initgroups()', errno());
  call(`setgid(${gid})`, () => process.setgid!(gid));
  call(`setuid(${uid})`, () => process.setuid!(uid));
  prctl(PR_SET_KEEPCAPS, 0);
}

/** Node's own functions: the C library's, which see to every thread. */
function call(name: string, work: () => void): void {
  try {
    work();
  } catch (error) {
    const { errno: number } = error as NodeJS.ErrnoException;
    if (typeof number !== 'number') throw error;
    throw syscallError(name, Math.abs(number));
  }
}

/** Locks an open file against every other process, until it is closed or the process ends; false when another holds it. */
export function lockFile(fd: number): boolean {
  for (;;) {
    if (flock(fd, LOCK_EX | LOCK_NB) === 0) return true;
    const number = errno();
    if (number === EAGAIN) return false;
    if (number !== EINTR) throw syscallError('flock()', number);
  }
}

/** What was behind standard error is let go: whoever waits for its end has it. */
export function discardStderr(): void {
  const fd = openSync('/dev/null', 'r+');
  const number = dup3(fd, 2, 0) < 0 ? errno() : 0;
  closeSync(fd);
  if (number !== 0) throw syscallError('dup3(2)', number);
}
