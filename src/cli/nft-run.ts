/** What ss-nft does with its command line: settings from configuration and options, then the command. */
import { readFileSync } from 'node:fs';
import { gatewayInput } from '../config/gateway.js';
import type { Settings } from '../config/setting.js';
import { ConfigError, ConflictError, ToolError, UsageError } from '../errors.js';
import { renderNames } from '../nft/domains.js';
import { check, down, downAll, refresh, render, up, type Removed } from '../nft/gateway.js';
import { forgetHolder, heldInstances, HolderClient } from '../nft/holder-client.js';
import { listOurTables } from '../nft/loaded.js';
import { dnsTableOf, killTableOf, rulesTableOf, tablePrefix } from '../nft/names.js';
import { readGatewaySettings, type GatewaySettings } from '../nft/settings.js';
import { formatStatus, readStatus } from '../nft/status.js';
import { oneLine } from '../text.js';
import { helpText } from './help.js';
import { hold } from './nft-hold.js';
import { parseNftCommandLine, type NftCommand, type NftCommandLine } from './nft-parse.js';

const exitFailed = 1;
const exitUsage = 2;
/** `status` or `check` found it not as wanted. */
const exitNotAsWanted = 3;
const exitInternal = 70; // sysexits.h, EX_SOFTWARE

const commands: Readonly<Record<NftCommand, (line: NftCommandLine) => Promise<number>>> = {
  up: async (line) => {
    const settings = await settingsOf(line);
    await HolderClient.with(line.instance, async (holder) => {
      if (holder === undefined) await up(settings, warn);
      else await holder.apply(await inputOf(line), warn);
    });
    return 0;
  },
  down: async ({ all, instance, killSwitch }) => {
    const held: Pick<Removed, 'tables' | 'routing'>[] = [];
    for (const name of all ? heldInstances() : [instance]) held.push(await stopHolder(name));
    const rest = all ? await downAll() : await down(instance, { killSwitch });
    reportRemoved({
      tables: [...held.flatMap(({ tables }) => tables), ...rest.tables],
      routing: [...held.flatMap(({ routing }) => routing), ...rest.routing],
      kept: rest.kept,
    });
    return 0;
  },
  hold: async (line) => {
    const read = () => settingsOf(line);
    const hasFile = (await fileSettings(line.instance, wantsFile(line), line.configFile)).size > 0;
    // Its connections and children have ended as well: nothing is left to wait for.
    process.exit(await hold(line, hasFile, read));
  },
  render: async (line) => {
    print(await render(await settingsOf(line), warn));
    return 0;
  },
  check: async (line) => {
    const settings = await settingsOf(line);
    try {
      await HolderClient.with(line.instance, (holder) =>
        check(settings, warn, { isHeld: holder !== undefined }),
      );
    } catch (error) {
      if (!(error instanceof ConflictError) && !(error instanceof ToolError)) throw error;
      complain(error);
      return exitNotAsWanted;
    }
    return 0;
  },
  status: async ({ all, instance, json }) => {
    const instances = all ? await instancesThere() : [instance];
    const found = await Promise.all(instances.map(readStatus));
    if (json) print(`${JSON.stringify(all ? found : found[0], undefined, 2)}\n`);
    else print(found.map((status) => `${status.instance}\n${formatStatus(status)}`).join('\n'));
    return found.some(({ problems }) => problems.length > 0) ? exitNotAsWanted : 0;
  },
  refresh: async (line) => {
    await HolderClient.with(line.instance, async (holder) => {
      if (holder === undefined) await refresh(await settingsOf(line), warn);
      else await holder.refresh(warn);
    });
    return 0;
  },
  names: async (line) => {
    print(renderNames(await settingsOf(line)));
    return 0;
  },
};

export async function runNft(): Promise<void> {
  process.exitCode = await exitCodeOf(process.argv.slice(2));
}

async function exitCodeOf(argv: readonly string[]): Promise<number> {
  try {
    const line = parseNftCommandLine(argv);
    if (line.command === 'help') {
      print(helpText('ss-nft', packageVersion()));
      return 0;
    }
    if (line.command === 'version') {
      print(`ss-nft ${packageVersion()}\n`);
      return 0;
    }
    return await commands[line.command](line);
  } catch (error) {
    if (error instanceof UsageError) return failed(error, exitUsage);
    if (error instanceof ConfigError || error instanceof ToolError || error instanceof ConflictError) {
      return failed(error, exitFailed);
    }
    const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
    process.stderr.write(`ss-nft: internal error: ${oneLine(stack.replaceAll(/\n\s*/g, ' | '))}\n`);
    return exitInternal;
  }
}

function failed(error: Error, exitCode: number): number {
  complain(error);
  return exitCode;
}

async function settingsOf(line: NftCommandLine): Promise<GatewaySettings> {
  const input = await inputOf(line);
  try {
    return readGatewaySettings(input, line.instance);
  } catch (error) {
    const isCommandLine = [...input.values()].every(({ fromCommandLine }) => fromCommandLine);
    if (isCommandLine && error instanceof ConfigError) throw new UsageError(error.message);
    throw error;
  }
}

/** Options win over the file, key by key. */
async function inputOf({ instance, isNamed, configFile, settings }: NftCommandLine): Promise<Settings> {
  const file = await fileSettings(instance, wantsFile({ isNamed, settings }), configFile);
  return new Map([...file, ...settings]);
}

/** Not what the holder of another network namespace needs. */
async function forgetUnheld(instance: string): Promise<void> {
  const elsewhere = await HolderClient.find(instance);
  if (elsewhere === undefined) forgetHolder(instance);
  else elsewhere.close();
}

/** What goes with the holder of an instance, if there is one. */
async function stopHolder(instance: string): Promise<Pick<Removed, 'tables' | 'routing'>> {
  return HolderClient.with(instance, async (holder) => {
    if (holder === undefined) {
      await forgetUnheld(instance);
      return { tables: [], routing: [] };
    }
    const { isService, pid } = holder.status;
    if (isService) {
      throw new ConfigError(
        `the rules of ${instance} are held by a service, process ${pid}, which would start again: systemctl stop ss-redir@${instance} ss-redir-rules@${instance}`,
      );
    }
    const { tables, routing } = await holder.stop();
    return { routing, tables: [rulesTableOf(instance), ...tables] };
  });
}

/** A name alone stands for its configuration. */
function wantsFile({ isNamed, settings }: Pick<NftCommandLine, 'isNamed' | 'settings'>): boolean {
  return isNamed && !settings.has('local_port');
}

/** By ss-redir's own parser, so that both read the same servers and ports. */
async function fileSettings(
  instance: string,
  isWanted: boolean,
  configFile: string | undefined,
): Promise<Settings> {
  if (configFile === undefined && !isWanted) return new Map();
  // Here, since it brings the ciphers with it: what needs no configuration starts sooner.
  const { loadConfig } = await import('./load-config.js');
  const words = configFile === undefined ? ['--instance', instance] : ['-c', configFile];
  const config = loadConfig('ss-redir', words);
  for (const warning of config.warnings) warn(warning);
  return gatewayInput(config);
}

async function instancesThere(): Promise<string[]> {
  const others = [dnsTableOf(''), killTableOf('')];
  const tables = (await listOurTables()).filter((name) => !others.some((prefix) => name.startsWith(prefix)));
  return tables.map((name) => name.slice(tablePrefix.length));
}

function reportRemoved({ tables, routing, kept }: Removed): void {
  if (tables.length + routing.length === 0) print('nothing to remove\n');
  for (const name of tables) print(`removed table inet ${name}\n`);
  for (const words of routing) print(`removed ${words}\n`);
  for (const name of kept) {
    warn(
      `the kill switch, table inet ${name}, stays and stops what was proxied (down --kill-switch removes it)`,
    );
  }
}

function complain(error: Error): void {
  for (const line of error.message.split('\n')) process.stderr.write(`ss-nft: ${line}\n`);
}

function warn(text: string): void {
  process.stderr.write(`ss-nft: ${oneLine(text)}\n`);
}

function print(text: string): void {
  process.stdout.on('error', () => {}); // EPIPE: whoever asked has read enough
  process.stdout.write(text);
}

function packageVersion(): string {
  const file = new URL('../../../package.json', import.meta.url);
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}
