/** `ss-nft hold`: rules that are there as long as it runs. */
import { ConfigError, ConflictError, ToolError } from '../errors.js';
import { openLog } from '../log.js';
import type { Removed } from '../nft/gateway.js';
import { HolderServer } from '../nft/holder-server.js';
import { Holder } from '../nft/holder.js';
import type { GatewaySettings } from '../nft/settings.js';
import { rulesTableOf } from '../nft/names.js';
import { Notifier } from '../systemd/notify.js';
import type { NftCommandLine } from './nft-parse.js';
import { Launcher, openBackgroundLog, startInBackground, takeBackgroundMark } from './background.js';
import { watchTerminal } from './hang-up.js';

const ident = 'ss-nft';
const exitFailed = 1;

/**
 * @param read the settings of the command line and its files, again at each reload.
 * @param hasFile whether they are of a configuration file, and not of the command line alone.
 * @returns the exit status, when it has ended.
 */
export async function hold(
  { instance, detach }: Pick<NftCommandLine, 'instance' | 'detach'>,
  hasFile: boolean,
  read: (warn: (text: string) => void) => Promise<GatewaySettings>,
): Promise<number> {
  const launcher = takeBackgroundMark(process.env) ? new Launcher() : undefined;
  if (detach && launcher === undefined) return startInBackground(openLog({ ident }));
  const log = launcher === undefined ? openLog({ ident }) : openBackgroundLog(ident, launcher);
  const warn = (text: string): void => log.warn(text);
  const notifier = Notifier.take(process.env, warn);
  const settings = await read(warn);

  let isForeign = false;
  let stopping: Promise<Removed> | undefined;
  let finish: (status: number) => void;
  const finished = new Promise<number>((resolve) => (finish = resolve));
  const holder = new Holder(instance, {
    onWarning: warn,
    onInfo: (text) => log.info(text),
    onFailure: (error) => {
      log.error(`the rules could not be loaded again: ${error.message}`);
      void stop('without rules there is nothing to hold', exitFailed);
    },
  });
  const stop = (why: string, status = 0): Promise<Removed> => {
    stopping ??= (async () => {
      log.info(`stopping: ${why}`);
      notifier.stopping();
      const removed = await holder.end();
      void server.close().then(() => finish(status));
      return removed;
    })();
    return stopping;
  };
  const server = new HolderServer(instance, holder, notifier.connected, {
    stop,
    onApplied: () => (isForeign = true),
  });
  await server.listen();
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal));
  const isHungUp = watchTerminal();
  process.on('SIGHUP', () => void (isHungUp() ? stop('SIGHUP') : reload()));
  try {
    await holder.apply(settings, warn);
  } catch (error) {
    await stop('the rules are refused').catch(() => {});
    throw error;
  }
  log.info(`holding table inet ${rulesTableOf(instance)}`);
  notifier.ready('rules are in force');
  launcher?.ready();
  return finished;

  async function reload(): Promise<void> {
    notifier.reloading();
    let status = 'rules are in force';
    try {
      // Settings that came over the socket are newer than a command line; a file may be newer than they.
      if (isForeign && !hasFile) await holder.refresh(warn);
      else await holder.apply(await read(warn), warn);
      log.info('reloaded');
    } catch (error) {
      if (!isRefusal(error)) throw error;
      for (const line of error.message.split('\n')) log.error(`not reloaded, nothing is changed: ${line}`);
      status = `not reloaded: ${error.message.split('\n', 1)[0]}`;
    }
    notifier.ready(status);
  }
}

function isRefusal(error: unknown): error is Error {
  return error instanceof ConfigError || error instanceof ToolError || error instanceof ConflictError;
}
