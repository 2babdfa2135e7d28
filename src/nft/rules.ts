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
  /** `hook` is the whole line of a base chain: `type … hook … priority …; policy …;`. */
  readonly chains: readonly { readonly name: string; readonly hook: string | undefined }[];
  readonly sets: readonly string[];
  readonly counters: readonly string[];
}

/** The line of a base chain that says where it hooks in; undefined for another chain. */
function hookOf(table: readonly string[], chainName: string): string | undefined {
  const at = table.findIndex((line) => line.trim() === `chain ${chainName} {`);
  const line = at < 0 ? '' : (table[at + 1] ?? '').trim();
  return line.startsWith('type ') ? line : undefined;
}

/** The tables that are there and ours, by name. */
export type Loaded = ReadonlyMap<string, Contents>;

/** The transaction that puts the instance's rules in the place of those that are there. */
export function renderRules(
  settings: GatewaySettings,
  addresses: Addresses,
  loaded: Loaded = new Map(),
  owned = false,
): string {
  const ruleset = new Ruleset(settings, addresses);
  const rules = rulesTableOf(settings.instance);
  const kill = killTableOf(settings.instance);
  return [
    '# Made by ss-nft.',
    ...replace(rules, ruleset.rulesTable(), loaded.get(rules), owned),
    ...(settings.killSwitch ? replace(kill, ruleset.killTable(), loaded.get(kill)) : emptied(kill)),
    ...(settings.domainsFiles.length > 0 ? dnsTable(settings) : emptied(dnsTableOf(settings.instance))),
    '',
  ].join('\n');
}

/** The transaction before the rules. */
export interface Preparation {
  readonly make: string;
  /** Takes it away when the other has failed. */
  readonly undo: string;
  /** What is there in between. */
  readonly loaded: Loaded;
}

/** Makes sets that the loaded tables lack; and where there is no table of the rules yet one that lets conntrack begin unseen. */
export function renderPreparation(
  settings: GatewaySettings,
  addresses: Addresses,
  loaded: Loaded,
  { isFirst, owned = false }: { isFirst: boolean; owned?: boolean },
): Preparation | undefined {
  const ruleset = new Ruleset(settings, addresses);
  const make: string[] = [];
  const undo: string[] = [];
  const inBetween = new Map(loaded);
  const rules = rulesTableOf(settings.instance);
  for (const [table, contents] of loaded) {
    const lacking = ruleset.sets().filter(({ name }) => !contents.sets.includes(name));
    if (lacking.length === 0) continue;
    const lines = joined([owned && table === rules ? ownerFlag : [], ...lacking.map((set) => set.lines)]);
    make.push(`table inet ${table} {`, ...indent(lines), '}', '');
    undo.push(...lacking.map(({ name }) => `delete set inet ${table} ${name}`), '');
    inBetween.set(table, { ...contents, sets: [...contents.sets, ...lacking.map(({ name }) => name)] });
  }
  const threshold = isFirst ? ruleset.thresholdTable() : [];
  if (threshold.length > 0) {
    make.push(...replace(rules, threshold, undefined, owned));
    undo.push(...emptied(rules), '');
    inBetween.set(rules, contentsOf(threshold));
  }
  return make.length === 0 ? undefined : { make: make.join('\n'), undo: undo.join('\n'), loaded: inBetween };
}

/** Of a table as text, ours or nft's. */
export function contentsOf(table: readonly string[]): Contents {
  const text = table.join('\n');
  const namesOf = (kind: string) =>
    [...text.matchAll(new RegExp(`^\\s*${kind} (\\S+) \\{`, 'gm'))].map(([, name]) => name!);
  return {
    chains: namesOf('chain').map((name) => ({ name, hook: hookOf(table, name) })),
    sets: namesOf('set'),
    counters: namesOf('counter'),
  };
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

/** Said each time: a table of an owner is not to be mistaken for one without. */
const ownerFlag = ['flags owner;'];

function replace(
  table: string,
  body: readonly string[],
  contents: Contents | undefined,
  owned = false,
): string[] {
  const cleared = contents === undefined ? emptied(table) : clear(table, body, contents);
  return [
    ...cleared,
    '',
    `table inet ${table} {`,
    ...indent(joined([owned ? ownerFlag : [], body])),
    '}',
    '',
  ];
}

/**
 * Rules go, and chains but those of a hook: between a new one's beginning and an old one's end packets would meet neither. Sets
 * and counters stay where the new table has them too, and counters keep their counts.
 */
function clear(table: string, body: readonly string[], { chains, sets, counters }: Contents): string[] {
  const stays = (kind: string, name: string) => body.includes(`${kind} ${name} {`);
  const isHooked = ({ name, hook }: Contents['chains'][number]) =>
    hook !== undefined && hookOf(body, name) === hook;
  return [
    `flush table inet ${table}`,
    ...chains.filter((loaded) => !isHooked(loaded)).map(({ name }) => `delete chain inet ${table} ${name}`),
    ...sets.map((name) => `${stays('set', name) ? 'flush' : 'delete'} set inet ${table} ${name}`),
    ...counters
      .filter((name) => !stays('counter', name))
      .map((name) => `delete counter inet ${table} ${name}`),
  ];
}

/** dnsmasq writes into the sets, so the table stays as it is when it is there: its members are not lost by a reload. */
function dnsTable({ instance, domainsTimeoutSeconds, nameSetMark }: GatewaySettings): string[] {
  const mark = `meta mark set meta mark | ${hex(nameSetMark)}`;
  const rules = ['daddr', 'saddr'].flatMap((end) =>
    families.map((family) =>
      rule(`${ipOf[family]} ${end} @names${family} ${mark} counter`, 'an address of a listed name'),
    ),
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
