/**
 * Writes the option tables into the manual pages of man/: `npm run man`. Between the two marks of a page every option is
 *
 *     .It Fl c , Fl -config Ar FILE
 *     What --help says of it, its default and its key.
 *     .\" more
 *     What the page itself adds, which is kept.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { type Option, optionsOf, type Program } from './options.js';

export const manPages: readonly (readonly [program: Program, file: string])[] = [
  ['ss-redir', 'ss-redir.1'],
  ['ss-server', 'ss-server.1'],
  ['ss-nft', 'ss-nft.8'],
  ['ss-setup', 'ss-setup.8'],
];

const begin = String.raw`.\" options:begin`;
const end = String.raw`.\" options:end`;
const more = String.raw`.\" more`;

/** mandoc -T lint asks for lines of at most 80 bytes. */
const width = 78;

/** What this version does: options that it refuses are in no page. */
export function documentedOptions(program: Program): readonly Option[] {
  return optionsOf(program).filter(({ later, refused }) => later === undefined && refused === undefined);
}

/** The page with the options of the option table between the two marks, and with its own additions to them. */
export function withOptions(page: string, program: Program): string {
  const from = page.indexOf(`${begin}\n`);
  const to = page.indexOf(`${end}\n`);
  if (from < 0 || to < from) throw new Error(`page of ${program}: expected ${begin} and, below it, ${end}`);
  const additions = readAdditions(page.slice(from, to));
  const items: string[] = [];
  for (const option of documentedOptions(program)) {
    items.push(...item(option), more, ...(additions.get(option.long) ?? []));
    additions.delete(option.long);
  }
  const [orphan] = additions.keys();
  if (orphan !== undefined) {
    throw new Error(
      `page of ${program}: adds to --${orphan}, which is no option of it: move or remove that text`,
    );
  }
  const lines = [begin, '.Bl -tag -width Ds', ...items, '.El', ''];
  return page.slice(0, from) + lines.join('\n') + page.slice(to);
}

/** By long option, the lines below its mark, where there are any. */
function readAdditions(block: string): Map<string, string[]> {
  const additions = new Map<string, string[]>();
  for (const text of block.split(/^(?=\.It Fl )/m).slice(1)) {
    const long = /Fl -(\S+)/.exec(text)?.[1];
    const [, addition = ''] = text.split(`${more}\n`);
    const lines = addition
      .replace(/\n$/, '')
      .replace(/(?:^|\n)\.El$/, '')
      .split('\n');
    if (long !== undefined && lines.join('') !== '') additions.set(long, lines);
  }
  return additions;
}

function item({ short, long, argument, help, fallback, key, sets, repeat }: Option): string[] {
  const names = [...(short === undefined ? [] : [`Fl ${short} ,`]), `Fl -${long}`];
  return [
    ['.It', ...names, ...(argument === undefined ? [] : [spellArgument(argument)])].join(' '),
    ...wrap(sentence(help)),
    ...(repeat === true && !help.includes('again') ? ['May be given again.'] : []),
    ...(fallback === undefined ? [] : wrap(`Default: ${fallback}.`)),
    ...(key === undefined ? [] : ['Key:', `.Ic ${key}${sets === undefined ? '' : ` = ${sets}`} .`]),
  ];
}

/** `closed|open` are words as they stand, `NUMBER` stands for one. */
function spellArgument(argument: string): string {
  return argument
    .split('|')
    .map((word) => `${/^[a-z]/.test(word) ? 'Cm' : 'Ar'} ${escape(word)}`)
    .join(' | ');
}

function sentence(help: string): string {
  const first = /^[a-z]{2,}(?=[\s:,;])/.test(help) ? help[0]!.toUpperCase() + help.slice(1) : help;
  return `${first}.`;
}

/** Text lines, a new sentence on a new line. */
function wrap(text: string): string[] {
  return escape(text)
    .split(/(?<=\.) (?=[A-Z])/)
    .flatMap((part) => {
      const lines = [''];
      for (const word of part.split(' ')) {
        const line = lines.at(-1)!;
        if (line !== '' && line.length + 1 + word.length > width) lines.push(word);
        else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
      }
      return lines.map(atLineStart);
    });
}

/** A dash is one that can be copied into a shell. */
function escape(text: string): string {
  return text.replaceAll('\\', String.raw`\e`).replaceAll('-', String.raw`\-`);
}

/** A dot or an apostrophe would make it a request. */
function atLineStart(line: string): string {
  return /^[.']/.test(line) ? String.raw`\&` + line : line;
}

if (process.argv[1] === import.meta.filename) {
  for (const [program, name] of manPages) {
    const file = new URL(`../../../man/${name}`, import.meta.url);
    writeFileSync(file, withOptions(readFileSync(file, 'utf8'), program));
  }
}
