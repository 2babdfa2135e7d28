/** The configuration file: where it is and what is in it. */
import { isUtf8 } from 'node:buffer';
import { closeSync, existsSync, fstatSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { TextDecoder, getSystemErrorMap } from 'node:util';
import { ConfigError, UsageError } from '../errors.js';
import { oneLine } from '../text.js';
import type { FileSettings } from './build.js';
import type { Command } from './config.js';
import { parseJson } from './json.js';

/** Nobody writes so much by hand: it is the wrong file. shadowsocks-libev stops at 128 KiB. */
const largestFile = 1024 * 1024;

/**
 * Where a command looks when it is given no argument at all: shadowsocks-libev's places, and ss-redir's own before them.
 *
 * @throws {UsageError} when there is none.
 */
export function findDefaultFile(
  command: Command,
  env: NodeJS.ProcessEnv,
  exists: (path: string) => boolean = existsSync,
): string {
  const candidates = [
    ...(command === 'ss-redir' ? ['/etc/ss-redir/config.conf'] : []),
    ...userFile(env),
    '/etc/shadowsocks-libev/config.json',
  ];
  const found = candidates.find((path) => exists(path));
  if (found !== undefined) return found;
  throw new UsageError(
    `no configuration: none of ${candidates.map(oneLine).join(', ')} exists; give -c FILE, or see --help`,
  );
}

function userFile(env: NodeJS.ProcessEnv): string[] {
  const base = env['XDG_CONFIG_HOME'] || (env['HOME'] ? join(env['HOME'], '.config') : '');
  return base === '' ? [] : [join(base, 'shadowsocks-libev', 'config.json')];
}

/** @throws {ConfigError} one line: the file, where it can be told the line and column, and what was expected. */
export function readConfigFile(path: string): FileSettings {
  return { path, ...parseJson(decode(readBytes(path), path), path) };
}

function readBytes(path: string): Buffer {
  let fd: number | undefined;
  try {
    fd = openSync(path, 'r');
    if (fstatSync(fd).isDirectory())
      throw new ConfigError(`${oneLine(path)}: is a directory, expected a file`);
    // Not by its size: /dev/stdin and <(…) of a shell have none. One byte more than allowed tells that it is too large.
    const bytes = Buffer.alloc(largestFile + 1);
    let filled = 0;
    for (;;) {
      const count = readSync(fd, bytes, filled, bytes.length - filled, null);
      filled += count;
      if (filled > largestFile)
        throw new ConfigError(`${oneLine(path)}: larger than 1 MiB, which no configuration file is`);
      if (count === 0) return bytes.subarray(0, filled);
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
