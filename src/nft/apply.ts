/*
 * The rule files of nft/ and their policy routing: checked, applied and removed as an administrator would do it by hand,
 * with nft -D and ip. Applying again replaces; removing what is not there is no error.
 */
import { fileURLToPath } from 'node:url';
import { isIP } from 'node:net';
import { execa } from 'execa';
import { ConfigError } from '../errors.js';
import {
  defaultInstance,
  hex,
  ownMark,
  routeTable,
  rulesTableOf,
  rulePriority,
  toProxyMark,
} from './names.js';

/** The files' table, which carries the instance's name: `default` by hand. nft takes no variable there. */
export const rulesTable = `inet ${rulesTableOf(defaultInstance)}`;

export { ownMark, routeTable, toProxyMark };

export type RulesMode = 'redirect' | 'tproxy';

export interface RulesValues {
  /** Where ss-redir listens. */
  port: number;
  /** LAN interfaces; a name may end in `*`. */
  lan: readonly string[];
  /** Whether the router's own connections are proxied. Default `direct`. */
  router?: 'direct' | 'proxied';
  /** tproxy: what ss-redir relays. Default TCP alone. */
  protocols?: readonly ('tcp' | 'udp')[];
  /** IPv4 and IPv6 addresses and networks that connections go to directly: the servers first of all. */
  bypass: readonly string[];
}

/** Runs nft or ip; rejects with the program's own message when it fails. Another one runs them in a namespace. */
export type Runner = (command: string, args: readonly string[]) => PromiseLike<{ stdout: unknown }>;

const runHere: Runner = (command, args) => execa(command, args);

/** Whether nft accepts the rules; changes nothing. */
export async function checkRules(mode: RulesMode, values: RulesValues, run: Runner = runHere): Promise<void> {
  await run('nft', ['-c', ...nftArguments(mode, values)]);
}

/** Policy routing first: marked packets without it are stopped, but need not be. */
export async function applyRules(mode: RulesMode, values: RulesValues, run: Runner = runHere): Promise<void> {
  const args = nftArguments(mode, values);
  if (mode === 'tproxy') {
    await addRoutes('-4', run);
    if (await hasIpv6(run)) await addRoutes('-6', run);
  } else {
    await removeRoutes(run);
  }
  await run('nft', args);
}

/** Needs neither mode nor values: it removes what either file leaves. */
export async function removeRules(run: Runner = runHere): Promise<void> {
  // `delete` of a missing table is an error and nft 1.0.6 has no `destroy`: add, then delete, in one transaction.
  await run('nft', [`add table ${rulesTable}; delete table ${rulesTable}`]);
  await removeRoutes(run);
}

/** The `nft` command line for a rule file. */
export function nftArguments(mode: RulesMode, values: RulesValues): string[] {
  const { port, lan, router = 'direct', protocols = ['tcp'], bypass } = values;
  if (!Number.isInteger(port) || port < 1 || port > 65535) {
    throw new ConfigError(`rules: port ${port}, expected 1..65535`);
  }
  if (lan.length === 0) throw new ConfigError('rules: no LAN interface given');
  for (const name of lan) checkInterface(name);
  for (const network of bypass) checkNetwork(network);
  const definitions: Record<string, string> = {
    redir_port: String(port),
    lan: nftSet(lan.map((name) => `"${name}"`)),
    router,
    own: hex(ownMark),
    ...(mode === 'tproxy' ? { to_proxy: hex(toProxyMark), protocols: nftSet(protocols) } : {}),
    bypass4: nftSet(bypass.filter((network) => !network.includes(':'))),
    bypass6: nftSet(bypass.filter((network) => network.includes(':'))),
  };
  const pairs = Object.entries(definitions).flatMap(([name, value]) => ['-D', `${name}=${value}`]);
  return [...pairs, '-f', rulesFile(mode)];
}

/** The file as it stands in the package, beside dist/. */
export function rulesFile(mode: RulesMode): string {
  return fileURLToPath(new URL(`../../../nft/${mode}.nft`, import.meta.url));
}

function checkInterface(name: string): void {
  // nft reads -D values as its own language: nothing may pass that could end the definition.
  if (/^[A-Za-z0-9_.:@-]{1,15}\*?$/.test(name)) return;
  throw new ConfigError(
    `rules: LAN interface '${name}', expected a name of at most 15 letters, digits and _.:@-`,
  );
}

function checkNetwork(network: string): void {
  const [address = '', length, ...rest] = network.split('/');
  const bits = isIP(address) === 6 ? 128 : 32;
  const lengthFits = length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= bits);
  if (isIP(address) !== 0 && !address.includes('%') && lengthFits && rest.length === 0) return;
  throw new ConfigError(`rules: bypass '${network}', expected an IPv4 or IPv6 address or network`);
}

function nftSet(elements: readonly string[]): string {
  return `{ ${elements.join(', ')} }`;
}

function ruleWords(): string[] {
  const mark = hex(toProxyMark);
  return ['fwmark', `${mark}/${mark}`, 'priority', String(rulePriority), 'lookup', String(routeTable)];
}

function routeWords(): string[] {
  return ['local', 'default', 'dev', 'lo', 'table', String(routeTable)];
}

/** The route first: where it cannot be made there is no rule to clean up either. */
async function addRoutes(family: '-4' | '-6', run: Runner): Promise<void> {
  await run('ip', [family, 'route', 'replace', ...routeWords()]);
  await unless(/File exists/, run('ip', [family, 'rule', 'add', ...ruleWords()]));
}

async function removeRoutes(run: Runner): Promise<void> {
  for (const family of ['-4', '-6']) {
    // ENOENT: no such rule; ESRCH: no such route; EAFNOSUPPORT: a kernel without IPv6. "FIB table does not exist" is
    // iproute2's own word for a table that never had a route.
    const absent = /No such (?:file|process)|not supported|FIB table does not exist/;
    await unless(absent, run('ip', [family, 'rule', 'del', ...ruleWords()]));
    await unless(absent, run('ip', [family, 'route', 'del', ...routeWords()]));
  }
}

/** Waits for the command and takes a failure with that message as done. */
async function unless(message: RegExp, command: PromiseLike<unknown>): Promise<void> {
  try {
    await command;
  } catch (error) {
    if (!(error instanceof Error) || !message.test(error.message)) throw error;
  }
}

/** With disable_ipv6 the local route cannot be made and no IPv6 packet is forwarded; both are fine. */
async function hasIpv6(run: Runner): Promise<boolean> {
  try {
    const { stdout } = await run('cat', ['/proc/sys/net/ipv6/conf/lo/disable_ipv6']);
    return String(stdout).trim() === '0';
  } catch {
    return false; // a kernel without IPv6
  }
}
