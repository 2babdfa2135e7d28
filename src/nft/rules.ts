/**
 * Transactions: the tables of an instance loaded, replaced and removed as text that nft reads at once.
 *
 * A set that is new in a transaction is empty to packets until the kernel has committed all of it, after the new rules are
 * in force: with 10,000 elements for some milliseconds (seen on Linux 6.18: connections to a bypassed address refused). An
 * older set has its earlier contents so long. So a table that is there stays, with its sets, and what it lacks of sets is
 * made and filled before.
 */
import type { Addresses } from './addresses.js';
import { Decisions } from './decisions.js';
import { dnsTableOf, hex, killTableOf, rulesTableOf } from './names.js';
import { addressType, chain, families, indent, ipOf, joined, rule } from './rule-text.js';
import { Ruleset } from './ruleset.js';
import type { SetContents } from './sets.js';
import type { GatewaySettings } from './settings.js';

/** What a loaded table has. */
export interface Contents {
  readonly chains: readonly string[];
  readonly sets: readonly string[];
  readonly counters: readonly string[];
}

/** The tables that are there and ours, by name. */
export type Loaded = ReadonlyMap<string, Contents>;

/** The transaction that puts the instance's rules in the place of those that are there. */
export function renderRules(
  settings: GatewaySettings,
  addresses: Addresses,
  loaded: Loaded = new Map(),
): string {
  const ruleset = new Ruleset(settings, addresses);
  const rules = rulesTableOf(settings.instance);
  const kill = killTableOf(settings.instance);
  return [
    '# Made by ss-nft.',
    ...replace(rules, ruleset.rulesTable(), loaded.get(rules)),
    ...(settings.killSwitch ? replace(kill, ruleset.killTable(), loaded.get(kill)) : emptied(kill)),
    ...(settings.domainsFiles.length > 0 ? dnsTable(settings) : emptied(dnsTableOf(settings.instance))),
    '',
  ].join('\n');
}

/** The transaction before: sets that the loaded tables lack. And the one that takes them away when the other has failed. */
export function renderNewSets(
  settings: GatewaySettings,
  addresses: Addresses,
  loaded: Loaded,
): { make: string; undo: string } | undefined {
  const ruleset = new Ruleset(settings, addresses);
  const make: string[] = [];
  const undo: string[] = [];
  for (const [table, contents] of loaded) {
    const lacking = ruleset.sets().filter(({ name }) => !contents.sets.includes(name));
    if (lacking.length === 0) continue;
    make.push(`table inet ${table} {`, ...indent(joined(lacking.map(({ lines }) => lines))), '}', '');
    undo.push(...lacking.map(({ name }) => `delete set inet ${table} ${name}`), '');
  }
  return make.length === 0 ? undefined : { make: make.join('\n'), undo: undo.join('\n') };
}

/** The transaction that removes tables of ours, whether they are there or not. */
export function renderRemoval(tables: readonly string[]): string {
  return tables.flatMap(emptied).join('\n').concat('\n');
}

/** The sets of addresses that can change while the rules stay: servers, reserved networks, destinations. */
export function renderSets(settings: GatewaySettings, addresses: Addresses): SetContents[] {
  return new Decisions(settings, addresses, []).addressSets();
}

/** `delete` needs something to delete, and nft 1.0.6 has no `destroy`. */
function emptied(table: string): string[] {
  return [`add table inet ${table}`, `delete table inet ${table}`];
}

function replace(table: string, body: readonly string[], contents: Contents | undefined): string[] {
  const cleared = contents === undefined ? emptied(table) : clear(table, body, contents);
  return [...cleared, '', `table inet ${table} {`, ...indent(body), '}', ''];
}

/** Rules and chains go; sets and counters stay where the new table has them too, and counters keep their counts. */
function clear(table: string, body: readonly string[], { chains, sets, counters }: Contents): string[] {
  const stays = (kind: string, name: string) => body.includes(`${kind} ${name} {`);
  return [
    `flush table inet ${table}`,
    ...chains.map((name) => `delete chain inet ${table} ${name}`),
    ...sets.map((name) => `${stays('set', name) ? 'flush' : 'delete'} set inet ${table} ${name}`),
    ...counters
      .filter((name) => !stays('counter', name))
      .map((name) => `delete counter inet ${table} ${name}`),
  ];
}

/** dnsmasq writes into the sets, so the table stays as it is when it is there: its members are not lost by a reload. */
function dnsTable({ instance, domainsTimeoutSeconds, nameSetMark }: GatewaySettings): string[] {
  const mark = `meta mark set meta mark | ${hex(nameSetMark)}`;
  const rules = families.map((family) =>
    rule(`${ipOf[family]} daddr @names${family} ${mark} counter`, 'an address of a listed name'),
  );
  const table = dnsTableOf(instance);
  return [
    `add table inet ${table}`,
    ...['prerouting', 'output'].flatMap((hook) => [
      `add chain inet ${table} ${hook} { type filter hook ${hook} priority mangle - 1; policy accept; }`,
      `flush chain inet ${table} ${hook}`,
    ]),
    '',
    `table inet ${table} {`,
    ...indent(
      joined([
        ...families.map((family) => [
          `set names${family} {`,
          `\ttype ${addressType[family]}; flags timeout; timeout ${domainsTimeoutSeconds}s; size 65536;`,
          '}',
        ]),
        ...['prerouting', 'output'].map((hook) => chain(hook, rules)),
      ]),
    ),
    '}',
    '',
  ];
}
