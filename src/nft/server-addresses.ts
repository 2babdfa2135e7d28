/** The addresses of the servers, asked for again and again: of a name that has no answer for once the last one counts. */
import { isIP } from 'node:net';
import { resolveServers } from './addresses.js';

const regularMs = 60_000;
const firstRetryMs = 1000;

export class ServerAddresses {
  readonly #onFailure: (message: string) => void;
  readonly #answers = new Map<string, string[]>();
  readonly #failing = new Set<string>();
  #servers: readonly string[] = [];
  #retryMs = firstRetryMs;

  /** `onFailure` hears of a name once, until it has had an answer again. */
  constructor(onFailure: (message: string) => void) {
    this.#onFailure = onFailure;
  }

  /** Resolves all of them anew. */
  async ask(servers: readonly string[]): Promise<string[]> {
    this.#servers = servers;
    await Promise.all(servers.map((host) => this.#askOne(host)));
    this.#retryMs = this.#failing.size === 0 ? firstRetryMs : Math.min(2 * this.#retryMs, regularMs);
    return this.known;
  }

  async #askOne(host: string): Promise<void> {
    let failure: string | undefined;
    const found = await resolveServers([host], (message) => (failure = message));
    if (found.length > 0) {
      this.#answers.set(host, found);
      this.#failing.delete(host);
      return;
    }
    if (!this.#failing.has(host)) this.#onFailure(failure ?? `${host} has no address`);
    this.#failing.add(host);
  }

  /** Sorted: name servers turn their answers round. */
  get known(): string[] {
    return [...new Set(this.#servers.flatMap((host) => this.#answers.get(host) ?? []))].toSorted();
  }

  /** When to ask again; undefined where there is no name. */
  get nextMs(): number | undefined {
    if (this.#servers.every((host) => isIP(host.split('%', 1)[0]!) !== 0)) return undefined;
    return this.#failing.size > 0 ? this.#retryMs : regularMs;
  }
}
