/** JSON as people write it in configuration files: with comments, trailing commas and a byte order mark. */
import { getNodeValue, parseTree, printParseErrorCode } from 'jsonc-parser';
import type { Node, ParseError } from 'jsonc-parser';
import { ConfigError } from '../errors.js';
import { oneLine, quote } from '../text.js';
import type { ParsedFile, Section } from './file.js';
import { Setting } from './setting.js';

/**
 * The members of the one object in `text`. No message repeats anything of the text but a key's name.
 *
 * @throws {ConfigError} `FILE:LINE:COLUMN: what was expected`, on one line.
 */
export function parseJson(text: string, file: string): ParsedFile {
  const place = placesIn(text, file);
  refuseOtherFormats(text, place);

  const errors: ParseError[] = [];
  const root = parse(text, errors, place);
  if (errors[0] !== undefined)
    throw new ConfigError(`${place(errors[0].offset)}: ${explain(text, errors[0], root)}`);
  if (root?.type !== 'object')
    throw new ConfigError(`${place(root?.offset ?? 0)}: expected an object in braces { }`);

  const reader = new Reader(text, place);
  const settings = reader.members(root, '');
  return { format: 'json', settings, ...reader.sections(root), warnings: reader.warnings };
}

/** Turns nodes of the tree into settings that know their places. */
class Reader {
  readonly warnings: string[] = [];
  private readonly text: string;
  private readonly place: (offset: number) => string;

  constructor(text: string, place: (offset: number) => string) {
    this.text = text;
    this.place = place;
  }

  /** `within` is what the object is, as messages name it behind the place. */
  members(object: Node, within: string): Map<string, Setting> {
    const settings = new Map<string, Setting>();
    for (const property of object.children ?? []) {
      const [keyNode, valueNode] = property.children as [Node, Node];
      const key = keyNode.value as string;
      if (settings.has(key)) {
        const at = this.place(keyNode.offset) + within;
        this.warnings.push(`${at}: key ${quote(key)} is there twice; the last one counts`);
      }
      const source = this.text.slice(valueNode.offset, valueNode.offset + valueNode.length);
      const at = this.place(valueNode.offset) + within;
      settings.set(key, Setting.fromFile(at, key, valueOf(valueNode, this.place), source));
    }
    return settings;
  }

  sections(root: Node): Pick<ParsedFile, 'servers' | 'gateway' | 'log'> {
    const gateway = this.section(root, 'gateway');
    const log = this.section(root, 'log');
    return {
      servers: this.servers(root),
      ...(gateway !== undefined && { gateway }),
      ...(log !== undefined && { log }),
    };
  }

  private servers(root: Node): Section[] {
    const list = memberOf(root, 'servers');
    if (list === undefined || list.type === 'null') return [];
    if (list.type !== 'array') throw this.refuse(list, 'servers', 'expected an array of objects');
    return (list.children ?? []).map((node, index) => {
      const title = `"servers" item ${index + 1}`;
      if (node.type !== 'object')
        throw this.refuse(node, 'servers', `item ${index + 1}: expected an object in braces { }`);
      return { origin: `${this.place(node.offset)}: ${title}`, settings: this.members(node, `: ${title}`) };
    });
  }

  private section(root: Node, key: string): Section | undefined {
    const node = memberOf(root, key);
    if (node === undefined || node.type === 'null') return undefined;
    if (node.type !== 'object') throw this.refuse(node, key, 'expected an object in braces { }');
    return {
      origin: `${this.place(node.offset)}: ${quote(key)}`,
      settings: this.members(node, `: ${quote(key)}`),
    };
  }

  private refuse(node: Node, key: string, reason: string): ConfigError {
    return new ConfigError(`${this.place(node.offset)}: key ${quote(key)}: ${reason}`);
  }
}

/** The value of the last member of that name. */
function memberOf(object: Node, key: string): Node | undefined {
  const named = (property: Node): boolean => property.children?.[0]?.value === key;
  return object.children?.findLast(named)?.children?.[1];
}

function refuseOtherFormats(text: string, place: (offset: number) => string): void {
  const start = text.search(/\S/);
  const rest = text.slice(start, start + 80);
  if (rest.startsWith('{') || rest.startsWith('/')) return;
  if (rest.startsWith('#') || rest.startsWith(';'))
    throw new ConfigError(`${place(start)}: ${noHashComments}`);
  const got = rest.startsWith('[') ? ', got an array' : '';
  throw new ConfigError(`${place(start)}: expected a JSON object in braces { }${got}`);
}

function parse(text: string, errors: ParseError[], place: (offset: number) => string): Node | undefined {
  try {
    return parseTree(text, errors, { allowTrailingComma: true });
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // the parser calls itself: the stack is full
    throw new ConfigError(`${place(0)}: arrays or objects are nested too deeply`);
  }
}

function valueOf(node: Node, place: (offset: number) => string): unknown {
  try {
    return getNodeValue(node);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // it calls itself, too
    throw new ConfigError(`${place(node.offset)}: arrays or objects are nested too deeply`);
  }
}

const noHashComments = 'a comment begins with // or is put between /* and */, not behind #';

const expectations: Readonly<Record<string, string>> = {
  PropertyNameExpected: 'expected a key in double quotes',
  ValueExpected: 'expected a value',
  ColonExpected: 'expected ":" behind the key',
  CommaExpected: 'expected a comma or the closing bracket before this',
  CloseBraceExpected: 'expected "}"',
  CloseBracketExpected: 'expected "]"',
  InvalidNumberFormat: 'expected a decimal number',
  UnexpectedEndOfNumber: 'expected a decimal number',
  UnexpectedEndOfComment: 'this comment is not closed with */',
  UnexpectedEndOfString: 'this string is not closed with " on its line',
  InvalidUnicode: 'this string has a \\u that is not followed by four hexadecimal digits',
  InvalidEscapeCharacter: 'this string has a backslash that JSON does not know (write \\\\ for a backslash)',
  InvalidCharacter: 'this string has a control character (write \\t for a tab)',
};

function explain(text: string, { error, offset }: ParseError, root: Node | undefined): string {
  if (offset >= text.trimEnd().length) return 'the file ends in the middle of the object';
  if (root !== undefined && offset >= root.offset + root.length) return 'nothing may follow the closing "}"';
  if (text[offset] === '#') return noHashComments;
  if (text[offset] === "'") return 'keys and texts are put in double quotes, not in single ones';
  const name = printParseErrorCode(error);
  return expectations[name] ?? 'expected a value or a key in double quotes';
}

/** Lines and columns count from 1; a column is a character of the editor's, that is, a code point. */
function placesIn(text: string, file: string): (offset: number) => string {
  const lineStarts = [0];
  for (const { index, 0: lineEnd } of text.matchAll(/\r\n|\n|\r/g)) lineStarts.push(index + lineEnd.length);
  return (offset) => {
    const line = lastAtMost(lineStarts, offset);
    const column = Array.from(text.slice(Math.max(lineStarts[line]!, offset - longestColumn), offset)).length;
    return `${oneLine(file)}:${line + 1}:${column + 1}`;
  };
}

/** Whoever puts everything on one line is not helped by a larger column, and finding it takes longer for each key. */
const longestColumn = 10_000;

/** Index of the last of the ascending `numbers` that is not above `limit`. */
function lastAtMost(numbers: readonly number[], limit: number): number {
  let low = 0;
  for (let high = numbers.length - 1; low < high;) {
    const middle = Math.ceil((low + high) / 2);
    if (numbers[middle]! <= limit) low = middle;
    else high = middle - 1;
  }
  return low;
}
