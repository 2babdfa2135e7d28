/**
 * The INI form of the configuration. A line is one of these:
 *
 *     # comment      ; comment      [redir]      [server NAME]      [gateway]      [log]      [user NAME]      key = value
 *
 * Keys before the first section are those of [redir]. A value, which ends with its line, is written in one of three ways:
 *
 *     "text"   JSON's escapes: \" \\ \u00e9
 *     'text'   as it stands, up to the next single quote
 *     text     as it stands, without the blanks around it; \\ is one backslash, \# and \; are # and ;
 *
 * Behind a value, a blank and # or ; begin a comment. Without a blank, or in a password that stands without quotes, these
 * characters are refused: the value might end there or not, and a password that is cut says nothing but "wrong password".
 *
 * Values are decoded by the package ini, a line at a time: it tells no places, cuts values silently at # and ;, takes what is
 * not quoted well as it stands, and '012' in single quotes for a number.
 */
import { unsafe as decodeValue } from 'ini';
import { ConfigError } from '../errors.js';
import { oneLine, quote } from '../text.js';
import type { ParsedFile, Section } from './file.js';
import { nearestName } from './nearest.js';
import { Setting } from './setting.js';

interface OpenSection {
  readonly kind: string;
  readonly name: string;
  readonly origin: string;
  readonly line: number;
  readonly settings: Map<string, Setting>;
  readonly lines: Map<string, number>;
}

/** Of these one may be there for each name; of the others one. */
const namedKinds: ReadonlySet<string> = new Set(['server', 'user']);
const kinds = ['redir', 'server', 'gateway', 'log', 'user'];

/** Keys whose value is never followed by a comment. */
const secrets: ReadonlySet<string> = new Set(['password', 'key']);

/** @throws {ConfigError} `FILE:LINE: what was expected`, on one line, which repeats no value. */
export function parseIni(text: string, path: string): ParsedFile {
  const file = oneLine(path);
  const top: OpenSection = {
    kind: 'redir',
    name: '',
    origin: file,
    line: 0,
    settings: new Map(),
    lines: new Map(),
  };
  const sections: OpenSection[] = [];
  let current = top;
  for (const [index, written] of text.split(/\r\n|\n|\r/).entries()) {
    const line = written.trim();
    if (line === '' || line.startsWith('#') || line.startsWith(';')) continue;
    const number = index + 1;
    const place = `${file}:${number}`;
    if (line.startsWith('[')) {
      current = openSection(line, number, place, sections);
      sections.push(current);
      continue;
    }
    addKey(current, line, number, place);
  }
  return collect(top, sections);
}

function openSection(line: string, number: number, place: string, open: readonly OpenSection[]): OpenSection {
  const title = /^\[(?<title>[^\]]*)\]\s*(?:[#;].*)?$/.exec(line)?.groups?.['title']?.trim();
  if (title === undefined)
    throw new ConfigError(`${place}: expected a section like [redir] or [server NAME]`);
  const [, kind, rest] = /^(\S*)\s*(.*)$/.exec(title)!;
  const known = kinds.includes(kind!);
  if (!known) throw new ConfigError(`${place}: ${explainKind(kind!)}`);
  const name = decodeValue(rest!);
  if (name !== '' && !namedKinds.has(kind!)) {
    throw new ConfigError(`${place}: expected [${kind}] without a name`);
  }
  const twin = open.find((other) => other.kind === kind && other.name === name);
  if (twin !== undefined) {
    const hint = namedKinds.has(kind!) ? ': give each a name of its own' : '';
    throw new ConfigError(
      `${place}: section [${oneLine(title)}] is there already, in line ${twin.line}${hint}`,
    );
  }
  const origin = `${place}: [${oneLine(title)}]`;
  return { kind: kind!, name, origin, line: number, settings: new Map(), lines: new Map() };
}

function explainKind(kind: string): string {
  const nearest = nearestName(kind.toLowerCase(), kinds);
  const hint = nearest === undefined ? '' : ` (did you mean [${nearest}]?)`;
  return `expected [redir], [server NAME], [gateway], [log] or [user NAME], got another section${hint}`;
}

function addKey(section: OpenSection, line: string, number: number, place: string): void {
  const at = line.indexOf('=');
  const key = line.slice(0, at).trimEnd();
  // Nothing of the line is repeated: it may be half of a password, or a key whose base64 ends in =.
  if (at < 0) throw new ConfigError(`${place}: expected a [section], "key = value" or a # comment`);
  if (!/^[a-z_][a-z\d_.-]*$/.test(key) || key.length > longestKey) {
    throw new ConfigError(`${place}: expected a key of small letters, digits and _ before the =`);
  }
  const inSection = section.line === 0 ? '' : ` [${titleOf(section)}]:`;
  const where = `${place}:${inSection}`.replace(/:$/, '');
  const earlier = section.lines.get(key);
  if (earlier !== undefined) {
    throw new ConfigError(`${where}: key ${quote(key)} is there already, in line ${earlier}`);
  }
  const value = readValue(line.slice(at + 1).trim(), secrets.has(key));
  if (value.wrong !== undefined) throw new ConfigError(`${where}: key ${quote(key)}: ${value.wrong}`);
  section.lines.set(key, number);
  section.settings.set(key, Setting.fromIni(where, key, value.text, value.quoted));
}

const longestKey = 64;

function titleOf({ kind, name }: OpenSection): string {
  return oneLine(name === '' ? kind : `${kind} ${name}`);
}

interface Value {
  readonly text: string;
  readonly quoted: boolean;
  readonly wrong?: string;
}

function wrong(reason: string): Value {
  return { text: '', quoted: false, wrong: reason };
}

function readValue(written: string, isSecret: boolean): Value {
  if (written.startsWith('"')) return readDoubleQuoted(written);
  if (written.startsWith("'")) return readSingleQuoted(written);
  const at = markAt(written);
  if (at >= 0 && (isSecret || (at > 0 && !/\s/.test(written[at - 1]!)))) {
    return wrong(`"${written[at]}" may belong to the value or begin a comment: put the value in quotes`);
  }
  return { text: decodeValue(written), quoted: false };
}

/** Where the package ini sees a comment begin: at the first # or ; without a backslash before it. */
function markAt(written: string): number {
  for (let at = 0; at < written.length; at++) {
    if (written[at] === '\\') at++;
    else if (written[at] === '#' || written[at] === ';') return at;
  }
  return -1;
}

function readDoubleQuoted(written: string): Value {
  const inQuotes = /^"(?:[^"\\]|\\.)*"/.exec(written)?.[0];
  if (inQuotes === undefined) return wrong('this text is not closed with " on its line');
  if (!mayFollow(written.slice(inQuotes.length))) return wrong(nothingBehind);
  try {
    JSON.parse(inQuotes);
  } catch {
    return wrong(
      'this text has a control character, or a backslash that JSON does not know (write \\\\ for a backslash)',
    );
  }
  return { text: decodeValue(inQuotes), quoted: true };
}

function readSingleQuoted(written: string): Value {
  const end = written.indexOf("'", 1);
  if (end < 0) return wrong("this text is not closed with ' on its line");
  if (!mayFollow(written.slice(end + 1))) return wrong(nothingBehind);
  return { text: written.slice(1, end), quoted: true };
}

const nothingBehind = 'nothing but a comment may follow the closing quote (write \\" for a quote in a text)';

function mayFollow(rest: string): boolean {
  return /^\s*(?:[#;].*)?$/.test(rest);
}

function collect(top: OpenSection, sections: readonly OpenSection[]): ParsedFile {
  const of = (kind: string): OpenSection[] => sections.filter((section) => section.kind === kind);
  const [redir] = of('redir');
  const [gateway] = of('gateway');
  const [log] = of('log');
  const settings = new Map(top.settings);
  for (const [key, setting] of redir?.settings ?? []) {
    const earlier = top.lines.get(key);
    if (earlier !== undefined) throw setting.refuse(`is there already, in line ${earlier}`);
    settings.set(key, setting);
  }
  const users = of('user');
  if (users.length > 0) settings.set('users', usersOf(users));
  return {
    format: 'ini',
    settings,
    servers: of('server').map(sectionOf),
    ...(gateway !== undefined && { gateway: sectionOf(gateway) }),
    ...(log !== undefined && { log: sectionOf(log) }),
    warnings: [],
  };
}

function sectionOf({ origin, name, settings }: OpenSection): Section {
  return { origin, settings, ...(name !== '' && { name }) };
}

/** As the members of JSON's `users`. */
function usersOf(sections: readonly OpenSection[]): Setting {
  const users = sections.map(({ name, settings }) => ({
    name,
    ...Object.fromEntries([...settings].map(([key, { text }]) => [key, text])),
  }));
  return Setting.fromFile(sections[0]!.origin, 'users', users, '');
}
