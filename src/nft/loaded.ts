/** What is loaded in the kernel, read back from nft. */
import { dnsTableOf, killTableOf, rulesTableOf, tablePrefix } from './names.js';
import type { Routing } from './routing.js';
import { contentsOf, type Contents } from './rules.js';
import { ToolError } from '../errors.js';
import { runTool } from './tools.js';

/** What the rules' table says of its settings: see `describeRules`. */
export interface Remembered {
  readonly tcp?: { readonly mode: 'redirect' | 'tproxy'; readonly port: number };
  readonly udp?: { readonly port: number };
  readonly routing?: Routing;
  readonly fail: 'closed' | 'open';
}

export interface LoadedTable extends Contents {
  readonly name: string;
  /** What ss-nft has written about its rules; absent in tables of others, and in those loaded by hand. */
  readonly about?: string;
  /** Only the process that made it may change it, and it goes with that process. */
  readonly isOwned: boolean;
}

/** JSON of `nft -j`, as far as it is used here (libnftables-json(5)). */
export interface NftObject {
  chain?: { family: string; table: string; name: string; hook?: string; prio?: number; type?: string };
  rule?: { family: string; table: string; chain: string; comment?: string; expr: NftExpression[] };
  set?: { family: string; table: string; name: string; elem?: unknown[]; timeout?: number };
  counter?: { family: string; table: string; name: string; packets: number; bytes: number };
}

export type NftExpression = Record<string, unknown>;

/** Names of our tables, of all instances. */
export async function listOurTables(): Promise<string[]> {
  const text = await runTool('nft', ['list', 'tables', 'inet']);
  return [...text.matchAll(/^table inet (\S+)/gm)]
    .map((match) => match[1]!)
    .filter((name) => name.startsWith(tablePrefix));
}

/** Tables of others. */
export async function listOtherTables(): Promise<{ family: string; name: string }[]> {
  const text = await runTool('nft', ['list', 'tables']);
  return [...text.matchAll(/^table (\S+) (\S+)/gm)]
    .map(([, family, name]) => ({ family: family!, name: name! }))
    .filter(({ family, name }) => family !== 'inet' || !name.startsWith(tablePrefix));
}

/** Undefined when it is not there. */
export async function findTable(name: string): Promise<LoadedTable | undefined> {
  let text: string;
  try {
    text = await runTool('nft', ['-t', 'list', 'table', 'inet', name]);
  } catch (error) {
    if (error instanceof ToolError && /No such file or directory/.test(error.message)) return undefined;
    throw error;
  }
  // Text, since in its JSON nft 1.0.6 garbles flags.
  const head = text.slice(0, text.search(/^\t(?:set|map|counter|chain|quota|limit) |^\}/m));
  const about = /^\tchain about \{\n.*comment "(ss-redir [^"]*)"$/m.exec(text)?.[1];
  return {
    name,
    ...(about !== undefined && { about }),
    isOwned: /^\tflags .*\bowner\b/m.test(head),
    ...contentsOf(text.split('\n')),
  };
}

/**
 * Counters, sets and chains with their rules. Piece by piece: in the JSON of a table that has an owner nft 1.0.6 writes its flags from
 * memory that is not theirs, and nothing can read that.
 */
export async function listTable(name: string): Promise<NftObject[]> {
  const pieces = await Promise.all([
    listJson(['list', 'counters', 'table', 'inet', name]),
    listJson(['list', 'sets', 'table', 'inet', name]),
    listChains('inet', name),
  ]);
  // nft 1.0.6 lists the sets of all tables, whatever table was asked for.
  return pieces
    .flat()
    .filter(({ counter, set }) => (counter ?? set)?.table === name || (counter ?? set) === undefined);
}

/** The chains of a table with their rules. */
export async function listChains(family: string, table: string): Promise<NftObject[]> {
  const text = await listText(['-t', 'list', 'table', family, table]);
  const { chains } = contentsOf(text.split('\n'));
  return (
    await Promise.all(chains.map(({ name }) => listJson(['list', 'chain', family, table, name])))
  ).flat();
}

async function listJson(words: readonly string[]): Promise<NftObject[]> {
  const text = await listText(['-j', ...words]);
  return text === '' ? [] : (JSON.parse(text) as { nftables: NftObject[] }).nftables;
}

/** Nothing for what has gone meanwhile. */
async function listText(words: readonly string[]): Promise<string> {
  try {
    return await runTool('nft', words);
  } catch (error) {
    if (error instanceof ToolError && /No such file or directory/.test(error.message)) return '';
    throw error;
  }
}

export function readAbout(about: string | undefined): Remembered | undefined {
  if (about === undefined) return undefined;
  const words = new Map(about.split(' ').map((word) => word.split('=', 2) as [string, string]));
  const [mode, port] = (words.get('tcp') ?? '').split(':');
  const udpPort = words.get('udp')?.split(':')[1];
  const [mark, table, priority] = ['mark', 'table', 'priority'].map((word) => Number(words.get(word)));
  return {
    ...(port !== undefined && { tcp: { mode: mode === 'tproxy' ? mode : 'redirect', port: Number(port) } }),
    ...(udpPort !== undefined && { udp: { port: Number(udpPort) } }),
    ...(words.has('mark') && { routing: { mark: mark!, table: table!, priority: priority! } }),
    fail: words.get('fail') === 'open' ? 'open' : 'closed',
  };
}

/** The policy routing that the rules of all instances need. */
export async function routingInUse(tables: readonly string[]): Promise<Routing[]> {
  const loaded = await Promise.all(tables.map(findTable));
  return loaded.flatMap((table) => readAbout(table?.about)?.routing ?? []);
}

/** The tables of an instance, whether they are there or not. */
export function tablesOf(instance: string): string[] {
  return [rulesTableOf(instance), dnsTableOf(instance), killTableOf(instance)];
}
