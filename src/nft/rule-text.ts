/** Pieces of a ruleset as lines of nft's language. */
import { formatPorts, type PortRange } from './ports.js';
import { merge, type Family } from './ranges.js';
import { elementLines, formatRanges, ofFamily } from './sets.js';
import type { Clients } from './settings.js';

export type Protocol = 'tcp' | 'udp';

export const families = [4, 6] as const;
export const ipOf: Readonly<Record<Family, 'ip' | 'ip6'>> = { 4: 'ip', 6: 'ip6' };
export const addressType: Readonly<Record<Family, string>> = { 4: 'ipv4_addr', 6: 'ipv6_addr' };

export function isEmpty({ prefixes, macs }: Clients): boolean {
  return prefixes.length === 0 && macs.length === 0;
}

export function addressSet(name: string, elements: readonly string[], family: Family): string[] {
  return [
    `set ${name} {`,
    `\ttype ${addressType[family]}; flags interval; auto-merge;`,
    ...indent(elementLines(elements)),
    '}',
  ];
}

export function clientSets(name: string, { prefixes, macs }: Clients): string[][] {
  const sets: string[][] = [];
  for (const family of families) {
    const ranges = merge(ofFamily(prefixes, family));
    if (ranges.length > 0) sets.push(addressSet(`${name}${family}`, formatRanges(ranges, family), family));
  }
  if (macs.length > 0) {
    sets.push([`set ${name}_mac {`, '\ttype ether_addr;', ...indent(elementLines([...new Set(macs)])), '}']);
  }
  return sets;
}

export function clientRules(
  name: string,
  { prefixes, macs }: Clients,
  verdict: string,
  why: string,
): string[] {
  const rules = families
    .filter((family) => ofFamily(prefixes, family).length > 0)
    .map((family) => rule(`${ipOf[family]} saddr @${name}${family} counter ${verdict}`, why));
  if (macs.length > 0) rules.push(rule(`ether saddr @${name}_mac counter ${verdict}`, why));
  return rules;
}

export function portSet(name: string, ranges: readonly PortRange[]): string[] {
  return [
    `set ${name} {`,
    '\ttype inet_service; flags interval; auto-merge;',
    `\telements = ${formatPorts(ranges)}`,
    '}',
  ];
}

export function setOf(items: readonly string[]): string {
  return `{ ${items.join(', ')} }`;
}

/** `counter` stands in `text` where it is to count: behind the match. */
export function rule(text: string, why: string): string {
  return `${text} comment "${why}"`;
}

export function chain(name: string, rules: readonly string[]): string[] {
  return [`chain ${name} {`, ...indent(rules), '}'];
}

export function baseChain(
  name: string,
  type: string,
  hook: string,
  priority: string,
  rules: readonly string[],
): string[] {
  return chain(name, [`type ${type} hook ${hook} priority ${priority}; policy accept;`, ...rules]);
}

export function indent(lines: readonly string[]): string[] {
  return lines.map((line) => (line === '' ? line : `\t${line}`));
}

/** The parts with an empty line between them. */
export function joined(parts: readonly (readonly string[])[]): string[] {
  const lines: string[] = [];
  for (const part of parts) {
    if (part.length === 0) continue;
    if (lines.length > 0) lines.push('');
    lines.push(...part);
  }
  return lines;
}

export function reject(protocol: Protocol): string {
  return protocol === 'tcp' ? 'reject with tcp reset' : 'reject with icmpx type port-unreachable';
}
