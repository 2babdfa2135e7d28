/** How an instance stands: what is loaded, what it has counted, and whether what it needs is there. */
import { sysctlProblems } from './sysctls.js';
import { HolderClient } from './holder-client.js';
import {
  findTable,
  listTable,
  readAbout,
  type NftExpression,
  type NftObject,
  type Remembered,
} from './loaded.js';
import { dnsTableOf, doctorInterface, killTableOf, rulesTableOf } from './names.js';
import { findRouting, hasIpv6 } from './routing.js';
import { describeListener, findListeners } from './sockets.js';

export interface Status {
  readonly instance: string;
  readonly table: string;
  readonly rules: 'loaded' | 'by hand' | 'missing';
  /** Whether the table goes with a process that owns it. */
  readonly owned: boolean;
  /** That process, if it is ours. */
  readonly holder?: { readonly pid: number; readonly since: number; readonly isService: boolean };
  readonly fail?: 'closed' | 'open';
  readonly interfaces: readonly string[];
  readonly counters: readonly Counter[];
  readonly chains: readonly ChainCount[];
  readonly sets: readonly { readonly name: string; readonly elements: number }[];
  readonly routing: readonly {
    readonly family: 'IPv4' | 'IPv6';
    readonly rule: boolean;
    readonly route: boolean;
  }[];
  readonly listeners: readonly ListenerState[];
  readonly killSwitch: boolean;
  /** Sets that dnsmasq fills; absent when no names are configured or the table is gone. */
  readonly names?: readonly { readonly name: string; readonly elements: number }[];
  /** What is not as wanted, each with what mends it. */
  readonly problems: readonly string[];
}

export interface Counter {
  readonly name: string;
  readonly packets: number;
  readonly bytes: number;
}

export interface ChainCount {
  readonly chain: string;
  readonly rules: readonly RuleCount[];
}

export interface RuleCount {
  readonly comment: string;
  readonly packets: number;
  readonly bytes: number;
}

export interface ListenerState {
  readonly protocol: 'tcp' | 'udp';
  readonly port: number;
  readonly mode: 'redirect' | 'tproxy';
  readonly found: string;
  readonly isThere: boolean;
}

export async function readStatus(instance: string): Promise<Status> {
  const table = rulesTableOf(instance);
  const [loaded, kill, dns] = await Promise.all([
    findTable(table),
    findTable(killTableOf(instance)),
    findTable(dnsTableOf(instance)),
  ]);
  const killSwitch = kill !== undefined;
  const holder = loaded?.isOwned === true ? await holderOf(instance) : undefined;
  if (loaded === undefined) {
    return {
      ...nothing(instance, table, killSwitch),
      problems: [`table inet ${table} is missing: load the rules (ss-nft up)`],
    };
  }
  const objects = await listTable(table);
  const remembered = readAbout(loaded.about);
  const interfaces = lanOf(objects);
  const routing = await routingStates(remembered);
  const listeners = await listenerStates(remembered);
  const usesNames = objects.some(({ rule }) => rule?.comment === namesComment);
  const names = dns === undefined ? undefined : setSizes(await listTable(dns.name));
  return {
    instance,
    table,
    rules: remembered === undefined ? 'by hand' : 'loaded',
    owned: loaded.isOwned,
    ...(holder !== undefined && { holder }),
    ...(remembered !== undefined && { fail: remembered.fail }),
    interfaces,
    counters: namedCounters(objects),
    chains: chainCounts(objects),
    sets: setSizes(objects),
    routing,
    listeners,
    killSwitch,
    ...(names !== undefined && { names }),
    problems: [
      ...routingProblems(routing),
      ...listenerProblems(listeners),
      ...(usesNames && dns === undefined
        ? [`table inet ${dnsTableOf(instance)} is missing: names have the default policy (ss-nft up)`]
        : []),
      ...(remembered?.routing === undefined ? [] : sysctlProblems(interfaces)),
    ],
  };
}

async function holderOf(instance: string): Promise<Status['holder']> {
  const client = await HolderClient.findHere(instance);
  if (client === undefined) return undefined;
  const { pid, since, isService } = client.status;
  client.close();
  return { pid, since, isService };
}

const namesComment = 'an address of a listed name';

function nothing(instance: string, table: string, killSwitch: boolean): Omit<Status, 'problems'> {
  return {
    instance,
    table,
    rules: 'missing',
    owned: false,
    interfaces: [],
    counters: [],
    chains: [],
    sets: [],
    routing: [],
    listeners: [],
    killSwitch,
  };
}

/** From the rule that sends away what is not of the LAN. */
function lanOf(objects: readonly NftObject[]): string[] {
  for (const { rule } of objects) {
    for (const { match = {} } of rule?.expr ?? []) {
      const { left, op, right } = match as {
        left?: { meta?: { key?: string } };
        op?: string;
        right?: unknown;
      };
      if (left?.meta?.key !== 'iifname' || op !== '!=' || right === 'lo') continue;
      const names = typeof right === 'string' ? [right] : ((right as { set?: unknown[] }).set ?? []);
      return names.filter((name): name is string => typeof name === 'string' && name !== doctorInterface);
    }
  }
  return [];
}

function namedCounters(objects: readonly NftObject[]): Counter[] {
  return objects.flatMap(({ counter }) =>
    counter === undefined ? [] : [{ name: counter.name, packets: counter.packets, bytes: counter.bytes }],
  );
}

function chainCounts(objects: readonly NftObject[]): ChainCount[] {
  const chains = new Map<string, RuleCount[]>();
  for (const { rule } of objects) {
    const count = rule?.expr.map(anonymousCounter).find((found) => found !== undefined);
    if (rule === undefined || count === undefined) continue;
    const rules = chains.get(rule.chain) ?? [];
    rules.push({ comment: rule.comment ?? '', ...count });
    chains.set(rule.chain, rules);
  }
  return [...chains].map(([chain, rules]) => ({ chain, rules }));
}

function anonymousCounter({ counter }: NftExpression): { packets: number; bytes: number } | undefined {
  if (typeof counter !== 'object' || counter === null) return undefined;
  return counter as { packets: number; bytes: number };
}

function setSizes(objects: readonly NftObject[]): { name: string; elements: number }[] {
  return objects.flatMap(({ set }) =>
    set === undefined ? [] : [{ name: set.name, elements: set.elem?.length ?? 0 }],
  );
}

async function routingStates(remembered: Remembered | undefined): Promise<Status['routing']> {
  const wanted = remembered?.routing;
  if (wanted === undefined) return [];
  const ipv4 = { family: 'IPv4' as const, ...(await findRouting(wanted, '-4')) };
  if (!hasIpv6()) return [ipv4];
  return [ipv4, { family: 'IPv6' as const, ...(await findRouting(wanted, '-6')) }];
}

function routingProblems(routing: Status['routing']): string[] {
  return routing
    .filter(({ rule, route }) => !rule || !route)
    .map(({ family, rule, route }) => {
      const missing = [...(rule ? [] : ['rule']), ...(route ? [] : ['route'])].join(' and ');
      return `${family} policy routing: ${missing} missing, what goes to TPROXY is stopped (ss-nft up; systemd-networkd: ManageForeignRoutingPolicyRules=no)`;
    });
}

async function listenerStates(remembered: Remembered | undefined): Promise<ListenerState[]> {
  const wanted = [
    ...(remembered?.tcp === undefined ? [] : [{ protocol: 'tcp' as const, ...remembered.tcp }]),
    ...(remembered?.udp === undefined
      ? []
      : [{ protocol: 'udp' as const, mode: 'tproxy' as const, ...remembered.udp }]),
  ];
  return Promise.all(
    wanted.map(async ({ protocol, mode, port }) => {
      const listeners = await findListeners(protocol, port);
      const fits = listeners.filter(({ isTransparent }) => mode === 'redirect' || isTransparent !== false);
      const shown = fits[0] ?? listeners[0];
      const transparent = shown?.isTransparent === true ? ', transparent' : '';
      const found = shown === undefined ? 'nobody' : `${describeListener(shown)}${transparent}`;
      return { protocol, port, mode, found, isThere: fits.length > 0 };
    }),
  );
}

function listenerProblems(listeners: readonly ListenerState[]): string[] {
  return listeners
    .filter(({ isThere }) => !isThere)
    .map(({ protocol, port, mode, found }) =>
      found === 'nobody'
        ? `nobody listens on ${protocol} port ${port}: start ss-redir`
        : `${protocol} port ${port} has ${found}, not transparent: start ss-redir with ${mode === 'tproxy' && protocol === 'tcp' ? '-T' : '-u'}`,
    );
}

/** One screen for people. */
export function formatStatus(status: Status): string {
  const { rules, table, fail, interfaces } = status;
  const lines = [
    line('rules', rules === 'missing' ? 'missing' : `${rules}, table inet ${table}${owner(status)}`),
  ];
  if (fail !== undefined) lines.push(line('fail', fail));
  if (interfaces.length > 0) lines.push(line('LAN', interfaces.join(' ')));
  lines.push(line('kill switch', status.killSwitch ? 'set' : 'not set'));
  for (const { family, rule, route } of status.routing) {
    lines.push(line(`${family} routing`, `rule ${there(rule)}, route ${there(route)}`));
  }
  for (const { protocol, port, mode, found } of status.listeners) {
    lines.push(line(`${protocol} ${mode}`, `port ${port}: ${found}`));
  }
  const sets = [...status.sets, ...(status.names ?? [])].map(({ name, elements }) => `${name} ${elements}`);
  if (sets.length > 0) lines.push(line('sets', sets.join(', ')));
  for (const { name, packets, bytes } of status.counters) {
    lines.push(line(name, `${packets} packets, ${bytes} bytes`));
  }
  for (const { chain, rules: counts } of status.chains) {
    for (const { comment, packets } of counts) {
      if (packets > 0) lines.push(line(`  ${chain}`, `${String(packets).padStart(9)}  ${comment}`));
    }
  }
  for (const problem of status.problems) lines.push(`! ${problem}`);
  return `${lines.join('\n')}\n`;
}

function owner({ owned, holder }: Status): string {
  if (!owned) return '';
  if (holder === undefined) return ', owned by another process';
  const since = new Date(holder.since * 1000).toISOString().slice(0, 16).replace('T', ' ');
  return `, held by process ${holder.pid}${holder.isService ? ', a service,' : ''} since ${since} UTC`;
}

function line(name: string, text: string): string {
  return `${name.padEnd(15)} ${text}`;
}

function there(isThere: boolean): string {
  return isThere ? 'there' : 'missing';
}
