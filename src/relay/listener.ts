/**
 * Accepts connections. At the connection limit, and when the system has no descriptors or memory left, accepting pauses:
 * who waits in the kernel's queue is served when there is room, and a full table never makes the loop spin.
 */
import type { EventHandler } from '../engine/reactor.js';
import type { Deadlined } from '../engine/timers.js';
import { EPOLLEXCLUSIVE, EPOLLIN } from '../linux/epoll.js';
import { EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM, errnoName } from '../linux/errno.js';
import type { Endpoint } from '../linux/sockaddr.js';
import { acceptedPeer, acceptTcp } from '../linux/socket.js';
import type { RelayContext } from './context.js';

const acceptsPerEvent = 16;
const pauseMs = 250;
const exhausted: ReadonlySet<number> = new Set([EMFILE, ENFILE, ENOBUFS, ENOMEM]);

export class Listener implements EventHandler, Deadlined {
  wheelBucket = -1;
  wheelIndex = 0;
  private readonly context: RelayContext;
  private readonly fd: number;
  private readonly onConnection: (fd: number, client: Endpoint) => void;
  private readonly shared: boolean;
  private listening = true;
  private resumeMs = 0;

  /** With `shared`, other workers accept from the same socket: a connection wakes one of them and not all. */
  constructor(
    context: RelayContext,
    fd: number,
    onConnection: (fd: number, client: Endpoint) => void,
    shared = false,
  ) {
    this.context = context;
    this.fd = fd;
    this.onConnection = onConnection;
    this.shared = shared;
  }

  start(): void {
    this.context.reactor.add(this.fd, this, this.shared ? EPOLLIN | EPOLLEXCLUSIVE : EPOLLIN);
  }

  onEvents(): void {
    const { limits, log } = this.context;
    for (let i = 0; i < acceptsPerEvent; i++) {
      if (limits.full) return this.pauseForRoom();
      const fd = acceptTcp(this.fd);
      if (fd >= 0) {
        limits.enter();
        this.onConnection(fd, acceptedPeer());
        continue;
      }
      if (-fd === EAGAIN) return;
      if (exhausted.has(-fd)) {
        log.limited(
          'accept',
          `accept: ${errnoName(-fd)}: no new connections for ${pauseMs} ms (raise the descriptor limit: -n)`,
        );
        return this.pauseFor(pauseMs);
      }
      log.debug(`accept: ${errnoName(-fd)}`); // one connection that died in the queue (accept(2), "Error handling")
    }
  }

  dueMs(): number {
    return this.resumeMs;
  }

  onDeadline(): void {
    this.resume();
  }

  private pauseForRoom(): void {
    const { limits, log } = this.context;
    log.limited(
      'full',
      `${limits.open} connections, the limit: new ones wait until some end (--max-connections, -n)`,
    );
    this.pause();
    limits.whenRoom(() => this.resume());
  }

  private pauseFor(ms: number): void {
    const { reactor } = this.context;
    this.pause();
    this.resumeMs = reactor.nowMs + ms;
    reactor.timers.set(this);
  }

  private pause(): void {
    this.listening = false;
    if (this.shared)
      this.context.reactor.remove(this.fd); // what is EPOLLEXCLUSIVE cannot be changed (epoll_ctl(2))
    else this.context.reactor.change(this.fd, 0);
  }

  private resume(): void {
    if (this.listening) return;
    this.listening = true;
    if (this.shared) this.start();
    else this.context.reactor.change(this.fd, EPOLLIN);
  }
}
