/** Text from outside (files, arguments, host names) on its way into a message of one line. */

// C0 and C1 controls and the separators that some readers break lines at; also what turns text round (bidi overrides).
// oxlint-disable-next-line no-control-regex
const unprintable = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** The same text without line ends and control characters: they come out as `\n`, `\x1b`, `\u2028`. */
export function oneLine(text: string): string {
  return text.replace(unprintable, escape);
}

/** The text in double quotes, on one line, cut to `limit` characters. */
export function quote(text: string, limit = 60): string {
  const shown = text.length <= limit ? text : `${text.slice(0, limit)}…`;
  return oneLine(JSON.stringify(shown));
}

function escape(character: string): string {
  if (character === '\n') return String.raw`\n`;
  if (character === '\r') return String.raw`\r`;
  if (character === '\t') return String.raw`\t`;
  const code = character.charCodeAt(0);
  return code < 0x100
    ? String.raw`\x${code.toString(16).padStart(2, '0')}`
    : String.raw`\u${code.toString(16)}`;
}
