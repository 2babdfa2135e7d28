/** Small text files: the configuration, and what it refers to. */
import { isUtf8 } from 'node:buffer';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { TextDecoder, getSystemErrorMap } from 'node:util';
import { ConfigError } from '../errors.js';
import { oneLine } from '../text.js';

/** Nobody writes so much by hand: it is the wrong file. shadowsocks-libev stops at 128 KiB. */
const largestFile = 1024 * 1024;

export interface TextFile {
  readonly text: string;
  /** The permission bits when others than owner and group have some. */
  readonly openMode?: number;
}

/** @throws {ConfigError} one line: the file, where it can be told the line and column, and what was expected. */
export function readTextFile(path: string): TextFile {
  const { bytes, mode } = readBytes(path);
  return { text: decode(bytes, path), ...((mode & 0o007) !== 0 && { openMode: mode }) };
}

function readBytes(path: string): { bytes: Buffer; mode: number } {
  let fd: number | undefined;
  try {
    fd = openSync(path, 'r');
    const stat = fstatSync(fd);
    if (stat.isDirectory()) throw new ConfigError(`${oneLine(path)}: is a directory, expected a file`);
    // Not by its size: /dev/stdin and <(…) of a shell have none. One byte more than allowed tells that it is too large.
    const bytes = Buffer.alloc(largestFile + 1);
    let filled = 0;
    for (;;) {
      const count = readSync(fd, bytes, filled, bytes.length - filled, null);
      filled += count;
      if (filled > largestFile)
        throw new ConfigError(`${oneLine(path)}: larger than 1 MiB, which no configuration file is`);
      if (count === 0)
        return { bytes: bytes.subarray(0, filled), mode: stat.isFile() ? stat.mode & 0o777 : 0 };
    }
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw new ConfigError(`${oneLine(path)}: cannot be read: ${reasonOf(error)}`);
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

/** `no such file or directory`, without the path and code that Node puts around it. */
function reasonOf(error: unknown): string {
  const { errno } = error as NodeJS.ErrnoException;
  const known = errno === undefined ? undefined : getSystemErrorMap().get(errno);
  return known?.[1] ?? 'unknown error';
}

function decode(bytes: Buffer, path: string): string {
  const text = new TextDecoder().decode(bytes); // without the byte order mark
  if (isUtf8(bytes)) return text;
  const before = text.slice(0, text.indexOf('\ufffd'));
  const line = before.split('\n').length;
  const column = Array.from(before.slice(before.lastIndexOf('\n') + 1)).length + 1;
  throw new ConfigError(`${oneLine(path)}:${line}:${column}: expected UTF-8 text, got other bytes`);
}
