/**
 * Standard error for a program that must not wait for whoever reads it.
 *
 * A reader that stops reading fills the pipe, terminal or socket, and a plain write(2) then waits for ever; Node's
 * process.stderr writes like that to pipes. O_NONBLOCK on descriptor 2 itself would be seen by every process that shares it
 * (the shell, our children), so
 *
 *     pipe, terminal   a new open file description of our own, through /proc/self/fd/2, with O_NONBLOCK
 *     socket           cannot be opened again (ENXIO): send(2) with MSG_DONTWAIT (systemd's journal is one)
 *     file, others     descriptor 2 as it is: no reader to wait for, and a second description would have an offset of its own
 *
 * A pipe or terminal that may not be opened again (it belongs to another user) is asked by poll(2) before each write of at
 * most PIPE_BUF bytes, which a pipe then takes whole.
 */
import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { EAGAIN, EINTR } from './errno.js';
import { declare, errno } from './ffi.js';
import { send } from './libc.js';
import { Block } from './memory.js';

const stderrFd = 2;
const pipeBuf = 4096; // include/uapi/linux/limits.h, PIPE_BUF

const MSG_DONTWAIT = 0x40; // include/linux/socket.h
const MSG_NOSIGNAL = 0x4000; // include/linux/socket.h
const POLLOUT = 0x4; // include/uapi/asm-generic/poll.h

/** Writes some of the bytes, at least one, and says how many; 0: not now; -1: nobody will ever read it. */
export type Writer = (bytes: Uint8Array) => number;

export function openStderr(): Writer {
  let stat: Stats;
  try {
    stat = fstatSync(stderrFd);
  } catch {
    return () => -1; // closed
  }
  if (stat.isSocket()) return sendSome;
  if (!stat.isFIFO() && !stat.isCharacterDevice()) return (bytes) => writeSome(stderrFd, bytes);
  try {
    const flags = constants.O_WRONLY | constants.O_NONBLOCK | constants.O_APPEND | constants.O_NOCTTY;
    const fd = openSync(`/proc/self/fd/${stderrFd}`, flags);
    return (bytes) => writeSome(fd, bytes);
  } catch {
    return pollAndWrite;
  }
}

function writeSome(fd: number, bytes: Uint8Array): number {
  try {
    return writeSync(fd, bytes);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === 'EAGAIN' || code === 'EINTR' ? 0 : -1;
  }
}

const scratch = Block.allocate(pipeBuf);

function sendSome(bytes: Uint8Array): number {
  const size = Math.min(bytes.length, scratch.size);
  scratch.bytes.set(bytes.subarray(0, size));
  const sent = send(stderrFd, scratch.at(0, size), size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return sent;
  const code = errno();
  return code === EAGAIN || code === EINTR ? 0 : -1;
}

const poll = declare<(fds: number, count: number, timeoutMs: number) => number>(
  'int poll(uintptr_t fds, unsigned long count, int timeoutMs)',
);
const pollfd = Block.allocate(4 + 2 + 2); // int fd, short events, short revents: poll(2)
const pollfdView = new DataView(pollfd.bytes.buffer, pollfd.bytes.byteOffset, pollfd.size);
const littleEndian = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;

function pollAndWrite(bytes: Uint8Array): number {
  pollfdView.setInt32(0, stderrFd, littleEndian);
  pollfdView.setInt16(4, POLLOUT, littleEndian);
  if (poll(pollfd.at(0, pollfd.size), 1, 0) <= 0) return 0;
  return writeSome(stderrFd, bytes.subarray(0, pipeBuf));
}
