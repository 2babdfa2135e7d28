/**
 * Which server next. Healthy ones take turns; one that could not be reached is left out for a while, longer each time in
 * a row, but stays as the last resort: with every server down, trying is better than refusing.
 */
import type { Endpoint } from '../linux/sockaddr.js';
import { isSameServer } from './access.js';

const firstPenaltyMs = 10_000;
const maxPenaltyMs = 120_000;
/** Targets that close without a word are common, so many in a row are not. */
const suspectSilences = 3;

interface Server {
  endpoint: Endpoint;
  /** Failures in a row. */
  failures: number;
  /** UDP sessions in a row that were not answered. */
  silences: number;
  badUntilMs: number;
}

const unknown = { failures: 0, silences: 0, badUntilMs: 0 } as const;

export class Upstreams {
  private servers: Server[] = [];
  private turn = 0;
  private silences = 0;

  /** Replaces the list, keeping what is known of servers that stay. */
  set(endpoints: readonly Endpoint[]): void {
    const known = this.servers;
    this.servers = endpoints.map((endpoint) => {
      const same = known.find((server) => isSameServer(server.endpoint, endpoint));
      if (same !== undefined) return same;
      // After a reload a server is spoken to anew: what is known of it is known of its address.
      const { failures, silences, badUntilMs } =
        known.find((server) => server.endpoint.equals(endpoint)) ?? unknown;
      return { endpoint, failures, silences, badUntilMs };
    });
  }

  get size(): number {
    return this.servers.length;
  }

  /** Whether there is a server at the address, and one that `fits`. */
  has(endpoint: Endpoint, fits: (server: Endpoint) => boolean = () => true): boolean {
    return this.servers.some((server) => server.endpoint.equals(endpoint) && fits(server.endpoint));
  }

  /** All servers in the order to try them: the healthy ones from the next turn on, then the one whose penalty ends first. */
  order(nowMs: number): Endpoint[] {
    const { servers } = this;
    if (servers.length === 1) return [servers[0]!.endpoint];
    const from = this.turn++ % Math.max(1, servers.length);
    const turned = [...servers.slice(from), ...servers.slice(0, from)];
    const healthy = turned.filter((server) => server.badUntilMs <= nowMs);
    const bad = turned
      .filter((server) => server.badUntilMs > nowMs)
      .toSorted((a, b) => a.badUntilMs - b.badUntilMs);
    return [...healthy, ...bad].map((server) => server.endpoint);
  }

  /** Nothing is known against it, as is so of a server that is not among these. */
  isHealthy(endpoint: Endpoint, nowMs: number): boolean {
    const server = this.find(endpoint);
    return server === undefined || server.badUntilMs <= nowMs;
  }

  /** Returns true when this is news: the server was thought healthy until now. */
  failed(endpoint: Endpoint, nowMs: number): boolean {
    const server = this.find(endpoint);
    if (server === undefined) return false;
    const news = server.badUntilMs <= nowMs;
    if (news) server.failures++;
    server.badUntilMs = nowMs + Math.min(maxPenaltyMs, firstPenaltyMs * 2 ** (server.failures - 1));
    return news;
  }

  succeeded(endpoint: Endpoint): void {
    const server = this.find(endpoint);
    if (server === undefined) return;
    server.failures = 0;
    server.silences = 0;
    server.badUntilMs = 0;
  }

  /**
   * A UDP session is not answered. Its target may be one that never does, so only several in a row are the server's failure.
   * Returns true when that is news.
   */
  silent(endpoint: Endpoint, nowMs: number): boolean {
    const server = this.find(endpoint);
    if (server === undefined || ++server.silences < suspectSilences) return false;
    return this.failed(endpoint, nowMs);
  }

  /** Counts connections that ended without a byte from the server: a server with another key says nothing, ever. */
  tooManySilences(answered: boolean): boolean {
    this.silences = answered ? 0 : this.silences + 1;
    return this.silences >= suspectSilences;
  }

  private find(endpoint: Endpoint): Server | undefined {
    return (
      this.servers.find((server) => server.endpoint === endpoint) ??
      this.servers.find((server) => server.endpoint.equals(endpoint))
    );
  }
}
