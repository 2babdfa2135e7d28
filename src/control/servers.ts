/**
 * Keeps the servers' addresses known: those given as names are resolved at the start and again when the answer has aged.
 * A name that does not resolve stops nothing: it is asked again with growing pauses, and addresses once known stay.
 */
import { isIP } from 'node:net';
import type { ServerAddress, ServerTraits } from '../relay/plan.js';
import type { Dns } from './dns.js';

const minRefreshSeconds = 5;
const maxRefreshSeconds = 600;
const maxRetrySeconds = 30;
/** So long may the first answers keep clients waiting; then those without a server are refused instead. */
const firstAnswerMs = 5000;

export interface ServerName extends ServerTraits {
  host: string;
  port: number;
}

export class Servers {
  private readonly servers: readonly ServerName[];
  private readonly dns: Dns;
  private readonly onChange: (addresses: ServerAddress[]) => void;
  private readonly onFailure: (message: string) => void;
  private readonly known: string[][];
  private readonly timers = new Set<NodeJS.Timeout>();
  private onKnown!: () => void;
  private readonly anyKnown = new Promise<void>((resolve) => {
    this.onKnown = resolve;
  });
  private closed = false;

  constructor(
    servers: readonly ServerName[],
    dns: Dns,
    onChange: (addresses: ServerAddress[]) => void,
    onFailure: (message: string) => void,
  ) {
    this.servers = servers;
    this.dns = dns;
    this.onChange = onChange;
    this.onFailure = onFailure;
    // Addresses are there from the first moment, all of them: a list that began with one of two servers would make the
    // first connections fail whenever it was that one that is down.
    this.known = servers.map(({ host }) => (isIP(host.split('%', 1)[0]!) === 0 ? [] : [host]));
  }

  /** Resolves when an address is known, or after a while without: `onChange` has been called by then. */
  async start(): Promise<void> {
    if (this.known.some((addresses) => addresses.length > 0)) this.onKnown();
    const first = this.servers.map((_, i) => this.refresh(i, 1));
    const late = new Promise<void>((resolve) => {
      this.timers.add(setTimeout(resolve, firstAnswerMs).unref());
    });
    await Promise.race([this.anyKnown, Promise.all(first), late]);
    this.tell();
  }

  close(): void {
    this.closed = true;
    for (const timer of this.timers) clearTimeout(timer);
  }

  private async refresh(index: number, retrySeconds: number): Promise<void> {
    try {
      const { addresses, ttlSeconds } = await this.dns.resolve(this.servers[index]!.host);
      this.learned(index, addresses);
      if (ttlSeconds === Infinity) return;
      this.again(index, Math.min(Math.max(ttlSeconds, minRefreshSeconds), maxRefreshSeconds), 1);
    } catch (error) {
      if (this.closed) return;
      this.onFailure(`server: ${(error as Error).message}; asking again in ${retrySeconds} s`);
      this.again(index, retrySeconds, Math.min(retrySeconds * 2, maxRetrySeconds));
    }
  }

  private learned(index: number, addresses: string[]): void {
    if (this.closed || addresses.join() === this.known[index]!.join()) return;
    this.known[index] = addresses;
    this.tell();
    this.onKnown();
  }

  private tell(): void {
    this.onChange(this.servers.flatMap((server, i) => this.known[i]!.map((address) => at(address, server))));
  }

  private again(index: number, seconds: number, retrySeconds: number): void {
    if (this.closed) return;
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      void this.refresh(index, retrySeconds);
    }, seconds * 1000);
    timer.unref();
    this.timers.add(timer);
  }
}

function at(address: string, { port, keys, without }: ServerName): ServerAddress {
  return { address, port, ...(keys !== undefined && { keys }), ...(without !== undefined && { without }) };
}
