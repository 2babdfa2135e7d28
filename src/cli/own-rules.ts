/**
 * `ss-redir --rules`: the rules come before the first client is served and go with a clean stop. They are held by a process of
 * their own (`ss-nft hold`), which outlives a crash, so that nothing goes out in clear until the next start takes it over; with
 * `--fail open` it ends when this process does.
 */
import { fileURLToPath } from 'node:url';
import type { Config } from '../config/config.js';
import { gatewayInput } from '../config/gateway.js';
import type { Setting, Settings } from '../config/setting.js';
import { ConfigError } from '../errors.js';
import type { Logger } from '../log.js';
import { HolderClient } from '../nft/holder-client.js';
import { defaultInstance } from '../nft/names.js';
import { readGatewaySettings } from '../nft/settings.js';
import { runTool } from '../nft/tools.js';
import { nftOptions } from './options-nft.js';

/** A stop is not held up for longer. */
const stopPatienceMs = 5000;

const program = fileURLToPath(new URL('../bin/ss-nft.js', import.meta.url));

export class OwnRules {
  /** Not those of an earlier start. */
  readonly areNew: boolean;
  readonly #log: Logger;
  #holder: HolderClient;
  #config: Config;

  private constructor(config: Config, { holder, areNew }: Held, log: Logger) {
    this.#config = config;
    this.#holder = holder;
    this.areNew = areNew;
    this.#log = log;
    this.#watch();
  }

  /**
   * Resolves when the rules are in force. The connection to their holder stays open: once the user is another one, no new one
   * could be made.
   *
   * @throws {ConfigError | ToolError}
   */
  static async bring(config: Config, log: Logger): Promise<OwnRules> {
    return new OwnRules(config, await findOrStart(config, log), log);
  }

  #watch(): void {
    this.#holder.onGone(() => {
      this.#log.error('the holder of the rules has ended, and the rules with it: they are made again');
      void this.#bringAgain();
    });
  }

  /** After -a that is for the privileged alone. */
  async #bringAgain(): Promise<void> {
    try {
      this.#holder = (await findOrStart(this.#config, this.#log)).holder;
      this.#watch();
    } catch (error) {
      this.#log.error(
        `there are no rules, traffic goes past ss-redir: ${(error as Error).message} (restart it)`,
      );
    }
  }

  /** After the configuration was read again. After a failure the rules are as before. */
  async replace(config: Config): Promise<void> {
    const { settings, fail } = rulesOf(config);
    await this.#holder.apply(settings, (text) => this.#log.warn(text));
    await this.#holder.follow(fail === 'open');
    this.#config = config;
  }

  /** A clean stop: nothing of them stays, but for the kill switch. */
  async takeAway(): Promise<void> {
    try {
      await this.#holder.stop(stopPatienceMs);
    } catch (error) {
      this.#log.warn(`the rules are not taken away: ${(error as Error).message}`);
    }
  }
}

interface Held {
  readonly holder: HolderClient;
  readonly areNew: boolean;
}

/** Takes over the holder that is there, or starts one. */
async function findOrStart(config: Config, log: Logger): Promise<Held> {
  const { instance, settings, fail } = rulesOf(config);
  let holder = await HolderClient.findHere(instance);
  const areNew = holder === undefined;
  if (holder === undefined) {
    await runTool(process.execPath, [program, 'hold', instance, '--detach', ...optionsOf(settings)]);
    holder = await HolderClient.findHere(instance);
  } else {
    log.info(`rules: taken over from process ${holder.status.pid}, which holds them`);
    try {
      await holder.apply(settings, (text) => log.warn(text));
    } catch (error) {
      holder.close();
      throw error;
    }
  }
  if (holder === undefined)
    throw new ConfigError(`the rules of ${instance} were made, and their holder ended`);
  await holder.follow(fail === 'open');
  holder.unref();
  return { holder, areNew };
}

function rulesOf(config: Config) {
  const { instance = defaultInstance } = config;
  const settings = gatewayInput(config);
  return { instance, settings, fail: readGatewaySettings(settings, instance).fail };
}

/** Each setting as the option of ss-nft that says the same. */
function optionsOf(settings: Settings): string[] {
  return [...settings].flatMap(([key, setting]) => optionOf(key, setting));
}

function optionOf(key: string, { value }: Setting): string[] {
  if (value === null) return [];
  const candidates = nftOptions.filter((option) => option.key === key);
  const valued = candidates.find(({ argument }) => argument !== undefined);
  if (valued !== undefined) return [value].flat().map((item) => `--${valued.long}=${String(item)}`);
  const flag = candidates.find(({ sets = 'true' }) => sets === String(value));
  return flag === undefined ? [] : [`--${flag.long}`];
}
