/** What of others would disturb the rules, or they it: looked for before anything is changed. Each is one line. */
import { existsSync, readFileSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import { findTable, listChains, listOtherTables, listTable, type NftExpression } from './loaded.js';
import { hex, rulesTableOf } from './names.js';
import { isRouteOf, isRuleOf, listRoutes, listRules, type Routing } from './routing.js';
import { usesTproxy } from './ruleset.js';
import type { GatewaySettings } from './settings.js';
import { describeListener, findListeners } from './sockets.js';

/** `owns`: of who makes the rules. */
export async function findConflicts(
  settings: GatewaySettings,
  { owns }: { readonly owns: boolean },
): Promise<string[]> {
  const found = await Promise.all([
    tableConflicts(settings, owns),
    usesTproxy(settings) ? routingConflicts(routingOf(settings)) : [],
    markConflicts(settings),
    portConflicts(settings),
    interfaceConflicts(settings.interfaces),
  ]);
  return found.flat();
}

export function routingOf(settings: GatewaySettings): Routing {
  return { mark: settings.toProxyMark, table: settings.routeTable, priority: settings.rulePriority };
}

/** A table with our name is ours if it says so, or has what the files of nft/ make. */
async function tableConflicts({ instance }: GatewaySettings, owns: boolean): Promise<string[]> {
  const name = rulesTableOf(instance);
  const table = await findTable(name);
  if (table === undefined) return [];
  if (table.isOwned && owns) return [];
  if (table.isOwned) return [`table inet ${name} is held by another process, and only that may change it`];
  if (table.about !== undefined) return [];
  const objects = await listTable(name);
  const has = (kind: 'chain' | 'counter', wanted: string) =>
    objects.some((object) => object[kind]?.name === wanted);
  if (has('chain', 'bypass') && has('counter', 'to_proxy')) return [];
  return [`table inet ${name} is there and not of ss-nft: remove it, or take another instance name`];
}

async function routingConflicts(routing: Routing): Promise<string[]> {
  const { mark, table, priority } = routing;
  const conflicts: string[] = [];
  for (const family of ['-4', '-6'] as const) {
    for (const rule of await listRules(family)) {
      if (rule.isOurs || isRuleOf(rule, routing)) continue;
      const said = `ip ${family} rule "${rule.text}"`;
      if (rule.priority === priority)
        conflicts.push(`rule priority ${priority} is taken by ${said} (--rule-priority)`);
      if (rule.table === String(table))
        conflicts.push(`routing table ${table} is used by ${said} (--route-table)`);
      // A mask of all bits is the usual way not to think of masks: it collides only where the value has our bit.
      const overlaps = (rule.mark & mark) !== 0 || (rule.mask !== 0xffff_ffff && (rule.mask & mark) !== 0);
      if (overlaps) conflicts.push(`mark bits ${hex(mark)} are used by ${said} (--to-proxy-mark)`);
    }
    for (const route of await listRoutes(family)) {
      if (route.table !== String(table) || route.isOurs || isRouteOf(route, table)) continue;
      conflicts.push(
        `routing table ${table} has a route of others, ip ${family} route ${route.dst} dev ${route.dev} (--route-table)`,
      );
    }
  }
  return [...new Set(conflicts)];
}

/** Rules of other tables that set or want one of our bits; to mask bits away is no conflict. */
async function markConflicts(settings: GatewaySettings): Promise<string[]> {
  const bits = settings.ownMark | (usesTproxy(settings) ? settings.toProxyMark : 0);
  const tables = await listOtherTables();
  const objects = await Promise.all(tables.map(({ family, name }) => listChains(family, name)));
  const conflicts = new Set<string>();
  for (const { rule } of objects.flat()) {
    if (rule === undefined) continue;
    for (const value of rule.expr.flatMap(marksSet)) {
      const shared = (value & bits) >>> 0;
      if (shared === 0) continue;
      conflicts.add(
        `mark bits ${hex(shared)} are set by table ${rule.family} ${rule.table}, chain ${rule.chain}`,
      );
    }
  }
  return [...conflicts];
}

/** The constants that `meta mark set` gives, alone or with `|`. */
function marksSet(expression: NftExpression): number[] {
  const { mangle } = expression as { mangle?: { key?: { meta?: { key?: string } }; value?: unknown } };
  if (mangle?.key?.meta?.key !== 'mark') return [];
  if (typeof mangle.value === 'number') return [mangle.value];
  const { '|': or } = (mangle.value ?? {}) as { '|'?: unknown[] };
  return (or ?? []).filter((operand): operand is number => typeof operand === 'number');
}

/** A port that other rules of ours send to, or that is listened on by what TPROXY cannot hand over to. */
async function portConflicts(settings: GatewaySettings): Promise<string[]> {
  const conflicts: string[] = [];
  for (const [protocol, port, mode] of portsOf(settings)) {
    for (const listener of await findListeners(protocol, port)) {
      const who = describeListener(listener);
      const isOther =
        listener.command !== undefined && !/^(?:ss-redir|systemd|init|node|unknown)$/.test(listener.command);
      if (mode === 'tproxy' && listener.isTransparent === false) {
        conflicts.push(
          `${protocol} port ${port} is in use by ${who}, which is not transparent: TPROXY cannot hand over to it`,
        );
      } else if (mode === 'redirect' && listener.isTransparent !== true && isOther) {
        conflicts.push(`${protocol} port ${port} is in use by ${who}, which is not ss-redir`);
      }
    }
  }
  return conflicts;
}

export function portsOf({
  tcp,
  udp,
  localPort,
  udpLocalPort,
}: GatewaySettings): ['tcp' | 'udp', number, string][] {
  return [
    ...(tcp === 'none' ? [] : ([['tcp', localPort, tcp]] as ['tcp', number, string][])),
    ...(udp ? ([['udp', udpLocalPort, 'tproxy']] as ['udp', number, string][]) : []),
  ];
}

/** Packets of a bridge's port come in by the bridge: a rule for the port would never match. */
function interfaceConflicts(interfaces: readonly string[]): string[] {
  return interfaces.flatMap((name) => {
    const bridge = bridgeOf(name);
    return bridge === undefined
      ? []
      : [`interface ${name} is a port of bridge ${bridge}: name ${bridge} instead`];
  });
}

function bridgeOf(name: string): string | undefined {
  const device = `/sys/class/net/${name}`;
  if (name.endsWith('*') || !existsSync(`${device}/brport`)) return undefined;
  try {
    return basename(readlinkSync(`${device}/master`));
  } catch {
    return undefined;
  }
}

export function hasInterface(name: string): boolean {
  return name.endsWith('*') || existsSync(`/sys/class/net/${name}`);
}

export function isBridge(name: string): boolean {
  return existsSync(`/sys/class/net/${name}/bridge`);
}

/** A value of /proc/sys, by `net.ipv4.ip_forward` or `net/ipv4/conf/br0.10/rp_filter`; undefined where there is none. */
export function readSysctl(key: string): string | undefined {
  try {
    const path = key.includes('/') ? key : key.replaceAll('.', '/');
    return readFileSync(`/proc/sys/${path}`, 'utf8').trim();
  } catch {
    return undefined;
  }
}
