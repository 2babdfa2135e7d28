/**
 * What a service tells its manager: sd_notify(3), lines of NAME=value in a datagram to $NOTIFY_SOCKET.
 *
 *     READY=1                           serving; ends RELOADING too
 *     STATUS=text                       one line for `systemctl status`
 *     RELOADING=1 + MONOTONIC_USEC=     reading the configuration again; the manager waits for READY=1
 *     STOPPING=1                        on the way out
 *     WATCHDOG=1                        alive; without it the manager ends us after $WATCHDOG_USEC
 *     FDSTORE=1 + FDNAME=name           keep this descriptor and pass it to the next start ($LISTEN_FDS)
 *     FDSTOREREMOVE=1 + FDNAME=name     close it
 *     BARRIER=1                         close the descriptor that comes along once all before it is done
 *
 * Nothing here waits, and without a manager all of it does nothing. What finds the manager's queue full is sent later, in order;
 * of heartbeats and status lines only the present one counts, so they are not kept.
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { close } from '../linux/libc.js';
import { closedByWriters, openPipe } from '../linux/pipe.js';
import { UnixDatagramSender } from '../linux/unix-datagram.js';

const retryMs = 20;
const barrierMs = 5000;
const barrierPollMs = 2;

interface Message {
  text: string;
  descriptor: number | undefined;
}

export class Notifier {
  private readonly sender: UnixDatagramSender | undefined;
  private readonly waiting: Message[] = [];

  /** @param address path or `@name`; undefined: nobody wants to know. */
  constructor(address: string | undefined) {
    this.sender = address === undefined ? undefined : new UnixDatagramSender(address);
  }

  /** Takes $NOTIFY_SOCKET out of the environment, so that no child speaks in our name. `warn` hears why it is of no use. */
  static take(env: NodeJS.ProcessEnv, warn: (text: string) => void = () => {}): Notifier {
    const address = env['NOTIFY_SOCKET'];
    delete env['NOTIFY_SOCKET'];
    if (!address) return new Notifier(undefined);
    if (address.startsWith('/') || address.startsWith('@')) return new Notifier(address);
    warn('NOTIFY_SOCKET: expected a path or @name, so nobody is told that we are ready');
    return new Notifier(undefined);
  }

  get connected(): boolean {
    return this.sender !== undefined;
  }

  ready(status: string): void {
    this.send(`READY=1\nSTATUS=${status}`);
  }

  status(text: string): void {
    this.send(`STATUS=${text}`, undefined, false);
  }

  /** The manager takes the time for the beginning of the reload (sd_notify(3): CLOCK_MONOTONIC). */
  reloading(): void {
    this.send(`RELOADING=1\nMONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`);
  }

  stopping(): void {
    this.send('STOPPING=1\nSTATUS=stopping');
  }

  watchdog(): void {
    this.send('WATCHDOG=1', undefined, false);
  }

  /** `name`: up to 255 printable characters without a colon. The manager does not watch the descriptor: it is a listener. */
  store(descriptor: number, name: string): void {
    this.send(`FDSTORE=1\nFDNAME=${name}\nFDPOLL=0`, descriptor);
  }

  /** All that were stored under the name. */
  remove(name: string): void {
    this.send(`FDSTOREREMOVE=1\nFDNAME=${name}`);
  }

  /** Resolves when the manager has done everything it was told before, or after 5 s. */
  async barrier(): Promise<void> {
    if (this.sender === undefined) return;
    const [ours, theirs] = openPipe();
    this.send('BARRIER=1', theirs);
    const until = performance.now() + barrierMs;
    while (this.waiting.length > 0 && performance.now() < until) await delay(barrierPollMs);
    close(theirs);
    while (!closedByWriters(ours) && performance.now() < until) await delay(barrierPollMs);
    close(ours);
  }

  private send(text: string, descriptor?: number, keep = true): void {
    if (this.sender === undefined) return;
    if (this.waiting.length > 0) {
      if (keep) this.waiting.push({ text, descriptor });
      return;
    }
    if (this.sender.send(text, descriptor) !== 'full' || !keep) return;
    this.waiting.push({ text, descriptor });
    setTimeout(() => this.sendWaiting(), retryMs);
  }

  private sendWaiting(): void {
    for (let first = this.waiting[0]; first !== undefined; first = this.waiting[0]) {
      if (this.sender!.send(first.text, first.descriptor) === 'full') {
        setTimeout(() => this.sendWaiting(), retryMs);
        return;
      }
      this.waiting.shift();
    }
  }
}
