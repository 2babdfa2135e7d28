/**
 * Sets of addresses as sorted ranges that neither overlap nor touch, so that nft never meets "conflicting intervals" and a
 * set is as small as it can be.
 */
import { isIPv4, isIPv6 } from 'node:net';

export type Family = 4 | 6;

export interface Range {
  readonly from: bigint;
  /** Included. */
  readonly to: bigint;
}

export interface Prefix extends Range {
  readonly family: Family;
  /** Length of the network part. */
  readonly length: number;
}

export const widthOf: Readonly<Record<Family, number>> = { 4: 32, 6: 128 };

export const expectedPrefix = 'an IPv4 or IPv6 address or network, like 192.0.2.0/24 or 2001:db8::/32';

/** `address` or `address/length`; bits behind the network part are left out of account. Undefined for anything else. */
export function readPrefix(text: string): Prefix | undefined {
  const [written = '', lengthText, ...rest] = text.split('/');
  const family = isIPv4(written) ? 4 : isIPv6(written) && !written.includes('%') ? 6 : undefined;
  if (family === undefined || rest.length > 0) return undefined;
  const width = widthOf[family];
  if (lengthText !== undefined && !/^\d{1,3}$/.test(lengthText)) return undefined;
  const length = lengthText === undefined ? width : Number(lengthText);
  if (length > width) return undefined;
  const value = family === 4 ? ipv4Value(written) : ipv6Value(written);
  // ::ffff:0:0/96 are mapped addresses: the IPv4 addresses that they hold.
  if (family === 6 && length >= 96 && value >> 32n === 0xffffn)
    return network(4, value & 0xffff_ffffn, length - 96);
  return network(family, value, length);
}

function network(family: Family, value: bigint, length: number): Prefix {
  const size = 1n << BigInt(widthOf[family] - length);
  const from = (value / size) * size;
  return { family, length, from, to: from + size - 1n };
}

function ipv4Value(text: string): bigint {
  return text.split('.').reduce((value, part) => value * 256n + BigInt(part), 0n);
}

function ipv6Value(text: string): bigint {
  const hexadecimal = text.replace(/\d+\.\d+\.\d+\.\d+$/, (ipv4) => {
    const value = ipv4Value(ipv4);
    return `${(value >> 16n).toString(16)}:${(value & 0xffffn).toString(16)}`;
  });
  const [head = '', tail] = hexadecimal.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? [] : Array<string>(8 - before.length - after.length).fill('0');
  return [...before, ...zeros, ...after].reduce((value, group) => (value << 16n) | BigInt(`0x${group}`), 0n);
}

/** Sorted, and what overlaps or touches is one. */
export function merge(ranges: readonly Range[]): Range[] {
  const sorted = ranges.toSorted((a, b) => (a.from < b.from ? -1 : a.from > b.from ? 1 : 0));
  const merged: { from: bigint; to: bigint }[] = [];
  for (const { from, to } of sorted) {
    const last = merged.at(-1);
    if (last === undefined || from > last.to + 1n) merged.push({ from, to });
    else if (to > last.to) last.to = to;
  }
  return merged;
}

/** What of `ranges` is not in `others`; both merged. */
export function subtract(ranges: readonly Range[], others: readonly Range[]): Range[] {
  const left: Range[] = [];
  let at = 0;
  for (const { from, to } of ranges) {
    let start = from;
    while (at < others.length && others[at]!.to < start) at++;
    for (let i = at; i < others.length && others[i]!.from <= to; i++) {
      const other = others[i]!;
      if (other.from > start) left.push({ from: start, to: other.from - 1n });
      if (other.to + 1n > start) start = other.to + 1n;
    }
    if (start <= to) left.push({ from: start, to });
  }
  return left;
}

/**
 * Two lists that may contradict each other, as two sets that do not: the longest prefix that holds an address decides, and
 * of two equal ones the first list's.
 */
export function mostSpecific(first: readonly Prefix[], second: readonly Prefix[]): [Range[], Range[]] {
  const byLength = new Map<number, [Range[], Range[]]>();
  for (const [list, prefixes] of [first, second].entries()) {
    for (const prefix of prefixes) {
      let entry = byLength.get(prefix.length);
      if (entry === undefined) byLength.set(prefix.length, (entry = [[], []]));
      entry[list]!.push(prefix);
    }
  }
  let [one, two]: [Range[], Range[]] = [[], []];
  for (const length of [...byLength.keys()].toSorted((a, b) => a - b)) {
    const [ones, twos] = byLength.get(length)!.map(merge) as [Range[], Range[]];
    // Longer ones over what is there, and the first list over the second.
    one = merge([...subtract(one, twos), ...ones]);
    two = subtract(merge([...two, ...twos]), ones);
  }
  return [one, two];
}

/** As nft takes it: an address, a network, or `from-to` where it is no single network. */
export function formatRange({ from, to }: Range, family: Family): string {
  const size = to - from + 1n;
  if (size === 1n) return formatAddress(from, family);
  const isNetwork = (size & (size - 1n)) === 0n && from % size === 0n;
  if (!isNetwork) return `${formatAddress(from, family)}-${formatAddress(to, family)}`;
  const length = widthOf[family] - (size.toString(2).length - 1);
  return `${formatAddress(from, family)}/${length}`;
}

function formatAddress(value: bigint, family: Family): string {
  if (family === 4) return [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 0xffn).join('.');
  const groups = Array.from({ length: 8 }, (_, i) =>
    ((value >> BigInt(112 - 16 * i)) & 0xffffn).toString(16),
  );
  // The longest run of zeros is `::` (RFC 5952, section 4.2).
  const runs = groups.join(':').match(/\b0(?::0)+\b/g) ?? [];
  const longest = runs.reduce((best, run) => (run.length > best.length ? run : best), '');
  if (longest === '') return groups.join(':');
  return groups.join(':').replace(new RegExp(`(?:^|:)\\b${longest}\\b(?::|$)`), '::');
}
