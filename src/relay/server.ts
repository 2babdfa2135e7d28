/**
 * A connection of ss-server, in the order of events:
 *
 * 1. A client connects. Until its stream has proved to know the key and named a target, it is a stranger: nothing is sent
 *    to it, and whatever is wrong, it is treated alike (drain.ts).
 * 2. The target's name is resolved by the main thread; an address is dialled, then the next.
 * 3. The pair relays, the other way round: it opens what the client sends and seals what the target answers.
 */
import type { EventHandler } from '../engine/reactor.js';
import type { Deadlined } from '../engine/timers.js';
import { ProtocolError } from '../errors.js';
import { EPOLLIN } from '../linux/epoll.js';
import { EAGAIN, errnoName } from '../linux/errno.js';
import { errno } from '../linux/ffi.js';
import { recv } from '../linux/libc.js';
import type { Block } from '../linux/memory.js';
import type { Endpoint } from '../linux/sockaddr.js';
import { closeOrderly, closeReset } from '../linux/socket.js';
import { maxAddressSize, readAddress, type AddressRead } from '../protocol/address.js';
import type { RelayContext } from './context.js';
import { Dial, type DialEvents } from './dial.js';
import { Drain } from './drain.js';
import { Pair, type PairEvents } from './pair.js';
import { Rest } from './rest.js';
import { type OpenServerStreams, type ServerSalts, type ServerStreams, serverStreams } from './streams.js';

/** A stranger is closed at a random moment between these, counted from accept, whatever it did. */
const strangerMinMs = 30_000;
const strangerMaxMs = 60_000;

export class Server {
  private readonly context: RelayContext;
  private readonly openStreams: OpenServerStreams;

  constructor(context: RelayContext, salts: ServerSalts) {
    this.context = context;
    this.openStreams = serverStreams(context, salts);
  }

  onConnection(fd: number, client: Endpoint): void {
    new ServerConnection(this.context, this.openStreams(), fd, client).start();
  }
}

class ServerConnection implements EventHandler, Deadlined, DialEvents, PairEvents {
  wheelBucket = -1;
  wheelIndex = 0;
  private readonly context: RelayContext;
  private readonly streams: ServerStreams;
  private readonly fd: number;
  private readonly client: Endpoint;
  private readonly strangerDueMs: number;
  /** Until it has named a target, or is closed or drained. */
  private isStranger = true;
  private target: AddressRead | undefined;
  private readonly rest: Rest;
  /** `opened[openedFrom..openedTo)`: first a part of the address, then what the target shall get first. */
  private opened: Block | undefined;
  private openedFrom = 0;
  private openedTo = 0;

  constructor(context: RelayContext, streams: ServerStreams, fd: number, client: Endpoint) {
    this.context = context;
    this.streams = streams;
    this.fd = fd;
    this.client = client;
    this.rest = new Rest(context.rests);
    this.strangerDueMs =
      context.reactor.nowMs + strangerMinMs + Math.random() * (strangerMaxMs - strangerMinMs);
  }

  start(): void {
    const { reactor } = this.context;
    reactor.add(this.fd, this, EPOLLIN);
    reactor.timers.set(this);
  }

  // ---- 1. the stranger

  onEvents(): void {
    const { blocks, log } = this.context;
    const source = blocks.lease();
    const target = source && (this.opened ?? blocks.lease());
    if (source === undefined || target === undefined) {
      if (source !== undefined) blocks.release(source);
      return this.waitForBlock();
    }
    this.opened = target;
    const from = this.rest.moveTo(source);
    const size = source.size - from - maxAddressSize; // `target` may hold a part of the address already
    const count = recv(this.fd, source.at(from, size), size, 0);
    const number = count < 0 ? errno() : 0;
    const fault = this.openFirst(source, from + Math.max(count, 0), target);
    blocks.release(source);
    if (count === 0) return this.close(closeOrderly);
    if (number !== 0 && number !== EAGAIN) {
      log.debug(`${this.client}: recv: ${errnoName(number)}`);
      return this.close(closeReset);
    }
    if (fault !== undefined) return this.distrust(fault);
    if (this.openedTo === this.openedFrom) this.opened = this.giveBack(target);
    if (this.target !== undefined) this.reach(this.target);
  }

  /**
   * Opens what has come and looks for the address in it. Returns what is wrong: the stream does not know the key, was seen
   * before, or names no possible target.
   */
  private openFirst(source: Block, to: number, target: Block): ProtocolError | undefined {
    const { decoder } = this.streams;
    try {
      decoder.open(source, 0, to, target, this.openedTo);
      this.rest.keep(source, decoder.consumed, to);
      this.openedTo += decoder.produced;
      const address = readAddress(target.bytes, 0, this.openedTo);
      if (address === undefined) return undefined;
      this.target = address;
      this.openedFrom = address.end;
      return undefined;
    } catch (error) {
      if (error instanceof ProtocolError) return error;
      throw error;
    }
  }

  /** Out of the reactor meanwhile: a reset would be told every turn, and nothing of it can be read without a block. */
  private waitForBlock(): void {
    const { reactor, blocks, log } = this.context;
    log.limited('buffers', 'all buffers hold bytes for peers that do not take them: new connections wait');
    reactor.remove(this.fd);
    blocks.whenFree(() => {
      if (!this.isStranger) return;
      reactor.add(this.fd, this, EPOLLIN);
    });
  }

  dueMs(): number {
    return this.strangerDueMs;
  }

  onDeadline(): void {
    this.context.log.debug(`${this.client}: no complete request until the deadline`);
    this.close(closeOrderly);
  }

  private distrust(error: ProtocolError): void {
    const { log, reactor } = this.context;
    this.isStranger = false;
    // Whoever looks for servers, replays, or has a wrong clock comes again and again.
    log.limited(error.code, `failed to handshake with ${this.client}: ${error.message}`);
    reactor.timers.delete(this);
    reactor.remove(this.fd);
    this.release();
    this.drain(this.strangerDueMs, closeOrderly);
  }

  private drain(closeMs: number, close: (fd: number) => void): void {
    new Drain(this.context, this.fd, closeMs, close, () => this.context.limits.leave()).start();
  }

  // ---- 2. the target

  private reach(target: AddressRead): void {
    const { reactor, names } = this.context;
    this.isStranger = false;
    reactor.timers.delete(this);
    reactor.remove(this.fd);
    if (target.endpoint !== undefined) return this.dial([target.endpoint]);
    names.resolve(target.host, target.port, (found, failure) => {
      if (found.length > 0) this.dial(found);
      else this.onAllFailed(failure);
    });
  }

  private dial(endpoints: readonly Endpoint[]): void {
    new Dial(this.context, endpoints, this.context.connectOptions, this).start();
  }

  onAttemptFailed(endpoint: Endpoint, reason: string): void {
    this.context.log.debug(`${this.client} -> ${endpoint}: ${reason}`);
  }

  /** The client has proved who it is, so it may know: RST, as the target itself would have said. */
  onAllFailed(reason: string): void {
    const { target } = this;
    this.context.log.error(`${this.client} -> ${target!.host}:${target!.port}: ${reason}`);
    this.close(closeReset);
  }

  // ---- 3. the pair

  onConnected(targetFd: number, endpoint: Endpoint): void {
    const { log, userCounters } = this.context;
    const { user } = this.streams;
    if (log.verbose) log.debug(`${this.client}${this.userName()} -> ${endpoint}`);
    const { opened, openedFrom, openedTo, rest } = this;
    this.opened = undefined;
    userCounters?.connected(user);
    userCounters?.add(user, openedTo - openedFrom, 0);
    const pair = new Pair(
      this.context,
      {
        plainFd: targetFd,
        cipherFd: this.fd,
        encoder: this.streams.createEncoder(),
        decoder: this.streams.decoder,
        user,
        opened: opened && { block: opened, from: openedFrom, to: openedTo },
        rest,
        plainName: 'target',
        cipherName: 'client',
      },
      this,
    );
    pair.start({ plain: true, cipher: false });
  }

  private userName(): string {
    const { user } = this.streams;
    return user < 0 ? '' : ` (${this.context.credentials.users[user]!.name})`;
  }

  onForged(error: ProtocolError): void {
    const { log, reactor } = this.context;
    log.error(`${this.client}: the stream broke: ${error.message}`);
    // It has proved who it is before, so RST gives nothing away, and its client must not take the cut stream for whole.
    this.drain(reactor.nowMs + strangerMinMs + Math.random() * (strangerMaxMs - strangerMinMs), closeReset);
  }

  onClosed(reason: string | undefined): void {
    const { log, limits } = this.context;
    if (log.verbose) log.debug(`${this.client}: ${reason ?? 'ended'}`);
    limits.leave();
  }

  // ---- the end before there is a pair

  private close(how: (fd: number) => void): void {
    const { reactor, limits } = this.context;
    this.isStranger = false;
    reactor.timers.delete(this);
    reactor.forget(this.fd);
    this.release();
    how(this.fd);
    limits.leave();
  }

  private release(): void {
    this.opened = this.giveBack(this.opened);
    this.rest.release();
  }

  private giveBack(block: Block | undefined): undefined {
    if (block !== undefined) this.context.blocks.release(block);
    return undefined;
  }
}
