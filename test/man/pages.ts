// The manual pages as the tests read them: sections, options, marked examples.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export const manFolder = fileURLToPath(new URL('../../../man/', import.meta.url));

export const pageFiles: readonly string[] = existsSync(manFolder) ? readdirSync(manFolder).toSorted() : [];

export const skip = pageFiles.length > 0 ? false : 'no man/ here';

export function readPage(file: string): string {
  return readFileSync(`${manFolder}${file}`, 'utf8');
}

/** The source of a section, without its heading; empty where the page has none. */
export function sectionOf(page: string, title: string): string {
  const sections = page.split(/^\.Sh /m);
  const found = sections.find((section) => section.startsWith(`${title}\n`));
  return found === undefined ? '' : found.slice(title.length + 1);
}

/** Those of the section OPTIONS, each as --help has it: `-c, --config FILE`. */
export function optionsOfPage(page: string): string[] {
  const items = sectionOf(page, 'OPTIONS').matchAll(/^\.It (Fl .*)$/gm);
  return [...items].map(([, item]) =>
    plain(item!)
      .replaceAll(' , ', ', ')
      .replaceAll(' | ', '|')
      .replaceAll(/\bFl /g, '-')
      .replaceAll(/\b(?:Ar|Cm) /g, ''),
  );
}

/** mdoc's escapes as the characters that they stand for. */
export function plain(text: string): string {
  return text
    .replaceAll(String.raw`\-`, '-')
    .replaceAll(String.raw`\(dq`, '"')
    .replaceAll(String.raw`\&`, '')
    .replaceAll(String.raw`\e`, '\\');
}

/** What a mark above a literal block says of it. */
export type Example =
  | { readonly kind: 'run'; readonly text: string; readonly line: number; readonly exitCode: number }
  | { readonly kind: 'daemon'; readonly text: string; readonly line: number }
  | { readonly kind: 'file'; readonly text: string; readonly line: number; readonly path: string }
  | { readonly kind: 'shown only'; readonly text: string; readonly line: number; readonly reason: string };

/**
 * The literal blocks of a page in their order. Each has a comment above it:
 *
 *     .\" run                   commands that a test runs: every line succeeds
 *     .\" run: exit 3           the last one ends with this status
 *     .\" run: daemon           a command that serves until it is stopped
 *     .\" file: PATH            what the commands below find there
 *     .\" shown only: REASON
 *
 * @throws {Error} for a block without one.
 */
export function examplesOf(page: string, name: string): Example[] {
  const lines = page.split('\n');
  return lines.flatMap((line, index) => {
    if (!line.startsWith('.Bd -literal')) return [];
    const end = lines.indexOf('.Ed', index);
    const text = `${plain(lines.slice(index + 1, end).join('\n'))}\n`;
    return [marked(lines[index - 1]!, text, index + 1, `${name}:${index + 1}`)];
  });
}

function marked(mark: string, text: string, line: number, where: string): Example {
  const [, kind, detail = ''] = /^\.\\" (run|file|shown only)(?:: (.+))?$/.exec(mark) ?? [];
  if (kind === 'run' && detail === 'daemon') return { kind: 'daemon', text, line };
  if (kind === 'run' && /^(?:exit \d+)?$/.test(detail))
    return { kind, text, line, exitCode: Number(detail.slice(5)) };
  if (kind === 'file' && detail.startsWith('/')) return { kind, text, line, path: detail };
  if (kind === 'shown only' && detail !== '') return { kind, text, line, reason: detail };
  throw new Error(`${where}: expected a mark above this block: run, file: PATH or shown only: REASON`);
}
