/**
 * Rules and policy routing of an instance, up and down.
 *
 *     up     names and files read → conflicts → routing → what comes before the rules, rules → old routing away
 *     down   tables, one transaction → routing that no instance needs any more
 *
 * Routing comes first and goes last: marked packets without it are stopped, but need not be. A process that is killed in
 * the middle leaves at most routing that carries our protocol number; the next `down` of any instance takes it.
 */
import { ConfigError, ConflictError } from '../errors.js';
import { collectAddresses, resolveServers, type Addresses } from './addresses.js';
import { findConflicts, hasInterface, routingOf } from './conflicts.js';
import { findTable, listOurTables, listTable, routingInUse, tablesOf } from './loaded.js';
import { dnsTableOf, killTableOf, rulesTableOf } from './names.js';
import { addRouting, hasIpv6, removeRouting } from './routing.js';
import { renderPreparation, renderRemoval, renderRules, renderSets, type Loaded } from './rules.js';
import { usesTproxy } from './ruleset.js';
import { replaceSets, type SetContents } from './sets.js';
import type { GatewaySettings } from './settings.js';
import { sysctlProblems } from './sysctls.js';
import { checkNft, checkNftApart, runNft } from './tools.js';
import { plainWriter, type Writer } from './writer.js';

/** The ruleset as it would be loaded; nothing of the kernel is looked at. */
export async function render(settings: GatewaySettings, warn: (text: string) => void): Promise<string> {
  return renderRules(settings, await addressesOf(settings, warn));
}

async function addressesOf(settings: GatewaySettings, warn: (text: string) => void): Promise<Addresses> {
  const servers = await resolveServers(settings.servers, (message) => {
    warn(
      `${message}: the way to this server is not in the bypass set, ss-redir's own connections pass by their mark`,
    );
  });
  return collectAddresses(settings, servers);
}

/** What is in the way, and what nft says of the rules. Changes nothing. */
export async function check(
  settings: GatewaySettings,
  warn: (text: string) => void,
  { isHeld = false } = {},
): Promise<void> {
  const addresses = await addressesOf(settings, warn);
  const conflicts = await findConflicts(settings, { owns: isHeld });
  if (conflicts.length > 0) throw new ConflictError(conflicts);
  const loaded = await loadedTables(settings, false);
  if (!loaded.has(rulesTableOf(settings.instance))) return checkNftApart(renderRules(settings, addresses));
  await checkNft(await replacement(settings, addresses, loaded, false));
}

/**
 * Puts the rules in place, or in the place of the instance's earlier ones. After a failure everything is as before.
 *
 * @throws {ConflictError | ConfigError | ToolError}
 */
export async function up(
  settings: GatewaySettings,
  warn: (text: string) => void,
  { writer = plainWriter, addresses = undefined as Addresses | undefined } = {},
): Promise<void> {
  addresses ??= await addressesOf(settings, warn);
  const conflicts = await findConflicts(settings, writer);
  if (conflicts.length > 0) throw new ConflictError(conflicts);
  for (const advice of adviceFor(settings, writer.owns)) warn(advice);
  const owned = writer.owns;
  const loaded = await loadedTables(settings, owned);
  const added = usesTproxy(settings) ? await addRouting(routingOf(settings)) : undefined;
  const isFirst = (await findTable(rulesTableOf(settings.instance))) === undefined;
  const preparation = renderPreparation(settings, addresses, loaded, { isFirst, owned });
  try {
    if (preparation !== undefined) await writer.apply(preparation.make);
    await writer.apply(await replacement(settings, addresses, preparation?.loaded ?? loaded, owned));
  } catch (error) {
    if (preparation !== undefined) await writer.apply(preparation.undo).catch(() => {}); // not there: it was the first that failed
    await added?.rollBack();
    throw error;
  }
  await removeRouting(await routingInUse(await listOurTables()));
  // Another instance's `down` at the same moment may have seen the routing without the table that needs it.
  if (usesTproxy(settings)) await addRouting(routingOf(settings));
}

/** Those that can be replaced in place. One loaded by hand, or not yet owned, is not: it is deleted and made anew. */
async function loadedTables({ instance, killSwitch }: GatewaySettings, owned: boolean): Promise<Loaded> {
  const [rules, kill] = await Promise.all([rulesTableOf(instance), killTableOf(instance)].map(findTable));
  return new Map(
    [
      rules?.about === undefined || rules.isOwned !== owned ? undefined : rules,
      killSwitch ? kill : undefined,
    ].flatMap((table) => (table === undefined ? [] : [[table.name, table]])),
  );
}

/**
 * The table of names stays when the rules are loaded anew, with what dnsmasq has put in; only where its sets would have
 * another timeout it begins anew.
 */
async function replacement(
  settings: GatewaySettings,
  addresses: Addresses,
  loaded: Loaded,
  owned: boolean,
): Promise<string> {
  const text = renderRules(settings, addresses, loaded, owned);
  const names = dnsTableOf(settings.instance);
  if (settings.domainsFiles.length === 0 || (await findTable(names)) === undefined) return text;
  const sets = (await listTable(names)).flatMap(({ set }) => set ?? []);
  const fits = sets.every(({ timeout }) => timeout === settings.domainsTimeoutSeconds);
  return fits ? text : `${renderRemoval([names])}${text}`;
}

/**
 * Reads files and names again and gives the sets of the loaded rules their new contents; rules, counters and routing stay.
 *
 * @throws {ToolError} when the loaded rules have other sets: they are of other settings.
 */
export async function refresh(
  settings: GatewaySettings,
  warn: (text: string) => void,
  { writer = plainWriter, addresses = undefined as Addresses | undefined } = {},
): Promise<void> {
  await fillSets(settings, renderSets(settings, addresses ?? (await addressesOf(settings, warn))), writer);
}

/** Gives sets of the loaded rules new contents, in the kill switch as well. */
export async function fillSets(
  { instance, killSwitch }: GatewaySettings,
  sets: readonly SetContents[],
  writer: Writer,
): Promise<void> {
  const tables = [rulesTableOf(instance), ...(killSwitch ? [killTableOf(instance)] : [])];
  await writer.apply(tables.map((table) => replaceSets(table, sets)).join(''));
}

function adviceFor(settings: GatewaySettings, owned: boolean): string[] {
  const { fail, tcp, interfaces } = settings;
  const advice: string[] = [];
  if (fail === 'open' && tcp === 'redirect' && !owned) {
    advice.push(
      'fail open and REDIRECT: connections go direct only when the rules are withdrawn; nobody does that when ss-redir ends (ss-nft down, or hold)',
    );
  }
  if (fail === 'open' && settings.localDefault !== 'bypass' && usesTproxy(settings)) {
    advice.push(
      "fail open and TPROXY: the router's own traffic is refused all the same while nobody listens",
    );
  }
  const missing = interfaces.filter((name) => !hasInterface(name));
  if (missing.length > 0) advice.push(`interface ${missing.join(', ')} is not there yet`);
  if (usesTproxy(settings)) advice.push(...sysctlProblems(interfaces));
  if (usesTproxy(settings) && !hasIpv6())
    advice.push('IPv6 is switched off: rules and routing serve IPv4 alone');
  return advice;
}

export interface Removed {
  readonly tables: readonly string[];
  readonly routing: readonly string[];
  /** Kill switches that stay. */
  readonly kept: readonly string[];
}

/** Takes away what `up` made, whether it is there or not. The kill switch outlives the rules unless it is asked for. */
export async function down(instance: string, { killSwitch = false } = {}): Promise<Removed> {
  const there = await listOurTables();
  const kill = killTableOf(instance);
  const tables = tablesOf(instance).filter((name) => there.includes(name) && (killSwitch || name !== kill));
  return remove(tables, there);
}

/** What is left when a holder's table has gone with it. */
export async function removeUnheld(instance: string): Promise<Removed> {
  const there = await listOurTables();
  return remove(
    there.filter((name) => name === dnsTableOf(instance)),
    there,
  );
}

/** All instances, kill switches too. */
export async function downAll(): Promise<Removed> {
  const there = await listOurTables();
  return remove(there, there);
}

async function remove(tables: readonly string[], there: readonly string[]): Promise<Removed> {
  for (const name of tables) {
    if ((await findTable(name))?.isOwned !== true) continue;
    throw new ConfigError(
      `table inet ${name} is held by another process, which does not answer: it goes when that ends`,
    );
  }
  if (tables.length > 0) await runNft(renderRemoval(tables));
  const left = there.filter((name) => !tables.includes(name));
  const routing = await removeRouting(await routingInUse(left));
  return { tables, routing, kept: left.filter((name) => isKillOf(name, tables)) };
}

function isKillOf(name: string, removed: readonly string[]): boolean {
  return removed.some((table) => name === killTableOf(table.slice(rulesTableOf('').length)));
}
