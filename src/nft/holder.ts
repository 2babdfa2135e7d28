/**
 * Keeps the rules of an instance as long as it runs, in a table that nobody else can change or flush:
 *
 *     start   nft that stays → routing, rules → names and routing watched
 *     end     nft ends, and the kernel takes the table → table of names → routing that no instance needs any more
 *
 * What is asked of it happens one after the other. When nft alone ends, the rules are loaded anew.
 */
import { ConfigError } from '../errors.js';
import { collectAddresses, type Addresses } from './addresses.js';
import { routingOf } from './conflicts.js';
import { fillSets, refresh, removeUnheld, up, type Removed } from './gateway.js';
import { holderScratchOf } from './holder-protocol.js';
import { NftSession } from './nft-session.js';
import { readPrefix } from './ranges.js';
import { addRouting } from './routing.js';
import { RoutingWatch } from './routing-watch.js';
import { usesTproxy } from './ruleset.js';
import { ServerAddresses } from './server-addresses.js';
import type { GatewaySettings } from './settings.js';

export interface HolderEvents {
  readonly onWarning: (text: string) => void;
  readonly onInfo: (text: string) => void;
  /** The rules could not be kept. */
  readonly onFailure: (error: Error) => void;
}

export class Holder {
  readonly #instance: string;
  readonly #events: HolderEvents;
  readonly #servers: ServerAddresses;
  #settings: GatewaySettings | undefined;
  /** What stands in the sets: a look that could not fill them is made good by the next. */
  #filled = '';
  #session: NftSession | undefined;
  #watch: RoutingWatch | undefined;
  #timer: NodeJS.Timeout | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #isOver = false;

  constructor(instance: string, events: HolderEvents) {
    this.#instance = instance;
    this.#events = events;
    this.#servers = new ServerAddresses(events.onWarning);
  }

  /** Loads the rules, for the first time or in place of those that are there. After a failure everything is as before. */
  apply(settings: GatewaySettings, warn: (text: string) => void): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#isOver) throw new ConfigError('the holder is ending');
      const addresses = await this.#resolve(settings);
      this.#session ??= this.#start();
      await up(settings, warn, { writer: this.#session, addresses });
      this.#settings = settings;
      this.#filled = this.#servers.known.join();
      this.#lookAgainLater();
      this.#watch ??= new RoutingWatch(() => void this.#keepRouting());
    });
  }

  /** Names and files are read again. */
  refresh(warn: (text: string) => void): Promise<void> {
    return this.#inTurn(async () => {
      const { settings, session } = this.#held();
      const addresses = await this.#resolve(settings);
      this.#lookAgainLater();
      await refresh(settings, warn, { writer: session, addresses });
      this.#filled = this.#servers.known.join();
    });
  }

  /** @throws {ConfigError} for an element that is no address or network. */
  set(name: string, elements: readonly string[]): Promise<void> {
    return this.#inTurn(async () => {
      const wrong = elements.find((element) => readPrefix(element) === undefined);
      if (wrong !== undefined) throw new ConfigError(`set ${name}: "${wrong}" is no address or network`);
      if (!/^(?:bypass|reserved|dst_bypass|dst_forward)[46]$/.test(name))
        throw new ConfigError(
          `set "${name}": expected bypass, reserved, dst_bypass or dst_forward, and 4 or 6`,
        );
      const { settings, session } = this.#held();
      await fillSets(settings, [{ name, elements }], session);
    });
  }

  /** The rules go, and what belongs to them; not the kill switch. */
  end(): Promise<Removed> {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#watch?.close();
    return this.#inTurn(async () => {
      await this.#session?.close();
      return removeUnheld(this.#instance);
    });
  }

  #held(): { settings: GatewaySettings; session: NftSession } {
    if (this.#settings === undefined || this.#session === undefined)
      throw new ConfigError('no rules are held');
    return { settings: this.#settings, session: this.#session };
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(work);
    this.#last = turn.catch(() => {});
    return turn;
  }

  async #resolve(settings: GatewaySettings): Promise<Addresses> {
    return collectAddresses(settings, await this.#servers.ask(settings.servers));
  }

  #start(): NftSession {
    const session = new NftSession(holderScratchOf(this.#instance));
    void session.ended.then(() => {
      if (this.#isOver || this.#session !== session) return;
      this.#session = undefined;
      void this.#startAgain();
    });
    return session;
  }

  /** The table has gone with nft. */
  async #startAgain(): Promise<void> {
    const settings = this.#settings;
    if (settings === undefined) return; // whoever asked for the first rules hears of it
    this.#events.onWarning('nft has ended, and the rules with it: they are loaded again');
    try {
      await this.apply(settings, () => {});
    } catch (error) {
      this.#events.onFailure(error as Error);
    }
  }

  async #keepRouting(): Promise<void> {
    await this.#inTurn(async () => {
      if (this.#isOver || this.#settings === undefined || !usesTproxy(this.#settings)) return;
      const { isNew } = await addRouting(routingOf(this.#settings));
      if (isNew) this.#events.onWarning('policy routing was removed by others, and is there again');
    }).catch((error: Error) => this.#events.onWarning(error.message));
  }

  /** Servers' names: new addresses come into the sets, and of a name without an answer the last ones stay. */
  #lookAgainLater(): void {
    clearTimeout(this.#timer);
    const { nextMs } = this.#servers;
    if (nextMs === undefined || this.#isOver) return;
    this.#timer = setTimeout(() => void this.#lookAgain(), nextMs);
  }

  async #lookAgain(): Promise<void> {
    await this.#inTurn(async () => {
      if (this.#isOver || this.#settings === undefined) return;
      const { settings, session } = this.#held();
      const addresses = await this.#resolve(settings);
      const known = this.#servers.known.join();
      if (known === this.#filled) return;
      await refresh(settings, () => {}, { writer: session, addresses });
      this.#filled = known;
      this.#events.onInfo(`servers: ${this.#servers.known.join(', ')}`);
    }).catch((error: Error) => this.#events.onWarning(error.message));
    this.#lookAgainLater();
  }
}
