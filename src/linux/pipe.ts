/** pipe2(2), of which only the end is of interest. */
import { declare, errno } from './ffi.js';
import { syscallError } from './errno.js';
import { Block } from './memory.js';

const O_CLOEXEC = 0o2000000; // include/uapi/asm-generic/fcntl.h
const POLLHUP = 0x10; // include/uapi/asm-generic/poll.h

const pipe2 = declare<(fds: number, flags: number) => number>('int pipe2(uintptr_t fds, int flags)');
const poll = declare<(fds: number, count: number, timeoutMs: number) => number>(
  'int poll(uintptr_t fds, unsigned long count, int timeoutMs)',
);
const words = Block.allocate(8); // int[2] of pipe2; struct pollfd { int fd; short events, revents; }

/** The end to read from, and the one to write to. */
export function openPipe(): [readEnd: number, writeEnd: number] {
  if (pipe2(words.at(0, 8), O_CLOEXEC) !== 0) throw syscallError('pipe2()', errno());
  return [words.bytes.readInt32LE(0), words.bytes.readInt32LE(4)];
}

/** Whether nobody has the other end open any more. */
export function closedByWriters(readEnd: number): boolean {
  words.bytes.writeInt32LE(readEnd, 0);
  words.bytes.writeInt32LE(0, 4);
  return poll(words.at(0, 8), 1, 0) > 0 && (words.bytes.readInt16LE(6) & POLLHUP) !== 0;
}
