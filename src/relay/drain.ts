/**
 * What an unauthenticated peer gets: nothing. What it sends is thrown away unread, and it is closed at its own FIN or at a
 * deadline that was drawn when it connected, so that neither time nor manner of the end tells what was wrong.
 */
import type { EventHandler } from '../engine/reactor.js';
import type { Deadlined } from '../engine/timers.js';
import { EPOLLIN } from '../linux/epoll.js';
import { EAGAIN } from '../linux/errno.js';
import { errno } from '../linux/ffi.js';
import { recv } from '../linux/libc.js';
import { MSG_TRUNC } from '../linux/socket.js';
import type { RelayContext } from './context.js';

const discardSize = 1 << 20;

export class Drain implements EventHandler, Deadlined {
  wheelBucket = -1;
  wheelIndex = 0;
  private readonly context: RelayContext;
  private readonly fd: number;
  private readonly closeMs: number;
  private readonly closeFd: (fd: number) => void;
  private readonly onClosed: () => void;

  /** Takes over `fd`, which is out of the reactor. */
  constructor(
    context: RelayContext,
    fd: number,
    closeMs: number,
    closeFd: (fd: number) => void,
    onClosed: () => void,
  ) {
    this.context = context;
    this.fd = fd;
    this.closeMs = closeMs;
    this.closeFd = closeFd;
    this.onClosed = onClosed;
  }

  start(): void {
    this.context.reactor.add(this.fd, this, EPOLLIN);
    this.context.reactor.timers.set(this);
  }

  onEvents(): void {
    const count = recv(this.fd, 0, discardSize, MSG_TRUNC);
    if (count > 0) return;
    if (count < 0 && errno() === EAGAIN) return;
    this.close();
  }

  dueMs(): number {
    return this.closeMs;
  }

  onDeadline(): void {
    this.close();
  }

  private close(): void {
    const { reactor } = this.context;
    reactor.timers.delete(this);
    reactor.forget(this.fd);
    this.closeFd(this.fd);
    this.onClosed();
  }
}
