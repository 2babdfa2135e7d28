/**
 * Connects to the first of several endpoints that answers: try one → its turn ends by success, refusal or silence → the
 * next. No byte of the client is spent before the connection stands.
 */
import type { Deadlined } from '../engine/timers.js';
import type { EventHandler } from '../engine/reactor.js';
import { SyscallError } from '../errors.js';
import { EPOLLOUT } from '../linux/epoll.js';
import { EADDRNOTAVAIL, ENOBUFS, ENOMEM, errnoName } from '../linux/errno.js';
import type { Endpoint } from '../linux/sockaddr.js';
import { closeReset, type ConnectOptions, connectTcp } from '../linux/socket.js';
import { takeSocketError } from '../linux/sockopt.js';
import type { RelayContext } from './context.js';

/** How long one endpoint may be silent at most when there is another to try. */
const attemptMs = 3000;

export interface DialEvents {
  /** `fd` is in the reactor with an interest in EPOLLOUT, and now the listener's to `adopt` or to close. */
  onConnected(fd: number, endpoint: Endpoint): void;
  /** `ours`: it failed for want of something on this host, which says nothing about the endpoint. */
  onAttemptFailed(endpoint: Endpoint, reason: string, ours: boolean): void;
  onAllFailed(reason: string): void;
}

export class Dial implements EventHandler, Deadlined {
  wheelBucket = -1;
  wheelIndex = 0;
  private readonly context: RelayContext;
  private readonly endpoints: readonly Endpoint[];
  private readonly options: ConnectOptions;
  private readonly events: DialEvents;
  private readonly giveUpMs: number;
  private attempt = -1;
  private attemptDueMs = 0;
  private fd = -1;

  constructor(
    context: RelayContext,
    endpoints: readonly Endpoint[],
    options: ConnectOptions,
    events: DialEvents,
  ) {
    this.context = context;
    this.endpoints = endpoints;
    this.options = options;
    this.events = events;
    this.giveUpMs = context.reactor.nowMs + context.timeouts.connectMs;
  }

  /** May call back before it returns. */
  start(): void {
    this.next('no address to connect to');
  }

  cancel(): void {
    this.context.reactor.timers.delete(this);
    this.closeAttempt();
  }

  onEvents(): void {
    const number = takeSocketError(this.fd);
    if (number !== 0) return this.attemptFailed(errnoName(number));
    const { fd } = this;
    this.fd = -1;
    this.context.reactor.timers.delete(this);
    this.events.onConnected(fd, this.endpoints[this.attempt]!);
  }

  dueMs(): number {
    return this.attemptDueMs;
  }

  onDeadline(): void {
    this.attemptFailed('no answer');
  }

  private next(reason: string): void {
    const { reactor } = this.context;
    for (;;) {
      this.attempt++;
      const endpoint = this.endpoints[this.attempt];
      if (endpoint === undefined || reactor.nowMs >= this.giveUpMs) return this.events.onAllFailed(reason);
      this.attemptDueMs = reactor.nowMs + this.fairShareMs();
      try {
        this.fd = connectTcp(endpoint, this.options, (lacking) => this.context.log.error(lacking));
      } catch (error) {
        if (!(error instanceof SyscallError)) throw error;
        reason = error.message;
        this.events.onAttemptFailed(endpoint, reason, isOurs(error));
        continue;
      }
      reactor.add(this.fd, this, EPOLLOUT);
      reactor.timers.set(this);
      return;
    }
  }

  /** The last endpoint has all the time that is left; the others leave as much for each behind them as they take. */
  private fairShareMs(): number {
    const leftMs = this.giveUpMs - this.context.reactor.nowMs;
    const left = this.endpoints.length - this.attempt;
    return left === 1 ? leftMs : Math.min(attemptMs, leftMs / left);
  }

  private attemptFailed(reason: string): void {
    this.context.reactor.timers.delete(this);
    this.closeAttempt();
    this.events.onAttemptFailed(this.endpoints[this.attempt]!, reason, false);
    this.next(reason);
  }

  private closeAttempt(): void {
    if (this.fd < 0) return;
    this.context.reactor.forget(this.fd);
    closeReset(this.fd);
    this.fd = -1;
  }
}

/** All but connect() itself; and connect() when it finds no free port (EADDRNOTAVAIL) or no memory for the route. */
function isOurs({ syscall, errno }: SyscallError): boolean {
  return !syscall.startsWith('connect(') || errno === EADDRNOTAVAIL || errno === ENOBUFS || errno === ENOMEM;
}
