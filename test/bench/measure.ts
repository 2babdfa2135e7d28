// What the scenarios share: the machine they ran on, medians, tables.
import { execFileSync } from 'node:child_process';
import { cpus, release } from 'node:os';
import type { Mode } from '../helpers/world.js';

export interface Shared {
  mode: Mode;
  /** The Node binary that runs ours. */
  node: string;
  /** Further arguments of our ss-redir. */
  args: string[];
  say: (line: string) => void;
}

export interface Machine {
  cpu: string;
  cores: number;
  kernel: string;
  node: string;
}

export function describeMachine(node: string): Machine {
  const processors = cpus();
  return {
    cpu: processors[0]?.model.trim() ?? 'unknown',
    cores: processors.length,
    kernel: release(),
    node: execFileSync(node, ['--version'], { encoding: 'utf8' }).trim(),
  };
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? NaN) + upper) / 2;
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The first column to the left, numbers to the right. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]!)))
      .join('  ');
  return rows.map(line).join('\n');
}
