/**
 * The epoll loop of one worker. Nothing else ever waits here: no promise, no timer, no lookup.
 *
 * Each turn: wait for events (never longer than `maxWaitMs`: V8 sees a termination only when JavaScript is entered, and
 * without the bound terminate() and process.exit() took a minute) → hand each event to its descriptor's handler → run what
 * is due.
 */
import { performance } from 'node:perf_hooks';
import { EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, Epoll } from '../linux/epoll.js';
import { usleep } from '../linux/libc.js';
import { TimerWheel } from './timers.js';

const maxWaitMs = 500;
const eventsPerWait = 256;

export interface EventHandler {
  /** EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP; the last two come unasked. */
  onEvents(events: number): void;
}

export class Reactor {
  /** Monotonic milliseconds at the start of this turn. */
  nowMs = performance.now();
  readonly timers = new TimerWheel(this.nowMs);
  private readonly epoll = new Epoll(eventsPerWait);
  private readonly handlers: (EventHandler | undefined)[] = [];
  /** Which use of a descriptor number is the present one: an event may be left of an earlier use in the same turn. */
  private readonly uses: number[] = [];
  private lastUse = 0;
  private stopping = false;
  private restUs = 0;

  add(fd: number, handler: EventHandler, interest: number): void {
    this.lastUse = (this.lastUse + 1) >>> 0;
    this.epoll.control(EPOLL_CTL_ADD, fd, interest, this.lastUse);
    this.handlers[fd] = handler;
    this.uses[fd] = this.lastUse;
  }

  change(fd: number, interest: number): void {
    this.epoll.control(EPOLL_CTL_MOD, fd, interest, this.uses[fd]!);
  }

  /** Gives a descriptor that is in the set to another handler. */
  adopt(fd: number, handler: EventHandler, interest: number): void {
    this.handlers[fd] = handler;
    this.change(fd, interest);
  }

  /** Takes an open descriptor out of the set. */
  remove(fd: number): void {
    this.epoll.control(EPOLL_CTL_DEL, fd, 0, 0);
    this.handlers[fd] = undefined;
  }

  /** Forgets a descriptor that is being closed: the kernel takes it out by itself. */
  forget(fd: number): void {
    this.handlers[fd] = undefined;
  }

  /** Lets more come before the next look: where events come by the ten thousand, a wake-up costs more than what it brings. */
  rest(microseconds: number): void {
    this.restUs = microseconds;
  }

  stop(): void {
    this.stopping = true;
  }

  /** Runs until `stop`, or until `stopped` says so: it is asked once a turn. */
  run(stopped: () => boolean): void {
    while (!this.stopping && !stopped()) this.turn();
    this.epoll.close();
  }

  private turn(): void {
    if (this.restUs > 0) {
      usleep(this.restUs);
      this.restUs = 0;
    }
    const count = this.epoll.wait(this.timers.waitMs(performance.now(), maxWaitMs));
    this.nowMs = performance.now();
    for (let i = 0; i < count; i++) {
      const fd = this.epoll.fdOf(i);
      if (this.uses[fd] !== this.epoll.useOf(i)) continue;
      this.handlers[fd]?.onEvents(this.epoll.eventsOf(i));
    }
    this.timers.advance(this.nowMs);
  }
}
