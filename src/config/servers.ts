/**
 * The servers, each with its own method and secret. What one of `servers` or of the sections [server NAME] leaves out is taken
 * from the flat keys; the command line goes before both, and a server there takes the place of all in the file.
 */
import { isIP } from 'node:net';
import { explainUnknownMethod, defaultMethodName, findMethod } from '../crypto/methods.js';
import type { Method } from '../crypto/methods.js';
import { ConfigError, UsageError } from '../errors.js';
import { oneLine } from '../text.js';
import type { Command, Server } from './config.js';
import type { ConfigFile, Section } from './file.js';
import {
  knownServerKeys,
  read,
  readOfServer,
  refuseLaterKeys,
  serverAliases,
  warnOfUnknown,
  warnOfUnusedServerKeys,
} from './schema.js';
import { readCredentials, secretKeys } from './secrets.js';
import type { SecretSources } from './secrets.js';
import { isGiven } from './setting.js';
import type { Setting, Settings } from './setting.js';

/** Servers that are reached, or addresses that are listened on, in the same way. */
interface Group {
  /** Undefined for the one of the flat keys. */
  readonly section?: Section;
  /** What it has of its own. */
  readonly own?: Settings;
  readonly settings: Settings;
}

interface Mode {
  readonly tcp: boolean;
  readonly udp: boolean;
}

/**
 * The command line wins, field by field. A secret is one field: `-k` also beats a key in the file, which would otherwise win.
 */
export function merge(over: Settings, base: Settings): Settings {
  const merged = new Map(base);
  if (secretKeys.some((key) => over.has(key))) for (const key of secretKeys) merged.delete(key);
  for (const [key, setting] of over) merged.set(key, setting);
  return merged;
}

export function readServers(
  commandLine: Settings,
  file: ConfigFile | undefined,
  mode: Mode,
  sources: SecretSources,
): Server[] {
  const { command, warnings } = sources;
  const flat = merge(commandLine, file?.settings ?? new Map());
  const sections = commandLine.has('server') ? [] : (file?.servers ?? []);
  const groups = sections.flatMap((section) => readSection(command, section, commandLine, flat, warnings));
  const takesFlat = isGiven(flat, 'server') || sections.length === 0;
  const all: Group[] = takesFlat ? [{ settings: flat }, ...groups] : groups;
  if (all.length === 0) throw new ConfigError(`${oneLine(file!.path)}: all servers are disabled`);
  refuseMissing(command, all, flat, file, warnings);
  const servers = all.flatMap((group) => readGroup(group, mode, sources));
  refuseContradictions(command, servers, mode);
  return servers;
}

/** What is to be known of a server in the file, or nothing when it is disabled. */
function readSection(
  command: Command,
  section: Section,
  commandLine: Settings,
  flat: Settings,
  warnings: string[],
): Group[] {
  const own = new Map<string, Setting>();
  for (const [key, setting] of section.settings) {
    const name = serverAliases.get(key) ?? key;
    if (own.has(name)) throw setting.refuse(`there is a "${otherNameOf(key)}" as well, which is the same`);
    own.set(name, setting);
  }
  if (readOfServer(own, 'disabled') === true) return [];
  warnings.push(...warnOfUnknown(section.settings, knownServerKeys), ...warnOfUnusedServerKeys(own));
  refuseLaterKeys(command, own);
  const base = new Map(flat);
  base.delete('server');
  base.delete('mode');
  return [{ section, own, settings: merge(commandLine, merge(own, base)) }];
}

function otherNameOf(key: string): string {
  const alias = [...serverAliases].find(([, name]) => name === key);
  return serverAliases.get(key) ?? alias![0];
}

/** What cannot be left out, with how to give it. */
function refuseMissing(
  command: Command,
  groups: readonly Group[],
  flat: Settings,
  file: ConfigFile | undefined,
  warnings: readonly string[],
): void {
  const missing = missingFlat(command, flat, groups[0]?.section === undefined);
  const inSections = groups.flatMap(({ section, settings }) => {
    const of = section === undefined ? [] : missingInSection(settings);
    return of.length === 0 ? [] : [`${section!.origin}: missing ${of.join(', ')}`];
  });
  if (missing.length === 0 && inSections.length === 0) return;

  const manager = flat.get('port_password');
  if (manager !== undefined && missing.length > 0) {
    throw manager.refuse(`only ss-manager reads it; ${command} also needs ${missing.join(', ')}`);
  }
  // What is missing is often there under a misspelt name.
  const hints = warnings.length === 0 ? '' : ` (${warnings.join('; ')})`;
  if (missing.length === 0) throw new ConfigError(inSections.join('; ') + hints);
  const message = `missing ${missing.join(', ')}${hints}`;
  if (file === undefined) throw new UsageError(`${message}; no configuration file was read (option -c)`);
  throw new ConfigError(`${oneLine(file.path)}: ${message}`);
}

function missingFlat(command: Command, settings: Settings, areServer: boolean): string[] {
  const isRedir = command === 'ss-redir';
  const missing: string[] = [];
  if (areServer && isRedir && !isGiven(settings, 'server')) missing.push('"server" (option -s)');
  if (areServer && lacksPort(settings)) missing.push('"server_port" (option -p)');
  if (isRedir && !isGiven(settings, 'local_port')) missing.push('"local_port" (option -l)');
  if (areServer && !hasSecret(settings)) missing.push('"password" or "key" (option -k or --key)');
  return missing;
}

function missingInSection(settings: Settings): string[] {
  const missing: string[] = [];
  if (!isGiven(settings, 'server')) missing.push('"address"');
  if (lacksPort(settings)) missing.push('"port"');
  if (!hasSecret(settings)) missing.push('"password", "password_file" or "key"');
  return missing;
}

function lacksPort(settings: Settings): boolean {
  const servers = read(settings, 'server');
  const isNeeded = servers === undefined || servers.some(({ port }) => port === undefined);
  return isNeeded && !isGiven(settings, 'server_port');
}

function hasSecret(settings: Settings): boolean {
  return secretKeys.some((key) => isGiven(settings, key));
}

function readGroup({ section, own, settings }: Group, mode: Mode, sources: SecretSources): Server[] {
  const method = readMethod(settings);
  const credentials = readCredentials(settings, method, sources);
  const name = section?.name ?? (own && readOfServer(own, 'name'));
  const ownMode = own && readOfServer(own, 'mode');
  return readAddresses(settings, sources).map(({ host, port }) => {
    const server = {
      host,
      port,
      ...(name !== undefined && name !== '' && { name }),
      method: method.name,
      tcp: mode.tcp && ownMode !== 'udp_only',
      udp: mode.udp && ownMode !== 'tcp_only',
    };
    return withHidden(server, credentials);
  });
}

/** A getter that is not enumerable: util.inspect (even with showHidden), JSON, spread and structuredClone pass it by. */
export function withHidden<T extends object, C>(visible: T, credentials: C): T & { readonly credentials: C } {
  return Object.defineProperty(visible, 'credentials', {
    enumerable: false,
    get: () => credentials,
  }) as T & { readonly credentials: C };
}

function readMethod(settings: Settings): Method {
  const name = read(settings, 'method') ?? defaultMethodName;
  const method = findMethod(name);
  if (method === undefined) throw settings.get('method')!.refuse(oneLine(explainUnknownMethod(name)));
  return method;
}

function readAddresses(
  settings: Settings,
  { command, warnings }: SecretSources,
): { host: string; port: number }[] {
  const defaultPort = read(settings, 'server_port');
  const written = read(settings, 'server');
  // Port 0 never comes about: refuseMissing has seen to the default where an address has no port.
  if (written === undefined) return [{ host: '::', port: defaultPort ?? 0 }];
  return written.map(({ host, port, ambiguous }) => {
    if (ambiguous === true) {
      const at = host.lastIndexOf(':');
      const meant = `[${host.slice(0, at)}]:${host.slice(at + 1)}`;
      const what = command === 'ss-redir' ? 'a server' : 'an address to listen on';
      warnings.push(
        `${settings.get('server')!.origin}: ${host} is taken for an address without a port, as ${what}; write ${meant} for a port`,
      );
    }
    return { host, port: port ?? defaultPort ?? 0 };
  });
}

function refuseContradictions(command: Command, servers: readonly Server[], mode: Mode): void {
  const known = new Map<string, string>();
  for (const server of servers) {
    const { host, port } = server;
    const where = isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`;
    const secret = secretOf(server);
    if (command === 'ss-server' && secret !== secretOf(servers[0]!)) {
      throw new ConfigError(
        `${where}: ss-server has one method and one password or key for all its addresses: run one more for another`,
      );
    }
    if ((known.get(where) ?? secret) !== secret) {
      throw new ConfigError(`server ${where} is there twice, with different methods, passwords or keys`);
    }
    known.set(where, secret);
  }
  for (const protocol of ['tcp', 'udp'] as const) {
    if (mode[protocol] && !servers.some((server) => server[protocol]))
      throw new ConfigError(`"mode" wants ${protocol.toUpperCase()}, and no server's own "mode" has it`);
  }
}

/** To compare with. */
function secretOf({ method, credentials: { key, identityKeys, users } }: Server): string {
  const keys = [key, ...identityKeys, ...users.map((user) => user.key)];
  return [method, ...keys.map((bytes) => Buffer.from(bytes).toString('hex'))].join();
}
