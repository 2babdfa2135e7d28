/** What all UDP sockets of a worker share. */
import type { Deadlined } from '../engine/timers.js';
import type { Reactor } from '../engine/reactor.js';
import { syscallError } from '../linux/errno.js';
import { errno } from '../linux/ffi.js';
import { getpagesize, madvise } from '../linux/libc.js';
import { Block } from '../linux/memory.js';
import { ReceiveBatch, type ReceiveOptions, SendBatch } from '../linux/messages.js';
import type { UdpSocketOptions } from '../linux/datagram.js';
import type { Endpoint } from '../linux/sockaddr.js';
import type { UdpCounters } from './udp-counters.js';
import type { WorkerLog } from './worker-log.js';

/** What a reload may change. */
export interface UdpLimits {
  /** A session is forgotten when it was silent in both directions for so long. */
  timeoutMs: number;
  maxSessions: number;
  /** Of the way that packets take; 0 to be silent about it. */
  mtu: number;
}

export interface UdpContext extends UdpLimits {
  reactor: Reactor;
  log: WorkerLog;
  counters: UdpCounters;
  datagrams: DatagramMemory;
  socketOptions: UdpSocketOptions;
}

/** There is room for `capacity` sessions. */
export function setLimits(context: UdpContext, limits: UdpLimits, capacity: number): void {
  context.timeoutMs = limits.timeoutMs;
  context.maxSessions = Math.min(limits.maxSessions, capacity);
  context.mtu = limits.mtu;
}

/** IP and UDP header. */
const ipv4Headers = 28;
const ipv6Headers = 48;

/** Tells, where the admin has asked for it, that a packet goes in fragments: many a firewall drops those. */
export function noteSize({ mtu, log }: UdpContext, size: number, to: Endpoint): void {
  const whole = size + (to.isIpv4 ? ipv4Headers : ipv6Headers);
  if (whole <= mtu) return;
  log.limited(
    'udp-mtu',
    `udp: a packet of ${whole} bytes to ${to} goes in fragments: the MTU is ${mtu} (--mtu)`,
  );
}

/** Datagrams received and sent in one go: more than 64 gained nothing (measured). */
export const batchSize = 64;
/** Room before a payload for what a packet begins with: 2022's identity headers, padding and address are the most. */
export const plainOffset = 2048;
/** Room before a packet for the headers of a raw reply. */
export const packetOffset = 64;
/** AEAD tag. */
const tailroom = 16;
/** 65,535 bytes behind either offset, in whole pages. */
const slotSize = 17 * 4096;

/** How long nobody must have received anything for the memory to go back to the kernel. */
const idleMs = 5000;
/** From so many datagrams a millisecond on, in both directions, turns that bring few are followed by a rest. */
const busyPerMs = 10;
const rateWindowMs = 5;
const fewInTurn = 16;
const restUs = 100;
const MADV_DONTNEED = 4; // include/uapi/asm-generic/mman-common.h

/**
 * Where datagrams are received, sealed or opened in place, and sent from, all within one event: so one block serves the whole
 * worker. While nothing comes it holds no memory.
 */
export class DatagramMemory implements Deadlined {
  wheelBucket = -1;
  wheelIndex = 0;
  readonly sends = new SendBatch(batchSize);
  private readonly reactor: Reactor;
  private readonly pages: Block;
  private usedMs = -Infinity;
  /** Datagrams of this turn of the reactor, and of the window before it. */
  private turnCount = 0;
  private windowMs = 0;
  private windowCount = 0;
  private isBusy = false;
  private dueAtMs = 0;

  constructor(reactor: Reactor) {
    this.reactor = reactor;
    const page = getpagesize();
    const whole = new Block(Buffer.allocUnsafeSlow(batchSize * slotSize + page)); // untouched, so it holds no memory yet
    const first = (page - (whole.address % page)) % page;
    this.pages = new Block(whole.bytes.subarray(first, first + batchSize * slotSize), whole.address + first);
  }

  get block(): Block {
    return this.pages;
  }

  slotAt(slot: number): number {
    return slot * slotSize;
  }

  /** For one kind of socket: what is received there stands at `offset` of its slot. */
  batch(offset: number, options: ReceiveOptions): ReceiveBatch {
    return new ReceiveBatch(this.pages, slotSize, offset, tailroom, options);
  }

  /** Call whenever something was received: how many datagrams. */
  used(count: number): void {
    if (this.reactor.nowMs !== this.usedMs) this.beginTurn();
    this.turnCount += count;
    this.usedMs = this.reactor.nowMs;
    if (this.wheelBucket >= 0) return;
    this.dueAtMs = this.usedMs + idleMs;
    this.reactor.timers.set(this);
  }

  /** The turn before brought little, while much is coming: then the next one shall bring more at once. */
  private beginTurn(): void {
    const { nowMs } = this.reactor;
    this.windowCount += this.turnCount;
    if (nowMs - this.windowMs >= rateWindowMs) {
      this.isBusy = this.windowCount / (nowMs - this.windowMs) > busyPerMs;
      this.windowMs = nowMs;
      this.windowCount = 0;
    }
    if (this.isBusy && this.turnCount < fewInTurn) this.reactor.rest(restUs);
    this.turnCount = 0;
  }

  dueMs(): number {
    return this.dueAtMs;
  }

  onDeadline(nowMs: number): void {
    if (nowMs - this.usedMs < idleMs) {
      this.dueAtMs = this.usedMs + idleMs;
      this.reactor.timers.set(this);
      return;
    }
    if (madvise(this.pages.address, this.pages.size, MADV_DONTNEED) !== 0) {
      throw syscallError('madvise(MADV_DONTNEED)', errno());
    }
  }
}
