/**
 * epoll(7) and eventfd(2).
 *
 * struct epoll_event (include/uapi/linux/eventpoll.h) is packed on x86-64 only:
 *
 *     x86-64    | events u32 | data u64 |                 12 bytes
 *     others    | events u32 | pad u32 | data u64 |       16 bytes
 *
 * Our data is the descriptor in the low half and, in the high half, a number that tells this use of the descriptor from
 * an earlier one.
 */
import { errno } from './ffi.js';
import { Block } from './memory.js';
import { EINTR, syscallError } from './errno.js';
import * as libc from './libc.js';

export const EPOLLIN = 0x001; // include/uapi/linux/eventpoll.h
export const EPOLLOUT = 0x004;
export const EPOLLERR = 0x008;
export const EPOLLHUP = 0x010;
export const EPOLLEXCLUSIVE = 1 << 28;

export const EPOLL_CTL_ADD = 1;
export const EPOLL_CTL_DEL = 2;
export const EPOLL_CTL_MOD = 3;
const EPOLL_CLOEXEC = 0o2000000;

const words = process.arch === 'x64' ? 3 : 4;
const dataWord = process.arch === 'x64' ? 1 : 2;
const eventSize = words * 4;

export class Epoll {
  private readonly fd: number;
  private readonly events: Block;
  private readonly eventWords: Uint32Array;
  private readonly change = Block.allocate(eventSize);
  private readonly changeWords: Uint32Array;
  private readonly capacity: number;

  constructor(capacity: number) {
    this.fd = libc.epollCreate1(EPOLL_CLOEXEC);
    if (this.fd < 0) throw syscallError('epoll_create1()', errno());
    this.capacity = capacity;
    this.events = Block.allocate(capacity * eventSize);
    this.eventWords = wordsOf(this.events);
    this.changeWords = wordsOf(this.change);
  }

  control(operation: number, fd: number, interest: number, use: number): void {
    this.changeWords[0] = interest;
    this.changeWords[dataWord] = fd;
    this.changeWords[dataWord + 1] = use;
    if (libc.epollCtl(this.fd, operation, fd, this.change.at(0, eventSize)) !== 0) {
      throw syscallError(`epoll_ctl(${operation}, ${fd})`, errno());
    }
  }

  /** How many events there are, 0 after `timeoutMs`; read them with the three functions below. */
  wait(timeoutMs: number): number {
    const count = libc.epollWait(this.fd, this.events.address, this.capacity, timeoutMs);
    if (count >= 0) return count;
    const number = errno();
    if (number === EINTR) return 0;
    throw syscallError('epoll_wait()', number);
  }

  eventsOf(index: number): number {
    return this.eventWords[index * words]!;
  }

  fdOf(index: number): number {
    return this.eventWords[index * words + dataWord]!;
  }

  useOf(index: number): number {
    return this.eventWords[index * words + dataWord + 1]!;
  }

  close(): void {
    libc.close(this.fd);
  }
}

function wordsOf(block: Block): Uint32Array {
  return new Uint32Array(block.bytes.buffer, block.bytes.byteOffset, block.size / 4);
}

const EFD_CLOEXEC = 0o2000000; // include/uapi/linux/eventfd.h
const EFD_NONBLOCK = 0o4000;

/** A counter that one thread raises to make another's epoll return. The number is the same in every thread. */
export function createWakeup(): number {
  const fd = libc.eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw syscallError('eventfd()', errno());
  return fd;
}

const counter = Block.allocate(8);

export function raiseWakeup(fd: number): void {
  counter.bytes.writeBigUInt64LE(1n);
  libc.write(fd, counter.address, 8);
}

export function clearWakeup(fd: number): void {
  libc.read(fd, counter.address, 8);
}
