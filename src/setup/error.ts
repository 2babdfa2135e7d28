/** What stands in the way. */
import { ToolError } from '../errors.js';
import { oneLine } from '../text.js';

/** The host or the arguments stand in the way; each line of the message names what, and what to do. */
export class SetupError extends Error {
  override name = 'SetupError';
}

const hints: Readonly<Record<string, string>> = {
  EACCES: 'run it as root',
  EPERM: 'run it as root',
  EROFS: 'the file system is read-only',
  ENOSPC: 'no space is left',
  EDQUOT: 'no space is left',
  ENOTDIR: 'a file is in the place of a directory',
};

/** A failed call to the file system or tool in one line, with what it has led to; other errors as they are. */
export function explain(error: unknown, consequence = ''): unknown {
  if (error instanceof ToolError) return new SetupError(`${error.message}${consequence}`);
  const { code = '', path, syscall } = error as NodeJS.ErrnoException;
  if (syscall === undefined) return error;
  const hint = hints[code];
  return new SetupError(
    `${syscall} ${oneLine(path ?? '')}: ${code}${hint === undefined ? '' : `: ${hint}`}${consequence}`,
  );
}
