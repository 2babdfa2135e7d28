/** JSON as people write it in configuration files: with comments, trailing commas and a byte order mark. */
import { getNodeValue, parseTree, printParseErrorCode } from 'jsonc-parser';
import type { Node, ParseError } from 'jsonc-parser';
import { ConfigError } from '../errors.js';
import { oneLine, quote } from '../text.js';
import { Setting } from './setting.js';

export interface ParsedFile {
  readonly settings: ReadonlyMap<string, Setting>;
  readonly warnings: readonly string[];
}

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

  const settings = new Map<string, Setting>();
  const warnings: string[] = [];
  for (const property of root.children ?? []) {
    const [keyNode, valueNode] = property.children as [Node, Node];
    const key = keyNode.value as string;
    const at = place(keyNode.offset);
    if (settings.has(key)) warnings.push(`${at}: key ${quote(key)} is there twice; the last one counts`);
    const source = text.slice(valueNode.offset, valueNode.offset + valueNode.length);
    settings.set(key, Setting.fromFile(place(valueNode.offset), key, valueOf(valueNode, place), source));
  }
  return { settings, warnings };
}

function refuseOtherFormats(text: string, place: (offset: number) => string): void {
  const start = text.search(/\S/);
  if (start < 0)
    throw new ConfigError(`${place(0)}: the file is empty, expected a JSON object in braces { }`);
  const rest = text.slice(start, start + 80);
  if (rest.startsWith('{') || rest.startsWith('/')) return;
  if (rest.startsWith('#')) throw new ConfigError(`${place(start)}: ${noHashComments}`);
  if (/^\[\s*[A-Za-z]/.test(rest)) {
    throw new ConfigError(
      `${place(start)}: this looks like an INI file, which this version does not read yet: expected JSON, which begins with {`,
    );
  }
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
