/** What ss-nft does with its command line: settings from configuration and options, then the command. */
import { readFileSync } from 'node:fs';
import { gatewayInput } from '../config/gateway.js';
import type { Settings } from '../config/setting.js';
import { ConfigError, UsageError } from '../errors.js';
import { renderNames } from '../nft/domains.js';
import { check, ConflictError, down, downAll, refresh, render, up, type Removed } from '../nft/gateway.js';
import { listOurTables } from '../nft/loaded.js';
import { dnsTableOf, killTableOf, tablePrefix } from '../nft/names.js';
import { readGatewaySettings, type GatewaySettings } from '../nft/settings.js';
import { formatStatus, readStatus } from '../nft/status.js';
import { ToolError } from '../nft/tools.js';
import { oneLine } from '../text.js';
import { helpText } from './help.js';
import { parseNftCommandLine, type NftCommand, type NftCommandLine } from './nft-parse.js';

const exitFailed = 1;
const exitUsage = 2;
/** `status` or `check` found it not as wanted. */
const exitNotAsWanted = 3;
const exitInternal = 70; // sysexits.h, EX_SOFTWARE

const commands: Readonly<Record<NftCommand, (line: NftCommandLine) => Promise<number>>> = {
  up: async (line) => {
    await up(await settingsOf(line), warn);
    return 0;
  },
  down: async ({ all, instance, killSwitch }) => {
    reportRemoved(all ? await downAll() : await down(instance, { killSwitch }));
    return 0;
  },
  render: async (line) => {
    print(await render(await settingsOf(line), warn));
    return 0;
  },
  check: async (line) => {
    const settings = await settingsOf(line);
    try {
      await check(settings, warn);
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
    await refresh(await settingsOf(line), warn);
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

/** Options win over the file, key by key. */
async function settingsOf({
  instance,
  isNamed,
  configFile,
  settings,
}: NftCommandLine): Promise<GatewaySettings> {
  const merged = new Map(await fileSettings(instance, isNamed && !settings.has('local_port'), configFile));
  const isCommandLine = merged.size === 0;
  for (const [key, setting] of settings) merged.set(key, setting);
  try {
    return readGatewaySettings(merged, instance);
  } catch (error) {
    if (isCommandLine && error instanceof ConfigError) throw new UsageError(error.message);
    throw error;
  }
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
