/**
 * Lists of prefixes: one a line, IPv4 and IPv6 mixed, `#` begins a comment.
 *
 *     # direct
 *     192.0.2.0/24
 *     2001:db8::/32      # a comment
 */
import { readFileSync } from 'node:fs';
import { ConfigError } from '../errors.js';
import { oneLine, quote } from '../text.js';
import { expectedPrefix, formatRange, readPrefix, type Family, type Prefix, type Range } from './ranges.js';

/** @throws {ConfigError} naming the file, and line and text of what is no prefix. */
export function readPrefixFile(path: string): Prefix[] {
  const prefixes: Prefix[] = [];
  for (const [index, line] of readText(path).split('\n').entries()) {
    const text = line.replace(/#.*/s, '').trim();
    if (text === '') continue;
    const prefix = readPrefix(text);
    if (prefix === undefined) {
      throw new ConfigError(`${oneLine(path)}:${index + 1}: expected ${expectedPrefix}, got ${quote(text)}`);
    }
    prefixes.push(prefix);
  }
  return prefixes;
}

/** @throws {ConfigError} naming the file and why it cannot be read. */
export function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8').replace(/^\u{feff}/u, '');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new ConfigError(`${oneLine(path)}: cannot be read: ${code}`);
  }
}

export function ofFamily(prefixes: readonly Prefix[], family: Family): Prefix[] {
  return prefixes.filter((prefix) => prefix.family === family);
}

const elementsPerLine = 8;

/** `elements = { … };` of a set, or nothing: nft 1.0.6 takes no empty list there. */
export function elementLines(elements: readonly string[]): string[] {
  if (elements.length === 0) return [];
  const lines: string[] = [];
  for (let at = 0; at < elements.length; at += elementsPerLine) {
    const end = at + elementsPerLine < elements.length ? ',' : '';
    lines.push(`\t${elements.slice(at, at + elementsPerLine).join(', ')}${end}`);
  }
  return ['elements = {', ...lines, '}'];
}

export function formatRanges(ranges: readonly Range[], family: Family): string[] {
  return ranges.map((range) => formatRange(range, family));
}

export interface SetContents {
  readonly name: string;
  readonly elements: readonly string[];
}

/** One transaction that gives sets of a loaded table new contents: no packet meets an empty one. */
export function replaceSets(table: string, sets: readonly SetContents[]): string {
  return sets
    .flatMap(({ name, elements }) => [
      `flush set inet ${table} ${name}`,
      ...(elements.length === 0 ? [] : [`add element inet ${table} ${name} {\n${elements.join(',\n')}\n}`]),
    ])
    .join('\n')
    .concat('\n');
}
