/** The configuration file: where it is and what is in it. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ConfigError, UsageError } from '../errors.js';
import { oneLine } from '../text.js';
import type { Command } from './config.js';
import type { ConfigFile, ParsedFile } from './file.js';
import { parseIni } from './ini.js';
import { parseJson } from './json.js';
import { readTextFile } from './read-file.js';

const ownFolder = '/etc/ss-redir';
const libevFolder = '/etc/shadowsocks-libev';

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
  return firstOf(
    [
      ...(command === 'ss-redir' ? [join(ownFolder, 'config.conf')] : []),
      ...userFile(env),
      join(libevFolder, 'config.json'),
    ],
    exists,
    'no configuration',
  );
}

/**
 * The file of an instance; Debian's of that name last.
 *
 * @throws {UsageError} when there is none.
 */
export function findInstanceFile(instance: string, exists: (path: string) => boolean = existsSync): string {
  return firstOf(
    [
      join(ownFolder, `${instance}.conf`),
      join(ownFolder, `${instance}.json`),
      join(libevFolder, `${instance}.json`),
    ],
    exists,
    `no configuration for the instance ${instance}`,
  );
}

function firstOf(candidates: readonly string[], exists: (path: string) => boolean, what: string): string {
  const found = candidates.find((path) => exists(path));
  if (found !== undefined) return found;
  throw new UsageError(
    `${what}: none of ${candidates.map(oneLine).join(', ')} exists; give -c FILE, or see --help`,
  );
}

function userFile(env: NodeJS.ProcessEnv): string[] {
  const base = env['XDG_CONFIG_HOME'] || (env['HOME'] ? join(env['HOME'], '.config') : '');
  return base === '' ? [] : [join(base, 'shadowsocks-libev', 'config.json')];
}

/** @throws {ConfigError} one line: the file, where it can be told the line and column, and what was expected. */
export function readConfigFile(path: string): ConfigFile {
  const { text, openMode } = readTextFile(path);
  return { path, ...parse(text, path), ...(openMode !== undefined && { openMode }) };
}

/** A brace in the first line that is no comment of INI's is JSON, and so is what can only be meant as JSON. */
function parse(text: string, path: string): ParsedFile {
  if (text.trim() === '') {
    throw new ConfigError(
      `${oneLine(path)}:1:1: the file is empty, expected a section like [redir], or a JSON object in braces { }`,
    );
  }
  const lines = text.split(/\r\n|\n|\r/).map((line) => line.trim());
  const first = lines.find((line) => line !== '' && !/^[#;]/.test(line)) ?? '';
  const isJson = /^(?:[{"/]|\[(?:\s*[^\sA-Za-z]|$))/.test(first);
  return isJson ? parseJson(text, path) : parseIni(text, path);
}
