/**
 * The policy routing of TPROXY: what carries the mark is delivered locally, IPv4 and IPv6. Rule and route carry a protocol
 * number that says they are ours, so that removing needs no configuration, is complete after a crash, and never takes
 * what an administrator made by hand.
 */
import { readFileSync } from 'node:fs';
import { hex, routeProtocol } from './names.js';
import { ToolError } from '../errors.js';
import { runTool } from './tools.js';

export interface Routing {
  readonly mark: number;
  readonly table: number;
  readonly priority: number;
}

export type IpFamily = '-4' | '-6';

export interface IpRule {
  readonly family: IpFamily;
  readonly priority: number;
  readonly mark: number;
  readonly mask: number;
  readonly table: string;
  /** Everything but `from all fwmark … lookup …`. */
  readonly hasMore: boolean;
  readonly isOurs: boolean;
  /** As ip prints it. */
  readonly text: string;
}

interface RuleJson {
  priority: number;
  fwmark?: string;
  fwmask?: string;
  table?: string;
  protocol?: string;
  src?: string;
  [key: string]: unknown;
}

export interface IpRoute {
  readonly family: IpFamily;
  readonly table: string;
  readonly type: string;
  readonly dst: string;
  readonly dev: string;
  readonly isOurs: boolean;
}

interface RouteJson {
  type?: string;
  dst: string;
  dev?: string;
  table?: string;
  protocol?: string;
}

/** Steps that undo one family's part, each as an `ip` command line. */
type Undo = string[];

/** What `addRouting` has made. */
export interface Added {
  readonly isNew: boolean;
  /** Takes away exactly that. */
  readonly rollBack: () => Promise<void>;
}

/**
 * Makes what is missing. What is there already, ours or an administrator's, stays.
 *
 * @throws {ToolError} after having undone the part that worked.
 */
export async function addRouting(routing: Routing): Promise<Added> {
  const undo: Undo[] = [];
  const rollBack = async () => {
    for (const words of undo.splice(0).toReversed()) await unless(absent, runTool('ip', words));
  };
  try {
    const families: IpFamily[] = hasIpv6() ? ['-4', '-6'] : ['-4'];
    for (const family of families) {
      const { route, rule } = await findRouting(routing, family);
      // The route first: where it cannot be made there is no rule to clean up either.
      if (!route) {
        await runTool('ip', [family, 'route', 'add', ...routeWords(routing.table)]);
        undo.push([family, 'route', 'del', ...routeWords(routing.table)]);
      }
      if (!rule) {
        await runTool('ip', [family, 'rule', 'add', ...ruleWords(routing)]);
        undo.push([family, 'rule', 'del', ...ruleWords(routing)]);
      }
    }
  } catch (error) {
    await rollBack();
    throw error;
  }
  return { isNew: undo.length > 0, rollBack };
}

/** Removes all of ours but what one of `kept` needs; returns what it removed, for people. */
export async function removeRouting(kept: readonly Routing[]): Promise<string[]> {
  const removed: string[] = [];
  for (const family of ['-4', '-6'] as const) {
    for (const rule of await listRules(family)) {
      if (!rule.isOurs || kept.some((routing) => isRuleOf(rule, routing))) continue;
      const { mark, priority } = rule;
      await unless(
        absent,
        runTool('ip', [family, 'rule', 'del', ...ruleWords({ mark, priority, table: Number(rule.table) })]),
      );
      removed.push(`ip ${family} rule ${rule.text}`);
    }
    for (const route of await listRoutes(family)) {
      if (!route.isOurs || kept.some(({ table }) => String(table) === route.table)) continue;
      await unless(absent, runTool('ip', [family, 'route', 'del', ...routeWords(Number(route.table))]));
      removed.push(`ip ${family} route ${routeWords(Number(route.table)).join(' ')}`);
    }
  }
  return removed;
}

/** Whether rule and route are there, whoever made them. */
export async function findRouting(
  routing: Routing,
  family: IpFamily,
): Promise<{ rule: boolean; route: boolean }> {
  const rules = await listRules(family);
  const routes = await listRoutes(family);
  return {
    rule: rules.some((rule) => isRuleOf(rule, routing)),
    route: routes.some((route) => isRouteOf(route, routing.table)),
  };
}

export function isRuleOf(rule: IpRule, { mark, table, priority }: Routing): boolean {
  return (
    !rule.hasMore &&
    rule.mark === mark &&
    rule.mask === mark &&
    rule.table === String(table) &&
    rule.priority === priority
  );
}

export function isRouteOf({ table, type, dst, dev }: IpRoute, number: number): boolean {
  return table === String(number) && type === 'local' && dst === 'default' && dev === 'lo';
}

const plainKeys = new Set(['priority', 'src', 'fwmark', 'fwmask', 'table', 'protocol']);

/** None where the kernel has no such family. */
export async function listRules(family: IpFamily): Promise<IpRule[]> {
  const rules = await listJson<RuleJson>([family, '-N', '-j', 'rule', 'show']);
  return rules.map((rule) => {
    const { priority, fwmark, fwmask, table = '', protocol, src } = rule;
    const mark = Number(fwmark ?? 0);
    const mask = fwmark === undefined ? 0 : Number(fwmask ?? 0xffff_ffff);
    const isMarked = fwmark === undefined ? '' : ` fwmark ${fwmark}/${hex(mask)}`;
    const more = Object.keys(rule).filter((key) => !plainKeys.has(key));
    return {
      family,
      priority,
      mark,
      mask,
      table,
      hasMore: more.length > 0 || src !== 'all',
      isOurs: protocol === String(routeProtocol),
      text: `${priority}: from ${src}${isMarked}${more.map((key) => ` ${key}`).join('')} lookup ${table}`,
    };
  });
}

/** Of all tables but those that every system has. */
export async function listRoutes(family: IpFamily): Promise<IpRoute[]> {
  const routes = await listJson<RouteJson>([family, '-N', '-d', '-j', 'route', 'show', 'table', 'all']);
  return routes
    .filter(({ table }) => table !== undefined && !['0', '253', '254', '255'].includes(table))
    .map(({ table = '', type = '1', dst, dev = '', protocol }) => ({
      family,
      table,
      type: type === '2' ? 'local' : type, // RTN_LOCAL, include/uapi/linux/rtnetlink.h
      dst: dst === '0/0' || dst === '::/0' ? 'default' : dst,
      dev,
      isOurs: protocol === String(routeProtocol),
    }));
}

async function listJson<T>(words: readonly string[]): Promise<T[]> {
  try {
    const text = await runTool('ip', words);
    return text.trim() === '' ? [] : (JSON.parse(text) as T[]);
  } catch (error) {
    if (error instanceof ToolError && noFamily.test(error.message)) return [];
    throw error;
  }
}

/** With disable_ipv6 the local route cannot be made and no IPv6 packet is forwarded; both are fine. */
export function hasIpv6(): boolean {
  try {
    return readFileSync('/proc/sys/net/ipv6/conf/lo/disable_ipv6', 'utf8').trim() === '0';
  } catch {
    return false; // a kernel without IPv6
  }
}

function ruleWords({ mark, table, priority }: Routing): string[] {
  const numbers = ['priority', String(priority), 'lookup', String(table), 'protocol', String(routeProtocol)];
  return ['fwmark', `${hex(mark)}/${hex(mark)}`, ...numbers];
}

function routeWords(table: number): string[] {
  return ['local', 'default', 'dev', 'lo', 'table', String(table), 'proto', String(routeProtocol)];
}

// EAFNOSUPPORT of a kernel without IPv6; "FIB table does not exist" is iproute2's own word.
const noFamily = /not supported|FIB table does not exist/;
// ENOENT: no such rule; ESRCH: no such route.
const absent = /No such (?:file|process)|not supported|FIB table does not exist/;

/** Waits for the command and takes a failure with that message as done. */
async function unless(message: RegExp, command: Promise<unknown>): Promise<void> {
  try {
    await command;
  } catch (error) {
    if (!(error instanceof ToolError) || !message.test(error.message)) throw error;
  }
}
