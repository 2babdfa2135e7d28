/** Port lists as people write them: `22,80,443`, `1-1023 8080`, `1:1023`. Merged, so that nft never meets an overlap. */
import { quote } from '../text.js';

export interface PortRange {
  readonly from: number;
  /** Included. */
  readonly to: number;
}

/** The merged ranges, or a string that says what was expected and names the bad item. */
export function readPorts(text: string): PortRange[] | string {
  const ranges: PortRange[] = [];
  for (const item of text
    .replaceAll(/\s*([-:])\s*/g, '$1')
    .split(/[\s,]+/)
    .filter(Boolean)) {
    const [, first, last = first] = /^(\d{1,5})(?:[-:](\d{1,5}))?$/.exec(item) ?? [];
    const [from, to] = [Number(first), Number(last)];
    if (first === undefined || from < 1 || to > 65_535) {
      return `ports from 1 to 65535 and ranges like 1-1023, separated by commas (${quote(item)} is none)`;
    }
    if (from > to) return `ranges that begin with the lower port (${quote(item)} does not)`;
    ranges.push({ from, to });
  }
  return mergePorts(ranges);
}

export function mergePorts(ranges: readonly PortRange[]): PortRange[] {
  const merged: { from: number; to: number }[] = [];
  for (const { from, to } of ranges.toSorted((a, b) => a.from - b.from)) {
    const last = merged.at(-1);
    if (last === undefined || from > last.to + 1) merged.push({ from, to });
    else last.to = Math.max(last.to, to);
  }
  return merged;
}

export function formatPorts(ranges: readonly PortRange[]): string {
  return `{ ${ranges.map(({ from, to }) => (from === to ? String(from) : `${from}-${to}`)).join(', ')} }`;
}
