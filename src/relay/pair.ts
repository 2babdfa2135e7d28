/**
 * Two connected sockets, one in the clear and one encrypted, and the bytes between them.
 *
 *     plain leg  → read into a leased block → seal in place → send →  cipher leg
 *     plain leg  ←  send ← open into a leased block ← read into a block ←  cipher leg
 *
 * In ss-redir the client's socket is the plain leg and the server's the cipher leg; in ss-server the client's is the cipher
 * leg and the target's the plain one. Each direction goes by the same rules:
 *
 * 1. A direction reads only while nothing of what it read before waits to be sent: that is the back-pressure.
 * 2. Its block goes back to the pool when all of it is sent. What has come of an incomplete record is kept aside (rest.ts).
 * 3. At the end of its input, and when all is sent, the FIN is passed on; the other direction goes on.
 * 4. An error on either leg ends both with RST. So does a stream that ends inside a record: a cut stream must not look
 *    whole.
 */
import type { Deadlined } from '../engine/timers.js';
import type { EventHandler } from '../engine/reactor.js';
import { ProtocolError } from '../errors.js';
import { EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT } from '../linux/epoll.js';
import { EAGAIN, EINPROGRESS, errnoName } from '../linux/errno.js';
import { errno } from '../linux/ffi.js';
import { readv, recv, send, shutdown } from '../linux/libc.js';
import type { Block } from '../linux/memory.js';
import { closeOrderly, closeReset, MSG_NOSIGNAL, SHUT_WR } from '../linux/socket.js';
import { setNoDelay, takeSocketError } from '../linux/sockopt.js';
import type { StreamDecoder, StreamEncoder } from '../protocol/stream.js';
import type { RelayContext } from './context.js';
import { Rest } from './rest.js';
import type { UserCounters } from './user-counters.js';

/** How many full batches one event may move before the other connections get their turn. */
const batchesPerEvent = 4;

export interface PairEvents {
  /**
   * Both sockets are closed. `reason` is undefined when both directions ended in order; `answered` tells whether the far
   * side ever sent a byte.
   */
  onClosed(reason: string | undefined, answered: boolean): void;
  /**
   * The cipher leg brought what is no stream of ours; the pair is over and its plain leg reset. The cipher leg is still
   * open, out of the reactor, and whoever is called owns it now.
   */
  onForged(error: ProtocolError, cipherFd: number): void;
}

export interface PairParts {
  plainFd: number;
  cipherFd: number;
  encoder: StreamEncoder;
  decoder: StreamDecoder;
  /**
   * A client's stream begins with a header, which goes with the first payload: until when it waits for some. Undefined
   * where there is no header: we are the server.
   */
  headerDueMs?: number | undefined;
  /** Opened bytes that the plain leg has not got yet: `block[from..to)`, leased. */
  opened?: { block: Block; from: number; to: number } | undefined;
  /** Bytes of the cipher leg that are no whole record yet. */
  rest?: Rest | undefined;
  /** ss-server: whose connection this is, by index in Credentials.users; -1 or undefined where nobody is counted. */
  user?: number | undefined;
  /** What the legs are, for reasons: client, server, target. */
  plainName: string;
  cipherName: string;
}

class Leg {
  readonly fd: number;
  readonly name: string;
  /** What epoll is asked for; -1 while the descriptor is not in the reactor. */
  interest = -1;
  readEnded = false;
  writeEnded = false;
  /** Had an error or hang-up that cannot be read up to, while the other leg is stuck. */
  broken = false;
  /** Waits for a free block before it reads on. */
  starved = false;

  constructor(fd: number, name: string) {
    this.fd = fd;
    this.name = name;
  }
}

class PlainLeg extends Leg implements EventHandler {
  pair!: Pair;

  onEvents(events: number): void {
    this.pair.plainOnEvents(events);
  }
}

class CipherLeg extends Leg implements EventHandler {
  pair!: Pair;

  onEvents(events: number): void {
    this.pair.cipherOnEvents(events);
  }
}

export class Pair implements Deadlined {
  wheelBucket = -1;
  wheelIndex = 0;
  private readonly context: RelayContext;
  private readonly events: PairEvents;
  private readonly encoder: StreamEncoder;
  private readonly decoder: StreamDecoder;
  private readonly plain: PlainLeg;
  private readonly cipher: CipherLeg;
  private readonly isClient: boolean;
  private readonly user: number;
  /** Undefined where nobody is counted. */
  private readonly userCounters: UserCounters | undefined;
  /** -1 once the header is sent, or where there is none. */
  private headerDueMs: number;
  /** When bytes last moved, in either direction. */
  private lastMs: number;
  private answered = false;
  private closed = false;

  /** Sealed, not yet taken by the cipher leg: `sealed[sealedFrom..sealedTo)`. */
  private sealed: Block | undefined;
  private sealedFrom = 0;
  private sealedTo = 0;
  /** Opened, not yet taken by the plain leg: `opened[openedFrom..openedTo)`. */
  private opened: Block | undefined;
  private openedFrom = 0;
  private openedTo = 0;
  private readonly rest: Rest;

  constructor(context: RelayContext, parts: PairParts, events: PairEvents) {
    this.context = context;
    this.events = events;
    this.encoder = parts.encoder;
    this.decoder = parts.decoder;
    this.plain = new PlainLeg(parts.plainFd, parts.plainName);
    this.cipher = new CipherLeg(parts.cipherFd, parts.cipherName);
    this.plain.pair = this;
    this.cipher.pair = this;
    this.isClient = parts.headerDueMs !== undefined;
    this.headerDueMs = parts.headerDueMs ?? -1;
    this.user = parts.user ?? -1;
    this.userCounters = this.user < 0 ? undefined : context.userCounters;
    this.lastMs = context.reactor.nowMs;
    if (parts.opened !== undefined) {
      this.opened = parts.opened.block;
      this.openedFrom = parts.opened.from;
      this.openedTo = parts.opened.to;
    }
    this.rest = parts.rest ?? new Rest(context.rests);
  }

  /** Takes both descriptors over, out of the reactor or in it, and moves what is there to move. */
  start(inReactor: { plain: boolean; cipher: boolean }): void {
    const { reactor } = this.context;
    if (inReactor.plain) reactor.adopt(this.plain.fd, this.plain, (this.plain.interest = 0));
    if (inReactor.cipher) reactor.adopt(this.cipher.fd, this.cipher, (this.cipher.interest = 0));
    reactor.timers.set(this);
    if (this.opened !== undefined) this.flushOpened();
    else if (this.isClient) this.readPlain();
    if (!this.closed) this.updateInterest();
  }

  plainOnEvents(events: number): void {
    if (events & EPOLLOUT && this.opened !== undefined) this.flushOpened();
    if (this.closed) return;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
      if (this.mayReadPlain()) this.readPlain();
      else this.legOnTrouble(this.plain, events);
    }
    if (!this.closed) this.updateInterest();
  }

  cipherOnEvents(events: number): void {
    if (events & EPOLLOUT && this.sealed !== undefined) this.flushSealed();
    if (this.closed) return;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
      if (this.mayReadCipher()) this.readCipher();
      else this.legOnTrouble(this.cipher, events);
    }
    if (!this.closed) this.updateInterest();
  }

  // ---- plain leg → cipher leg

  private mayReadPlain(): boolean {
    return this.sealed === undefined && !this.plain.readEnded && !this.plain.starved;
  }

  private readPlain(): void {
    const { blocks, scatter, reactor } = this.context;
    const { encoder, plain } = this;
    for (let batch = 0; batch < batchesPerEvent; batch++) {
      const block = blocks.lease();
      if (block === undefined) return this.starve(plain);
      const { room } = encoder;
      const size = room === Infinity ? scatter.count * encoder.maxPayload : room;
      const count =
        room === Infinity
          ? readv(
              plain.fd,
              scatter.point(block, encoder.headroom, encoder.maxPayload, encoder.stride),
              scatter.count,
            )
          : recv(plain.fd, block.at(encoder.headroom, size), size, 0);
      if (count <= 0) {
        const number = count < 0 ? errno() : 0;
        blocks.release(block);
        if (count === 0) return this.plainOnEnd();
        return number === EAGAIN ? undefined : this.legOnError(plain, 'recv', number);
      }
      encoder.seal(block, count);
      if (this.userCounters !== undefined) this.userCounters.add(this.user, 0, count);
      this.headerDueMs = -1;
      this.lastMs = reactor.nowMs;
      if (!this.answered && !this.isClient) this.onFirstAnswer();
      this.sendSealed(block, encoder.start, encoder.end);
      if (this.closed || this.sealed !== undefined || count < size) return;
    }
  }

  private plainOnEnd(): void {
    this.plain.readEnded = true;
    if (this.headerDueMs >= 0) this.sendHeader();
    if (this.closed) return;
    if (this.sealed === undefined && this.headerDueMs < 0) this.endCipherWriting();
    if (!this.closed) this.context.reactor.timers.set(this);
  }

  /** The header alone: the client has nothing to say yet, so perhaps the target speaks first. */
  private sendHeader(): void {
    const { blocks, reactor } = this.context;
    const block = blocks.lease();
    if (block === undefined) {
      this.headerDueMs = reactor.nowMs + 50; // none free: again in a moment
      return;
    }
    this.encoder.seal(block, 0);
    this.headerDueMs = -1;
    this.sendSealed(block, this.encoder.start, this.encoder.end);
  }

  private sendSealed(block: Block, from: number, to: number): void {
    const count = send(this.cipher.fd, block.at(from, to - from), to - from, MSG_NOSIGNAL);
    if (count === to - from) {
      this.sealed = undefined;
      this.context.blocks.release(block);
      return;
    }
    const number = count < 0 ? errno() : 0;
    this.sealed = block;
    this.sealedFrom = count > 0 ? from + count : from;
    this.sealedTo = to;
    // With Fast Open the first send begins the connection, and may have to leave the data for later: EINPROGRESS.
    if (number === 0 || number === EAGAIN || number === EINPROGRESS) return;
    this.legOnError(this.cipher, 'send', number);
  }

  private flushSealed(): void {
    const from = this.sealedFrom;
    this.sendSealed(this.sealed!, from, this.sealedTo);
    if (this.closed) return;
    if (this.sealed === undefined || this.sealedFrom > from) this.lastMs = this.context.reactor.nowMs;
    if (this.sealed === undefined && this.plain.readEnded) this.endCipherWriting();
  }

  private endCipherWriting(): void {
    shutdown(this.cipher.fd, SHUT_WR);
    this.cipher.writeEnded = true;
    if (this.plain.writeEnded) this.finish();
  }

  // ---- cipher leg → plain leg

  private mayReadCipher(): boolean {
    return this.opened === undefined && !this.cipher.readEnded && !this.cipher.starved;
  }

  private readCipher(): void {
    const { blocks, reactor } = this.context;
    const { decoder, cipher, rest } = this;
    for (let batch = 0; batch < batchesPerEvent; batch++) {
      const source = blocks.lease();
      const target = source && blocks.lease();
      if (source === undefined || target === undefined) {
        if (source !== undefined) blocks.release(source);
        return this.starve(cipher);
      }
      const from = rest.moveTo(source);
      const size = source.size - from;
      const count = recv(cipher.fd, source.at(from, size), size, 0);
      if (count <= 0) {
        const number = count < 0 ? errno() : 0;
        rest.keep(source, 0, from);
        blocks.release(source);
        blocks.release(target);
        if (count === 0) return this.cipherOnEnd();
        return number === EAGAIN ? undefined : this.legOnError(cipher, 'recv', number);
      }
      this.lastMs = reactor.nowMs;
      const fault = this.open(source, from + count, target);
      blocks.release(source);
      if (fault !== undefined || decoder.produced === 0) blocks.release(target);
      if (fault !== undefined) return this.forged(fault);
      if (decoder.produced > 0) {
        if (!this.answered && this.isClient) this.onFirstAnswer();
        if (this.userCounters !== undefined) this.userCounters.add(this.user, decoder.produced, 0);
        this.sendOpened(target, 0, decoder.produced);
      }
      if (this.closed || this.opened !== undefined || count < size) return;
    }
  }

  /** Opens the records in `source[0..to)` into `target` and keeps the rest. Returns what is wrong with them. */
  private open(source: Block, to: number, target: Block): ProtocolError | undefined {
    const { decoder } = this;
    try {
      decoder.open(source, 0, to, target, 0);
    } catch (error) {
      if (error instanceof ProtocolError) return error;
      throw error;
    }
    this.rest.keep(source, decoder.consumed, to);
    return undefined;
  }

  private cipherOnEnd(): void {
    const { cipher, decoder } = this;
    if (!decoder.atBoundary) return this.fail(`the ${cipher.name} ended its stream inside a record`);
    cipher.readEnded = true;
    if (this.opened === undefined) this.endPlainWriting();
    if (!this.closed) this.context.reactor.timers.set(this);
  }

  private sendOpened(block: Block, from: number, to: number): void {
    const count = send(this.plain.fd, block.at(from, to - from), to - from, MSG_NOSIGNAL);
    if (count === to - from) {
      this.opened = undefined;
      this.context.blocks.release(block);
      return;
    }
    const number = count < 0 ? errno() : 0;
    this.opened = block;
    this.openedFrom = count > 0 ? from + count : from;
    this.openedTo = to;
    if (number !== 0 && number !== EAGAIN) this.legOnError(this.plain, 'send', number);
  }

  private flushOpened(): void {
    const from = this.openedFrom;
    this.sendOpened(this.opened!, from, this.openedTo);
    if (this.closed) return;
    if (this.opened === undefined || this.openedFrom > from) this.lastMs = this.context.reactor.nowMs;
    if (this.opened === undefined && this.cipher.readEnded) this.endPlainWriting();
  }

  private endPlainWriting(): void {
    shutdown(this.plain.fd, SHUT_WR);
    this.plain.writeEnded = true;
    if (this.cipher.writeEnded) this.finish();
  }

  // ---- both

  /** libev's rule: small packets leave at once until the first answer, then only with --no-delay. */
  private onFirstAnswer(): void {
    this.answered = true;
    if (this.context.noDelay) return;
    setNoDelay(this.plain.fd, false);
    setNoDelay(this.cipher.fd, false);
  }

  private updateInterest(): void {
    const { plain, cipher } = this;
    this.want(plain, (this.mayReadPlain() ? EPOLLIN : 0) | (this.opened !== undefined ? EPOLLOUT : 0));
    this.want(cipher, (this.mayReadCipher() ? EPOLLIN : 0) | (this.sealed !== undefined ? EPOLLOUT : 0));
  }

  private want(leg: PlainLeg | CipherLeg, interest: number): void {
    if (leg.interest === interest) return;
    if (leg.interest >= 0) {
      this.context.reactor.change(leg.fd, interest);
      leg.interest = interest;
    } else if (interest !== 0) {
      this.context.reactor.add(leg.fd, leg, interest);
      leg.interest = interest;
    }
  }

  /**
   * An error or a hang-up while we cannot read. With nothing more to read an error is the end. Otherwise it will be met
   * when reading goes on; until then the leg leaves the set, which would tell of it every turn, and the pair has as long as
   * a half-open one.
   */
  private legOnTrouble(leg: PlainLeg | CipherLeg, events: number): void {
    if (events & EPOLLERR && leg.readEnded)
      return this.legOnError(leg, 'connection', takeSocketError(leg.fd));
    if ((events & (EPOLLERR | EPOLLHUP)) === 0) return;
    this.context.reactor.remove(leg.fd);
    leg.interest = -1;
    leg.broken = true;
    this.context.reactor.timers.set(this);
  }

  private legOnError(leg: Leg, what: string, number: number): void {
    this.fail(`${leg.name}: ${what}: ${errnoName(number)}`);
  }

  private starve(leg: Leg): void {
    leg.starved = true;
    this.context.blocks.whenFree(() => {
      leg.starved = false;
      if (!this.closed) this.updateInterest();
    });
  }

  dueMs(): number {
    const { timeouts } = this.context;
    const { plain, cipher } = this;
    const ended = plain.readEnded || cipher.readEnded || plain.broken || cipher.broken;
    const silentMs = this.lastMs + (ended ? timeouts.halfOpenMs : timeouts.idleMs);
    return this.headerDueMs >= 0 ? Math.min(this.headerDueMs, silentMs) : silentMs;
  }

  onDeadline(nowMs: number): void {
    if (this.headerDueMs < 0 || nowMs < this.headerDueMs) return this.fail('nothing moved until the timeout');
    this.sendHeader();
    if (this.closed) return;
    if (this.headerDueMs < 0 && this.sealed === undefined && this.plain.readEnded) this.endCipherWriting();
    if (this.closed) return;
    this.context.reactor.timers.set(this);
    this.updateInterest();
  }

  private finish(): void {
    this.leave();
    closeOrderly(this.plain.fd);
    closeOrderly(this.cipher.fd);
    this.events.onClosed(undefined, this.answered);
  }

  private fail(reason: string): void {
    this.leave();
    closeReset(this.plain.fd);
    closeReset(this.cipher.fd);
    this.events.onClosed(reason, this.answered);
  }

  private forged(error: ProtocolError): void {
    const { cipher, plain } = this;
    if (cipher.interest >= 0) this.context.reactor.remove(cipher.fd);
    this.leave();
    closeReset(plain.fd);
    this.events.onForged(error, cipher.fd);
  }

  /** The one way out: everything the pair holds goes back, but for the descriptors. */
  private leave(): void {
    const { reactor, blocks } = this.context;
    this.closed = true;
    reactor.timers.delete(this);
    reactor.forget(this.plain.fd);
    reactor.forget(this.cipher.fd);
    if (this.sealed !== undefined) blocks.release(this.sealed);
    if (this.opened !== undefined) blocks.release(this.opened);
    this.rest.release();
    this.sealed = this.opened = undefined;
  }
}
