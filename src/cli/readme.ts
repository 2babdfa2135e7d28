/** Writes the option tables into README.md: `npm run readme`. */
import { readFileSync, writeFileSync } from 'node:fs';
import type { Command } from '../config/config.js';
import { type Option, optionsOf } from './options.js';

const begin = '<!-- options:begin -->';
const end = '<!-- options:end -->';

/** The text with the tables of the option table between the two marks, whatever stood there. */
export function withOptionTables(readme: string): string {
  const from = readme.indexOf(begin);
  const to = readme.indexOf(end);
  if (from < 0 || to < from) throw new Error(`README.md: expected ${begin} and, behind it, ${end}`);
  const tables = (['ss-redir', 'ss-server'] as const).map(optionTable);
  return `${readme.slice(0, from + begin.length)}\n\n${tables.join('\n\n')}\n\n${readme.slice(to)}`;
}

/** What this version does: options that it refuses are not listed. */
function optionTable(command: Command): string {
  const rows = optionsOf(command)
    .filter(({ later, refused }) => later === undefined && refused === undefined)
    .map((option) => row(spelling(option), code(option.key), option.help, option.fallback ?? ''));
  const head = [row('Option', 'Key', 'What it does', 'Default'), row('---', '---', '---', '---')];
  return [`### ${command}`, '', ...head, ...rows].join('\n');
}

function spelling({ short, long, argument }: Option): string {
  const names = short === undefined ? `--${long}` : `-${short}, --${long}`;
  return code(argument === undefined ? names : `${names} ${argument}`);
}

function code(text: string | undefined): string {
  return text === undefined ? '' : `\`${text}\``;
}

/** A bar inside a cell would end it, in code too (GitHub Flavored Markdown, section 4.10). */
function row(...cells: string[]): string {
  return `| ${cells.map((cell) => cell.replaceAll('|', String.raw`\|`)).join(' | ')} |`;
}

if (process.argv[1] === import.meta.filename) {
  const file = new URL('../../../README.md', import.meta.url);
  writeFileSync(file, withOptionTables(readFileSync(file, 'utf8')));
}
