/**
 * A connection of ss-redir, in the order of events:
 *
 * 1. The kernel has accepted a client that believes to talk to its target. `target` asks the socket where it was going.
 * 2. A connection that was going to us is refused: it would be relayed to ourselves, without end.
 * 3. A server is dialled; when it does not answer, the next one. The client's bytes wait in the kernel meanwhile.
 * 4. The pair relays. Its header, the target's address, goes with the client's first bytes, or alone after a moment.
 */
import type { ProtocolError } from '../errors.js';
import { SyscallError } from '../errors.js';
import type { Endpoint } from '../linux/sockaddr.js';
import {
  closeReset,
  type ConnectOptions,
  isLocalAddress,
  localEndpoint,
  originalDestination,
} from '../linux/socket.js';
import { writeIpAddress } from '../protocol/address.js';
import { Access, accessOf } from './access.js';
import type { RelayContext } from './context.js';
import { Dial, type DialEvents } from './dial.js';
import { Pair, type PairEvents } from './pair.js';
import type { Upstreams } from './upstream.js';

/** How long the header waits for the client's first bytes. A client on the LAN that speaks first has spoken by then. */
const firstBytesMs = 100;

/** Learns where an accepted client was going; undefined when it was going nowhere but to us. */
export type TargetOf = (fd: number, client: Endpoint) => Endpoint | undefined;

/** REDIRECT: the firewall rewrote the destination and connection tracking remembers it. */
export const redirectTarget: TargetOf = (fd, client) => originalDestination(fd, client.isIpv4);

/** TPROXY: the destination is untouched, so the socket's own address is the target. */
export const tproxyTarget: TargetOf = (fd) => localEndpoint(fd);

export class Redir {
  private readonly context: RelayContext;
  private readonly upstreams: Upstreams;
  private readonly target: TargetOf;
  private readonly listenPort: number;
  private readonly connectOptions: ConnectOptions;
  /** Of the servers that have none of their own. */
  private readonly access: Access;

  constructor(
    context: RelayContext,
    upstreams: Upstreams,
    target: TargetOf,
    listenPort: number,
    tos: number,
  ) {
    this.context = context;
    this.upstreams = upstreams;
    this.target = target;
    this.listenPort = listenPort;
    this.connectOptions = { ...context.connectOptions, tos };
    this.access = new Access(context);
  }

  onConnection(fd: number, client: Endpoint): void {
    const target = this.learnTarget(fd, client);
    if (target !== undefined) {
      this.serve(fd, client, target);
      return;
    }
    closeReset(fd);
    this.context.limits.leave();
  }

  private serve(fd: number, client: Endpoint, target: Endpoint): void {
    const { access, upstreams, connectOptions } = this;
    new RedirConnection(access, upstreams, connectOptions, fd, client, target).start();
  }

  /** Where the client was going; undefined when it must not be relayed. Both questions want system calls, which may fail. */
  private learnTarget(fd: number, client: Endpoint): Endpoint | undefined {
    try {
      const target = this.target(fd, client);
      if (target === undefined) {
        this.context.log.limited(
          'no rule',
          `refused ${client}: it was not sent here by a REDIRECT rule, so it has no target`,
        );
      }
      return target === undefined || this.isLoop(client, target) ? undefined : target;
    } catch (error) {
      if (!(error instanceof SyscallError)) throw error;
      this.context.log.limited('no target', `refused ${client}: its target is not known: ${error.message}`);
      return undefined;
    }
  }

  private isLoop(client: Endpoint, target: Endpoint): boolean {
    const { log } = this.context;
    if (target.port === this.listenPort && isLocalAddress(target)) {
      log.limited(
        'own port',
        `refused ${client}: it connected to our own port at ${target} instead of being sent here by a rule`,
      );
      return true;
    }
    if (this.upstreams.has(target) && isLocalAddress(client)) {
      log.limited(
        'loop',
        `refused ${client}: our own connection to the server ${target} came back: let marked traffic out first`,
      );
      return true;
    }
    return false;
  }
}

class RedirConnection implements DialEvents, PairEvents {
  private readonly context: RelayContext;
  private readonly upstreams: Upstreams;
  private readonly options: ConnectOptions;
  private readonly clientFd: number;
  private readonly client: Endpoint;
  private readonly target: Endpoint;
  private readonly acceptedMs: number;
  /** Of the server, once that is known. */
  private access: Access;
  private server: Endpoint | undefined;

  constructor(
    access: Access,
    upstreams: Upstreams,
    options: ConnectOptions,
    clientFd: number,
    client: Endpoint,
    target: Endpoint,
  ) {
    this.access = access;
    this.context = access.context;
    this.upstreams = upstreams;
    this.options = options;
    this.clientFd = clientFd;
    this.client = client;
    this.target = target;
    this.acceptedMs = this.context.reactor.nowMs;
  }

  start(): void {
    const { context } = this;
    new Dial(context, this.upstreams.order(context.reactor.nowMs), this.options, this).start();
  }

  onAttemptFailed(server: Endpoint, reason: string, ours: boolean): void {
    const { log, reactor } = this.context;
    if (ours) return log.limited('dial', `server ${server}: ${reason}`);
    const news = this.upstreams.failed(server, reactor.nowMs);
    if (news) log.error(`server ${server}: ${reason}`);
    else log.debug(`server ${server}: ${reason}`);
  }

  onAllFailed(reason: string): void {
    this.context.log.limited(
      'no server',
      `${this.client} -> ${this.target}: no server could be reached: ${reason}`,
    );
    closeReset(this.clientFd);
    this.context.limits.leave();
  }

  onConnected(serverFd: number, server: Endpoint): void {
    const { target } = this;
    this.server = server;
    this.access = accessOf(server, this.access);
    const { context } = this.access;
    const { log } = context;
    if (!this.options.fastOpen) this.upstreams.succeeded(server);
    if (log.verbose) log.debug(`${this.client} -> ${target} by ${server}`);
    const { encoder, decoder } = this.access.openStreams(writeIpAddress(target.address, target.port));
    const pair = new Pair(
      context,
      {
        plainFd: this.clientFd,
        cipherFd: serverFd,
        encoder,
        decoder,
        headerDueMs: this.acceptedMs + firstBytesMs,
        plainName: 'client',
        cipherName: 'server',
      },
      this,
    );
    pair.start({ plain: false, cipher: true });
  }

  onForged(error: ProtocolError, serverFd: number): void {
    const { log, limits } = this.context;
    const why = error.code === 'FORGED' ? 'invalid password or cipher: ' : '';
    log.limited(error.code, `${this.client} -> ${this.target}: ${why}${error.message}`);
    closeReset(serverFd);
    limits.leave();
  }

  onClosed(reason: string | undefined, answered: boolean): void {
    const { log, limits, reactor, method } = this.access.context;
    // With Fast Open the connection stood on paper only when the pair began: here is where a dead server shows.
    if (this.options.fastOpen && reason !== undefined && !answered)
      this.upstreams.failed(this.server!, reactor.nowMs);
    if (this.upstreams.tooManySilences(answered)) {
      log.limited(
        'silence',
        `server ${this.server} ends one connection after another without an answer: do its ${method.edition === '2022' ? 'key, method and clock' : 'password and method'} agree with ours?`,
      );
    }
    if (log.verbose) log.debug(`${this.client} -> ${this.target}: ${reason ?? 'ended'}`);
    limits.leave();
  }
}
