/** Passwords and keys: where they come from, and what a method makes of them. No message repeats one. */
import { dirname, join, resolve } from 'node:path';
import type { Credentials, User } from '../crypto/credentials.js';
import { parsePsk, parsePskChain } from '../crypto/keys-2022.js';
import { masterKeyFromBase64, masterKeyFromPassword } from '../crypto/keys.js';
import { methods } from '../crypto/methods.js';
import type { Method } from '../crypto/methods.js';
import { ConfigError } from '../errors.js';
import { oneLine, quote } from '../text.js';
import type { Command } from './config.js';
import { readTextFile } from './read-file.js';
import { checkPassword, read } from './schema.js';
import { isGiven } from './setting.js';
import type { Setting, Settings } from './setting.js';

/** They are one field: who gives one of them takes the place of the others. */
export const secretKeys = ['password', 'password_file', 'key'] as const;

export interface SecretSources {
  readonly command: Command;
  readonly env: NodeJS.ProcessEnv;
  /** Of the configuration file; what it names is looked for beside it. */
  readonly path: string | undefined;
  readonly warnings: string[];
}

export function readCredentials(settings: Settings, method: Method, sources: SecretSources): Credentials {
  const { command, warnings } = sources;
  warnOfProcessList(settings, warnings);
  const users = command === 'ss-server' ? readUsers(settings, method, sources) : [];
  const { setting, text, isKey } = readSecret(settings, sources);
  if (method.edition === '2022') {
    const chain = explained(setting, () => parsePskChain(text, method));
    if (command === 'ss-server' && chain.identityKeys.length > 0)
      throw setting.refuse('"iPSK:uPSK" is for clients: a server has its own key here, and "users"');
    refuseSameKeys(settings, [{ name: 'the server', key: chain.key }, ...users]);
    return { ...chain, users };
  }
  const key = isKey
    ? decodeKey(setting, text, method, warnings)
    : masterKeyFromPassword(usable(setting, text, warnings), method.keySize);
  return { key, identityKeys: [], users: [] };
}

function warnOfProcessList(settings: Settings, warnings: string[]): void {
  for (const name of secretKeys) {
    const setting = settings.get(name);
    if (setting?.fromCommandLine !== true) continue;
    warnings.push(
      `${setting.origin}: everybody on this host can read it in the process list; put it into a file`,
    );
  }
}

interface Secret {
  readonly setting: Setting;
  readonly text: string;
  readonly isKey: boolean;
}

function readSecret(settings: Settings, sources: SecretSources): Secret {
  const key = read(settings, 'key');
  const password = read(settings, 'password');
  const file = settings.get('password_file');
  if (file !== undefined && isGiven(settings, 'password_file') && (key ?? password) !== undefined) {
    throw file.refuse('there is a "password" or "key" as well: which of them counts?');
  }
  if (key !== undefined) {
    if (password !== undefined) sources.warnings.push('both a password and a key are given; the key counts');
    return { setting: settings.get('key')!, text: key, isKey: true };
  }
  if (password !== undefined) return { setting: settings.get('password')!, text: password, isKey: false };
  return {
    setting: file!,
    text: readPasswordFile(file!, read(settings, 'password_file')!, sources),
    isKey: false,
  };
}

/**
 * A file with the password in its one line. The line end behind it, LF or CRLF, is not part of the password; blanks are.
 *
 * @param written a path, beside the configuration file when it is relative, or `credential:NAME` of systemd.exec(5).
 */
function readPasswordFile(setting: Setting, written: string, sources: SecretSources): string {
  const path = pathOf(setting, written, sources);
  const { text, openMode } = explained(setting, () => readTextFile(path));
  const password = text.replace(/\r?\n$/, '');
  if (password === '')
    throw setting.refuse(`${oneLine(path)}: expected the password in one line, got nothing`);
  if (/[\r\n]/.test(password)) {
    throw setting.refuse(`${oneLine(path)}: expected the password in one line, got several`);
  }
  const flaw = checkPassword(password);
  if (flaw !== undefined) throw setting.refuse(`${oneLine(path)}: expected ${flaw}`);
  if (openMode !== undefined) sources.warnings.push(warningOfMode(path, openMode));
  return password;
}

const credentialPrefix = 'credential:';

function pathOf(setting: Setting, written: string, { env, path }: SecretSources): string {
  if (!written.startsWith(credentialPrefix)) {
    if (written === '') throw setting.refuse('expected the name of a file, got an empty string');
    return resolve(path === undefined ? '' : dirname(path), written);
  }
  const name = written.slice(credentialPrefix.length);
  // systemd.exec(5): a name is a file name.
  if (name === '' || name === '.' || name === '..' || name.includes('/') || name.includes('\0')) {
    throw setting.refuse(`expected credential:NAME with the name of a credential, got ${quote(written)}`);
  }
  const folder = env['CREDENTIALS_DIRECTORY'];
  if (folder === undefined || folder === '') {
    throw setting.refuse(
      `${oneLine(written)}: the service manager has passed no credentials (LoadCredential=${oneLine(name)}:FILE in the unit passes one)`,
    );
  }
  return join(folder, name);
}

export function warningOfMode(path: string, mode: number): string {
  return `${oneLine(path)} holds a password or key and is open to others (mode 0${mode.toString(8)}): chmod o= ${oneLine(path)}`;
}

function readUsers(settings: Settings, method: Method, sources: SecretSources): User[] {
  const users = read(settings, 'users') ?? [];
  const setting = settings.get('users');
  if (setting === undefined) return [];
  // Taken for none, it would let in whoever knows the server's own key: all the users that were taken off the list.
  if (users.length === 0) throw setting.refuse('expected at least one user, got an empty array');
  if (!method.hasIdentityHeaders) {
    const able = methods.filter(({ hasIdentityHeaders }) => hasIdentityHeaders).map(({ name }) => name);
    throw setting.refuse(`${method.name} cannot tell users apart; these can: ${able.join(', ')}`);
  }
  const names = new Set<string>();
  return users.map(({ name, password, password_file: file, ...others }) => {
    for (const key of Object.keys(others)) {
      if (!key.startsWith('_'))
        sources.warnings.push(
          `${setting.origin}: user ${quote(name)}: key ${quote(key)} is unknown and ignored`,
        );
    }
    if (names.has(name)) throw setting.refuse(`the name ${quote(name)} is there twice`);
    names.add(name);
    if ((password === undefined) === (file === undefined))
      throw setting.refuse(`user ${quote(name)}: expected "password" or "password_file", one of them`);
    const text = password ?? readPasswordFile(setting, file!, sources);
    return { name, key: explained(setting, () => parsePsk(text, method), `user ${quote(name)}: `) };
  });
}

/** Who has the same key as another is that other. */
function refuseSameKeys(settings: Settings, holders: readonly User[]): void {
  const known = new Map<string, string>();
  for (const { name, key } of holders) {
    const text = Buffer.from(key).toString('hex');
    const other = known.get(text);
    if (other !== undefined)
      throw settings.get('users')!.refuse(`${quote(name)} has the same key as ${quote(other)}`);
    known.set(text, name);
  }
}

/** Puts where a secret stands before what is wrong with it. */
function explained<T>(setting: Setting, parse: () => T, whose = ''): T {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw setting.refuse(whose + error.message);
  }
}

function usable(setting: Setting, password: string, warnings: string[]): string {
  // Node has put U+FFFD for bytes that are no UTF-8: the key would silently be another one than with shadowsocks-libev.
  if (setting.fromCommandLine && password.includes('\ufffd')) {
    throw setting.refuse('expected UTF-8, got other bytes');
  }
  // shadowsocks-libev runs with it, so we do; but whoever knows the address can use such a server.
  if (password === '') warnings.push(`${setting.origin}: the password is empty, so it protects nothing`);
  return password;
}

function decodeKey(
  setting: Setting,
  text: string,
  { name, keySize }: Method,
  warnings: string[],
): Uint8Array {
  const size = Buffer.from(text, 'base64').length; // reads both alphabets
  if (size > keySize)
    warnings.push(`${setting.origin}: ${size} bytes, of which ${name} uses the first ${keySize}`);
  return explained(setting, () => {
    try {
      return masterKeyFromBase64(text, keySize);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      throw new ConfigError(`${error.message} (${name}); make a key with: openssl rand -base64 ${keySize}`);
    }
  });
}
