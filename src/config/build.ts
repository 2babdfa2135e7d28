/** From what file and command line say to the one frozen Config. */
import { availableParallelism } from 'node:os';
import { isIPv4, isIPv6 } from 'node:net';
import type { Credentials, User } from '../crypto/credentials.js';
import { parsePsk, parsePskChain } from '../crypto/keys-2022.js';
import { masterKeyFromBase64, masterKeyFromPassword } from '../crypto/keys.js';
import { defaultMethodName, explainUnknownMethod, findMethod, methods } from '../crypto/methods.js';
import type { Method } from '../crypto/methods.js';
import { ConfigError, UsageError } from '../errors.js';
import { oneLine, quote } from '../text.js';
import {
  defaultMaxConnections,
  defaultMaxDnsQueries,
  defaultOutboundFwmark,
  defaultTimeoutSeconds,
  defaultUdpTimeoutSeconds,
  defaultWorkers,
  minimumIdleTimeoutSeconds,
  minimumUdpTimeoutSeconds,
  smallestBuffer,
  smallestNofile,
} from './config.js';
import type { Command, Config, ServerAddress } from './config.js';
import { nearestName } from './nearest.js';
import { knownKeys, read, refuseLaterKeys, warnOfUnusedKeys } from './schema.js';
import type { Key } from './schema.js';
import type { Setting, Settings } from './setting.js';

/** A configuration file that has been read, or nothing. */
export interface FileSettings {
  readonly path?: string;
  readonly settings: Settings;
  readonly warnings: readonly string[];
}

/**
 * @throws {ConfigError} for a value of the file, {UsageError} for one of the command line or when something is missing
 * in both. Warnings are collected in the Config.
 */
export function buildConfig(command: Command, commandLine: Settings, file: FileSettings): Config {
  const warnings = [...file.warnings, ...unknownKeys(file.settings)];
  const settings = merge(commandLine, file.settings);
  refuseLaterKeys(command, settings);
  refuseMissing(command, settings, file.path, warnings);
  warnings.push(...warnOfUnusedKeys(command, settings));

  const servers = readServers(command, settings, warnings);
  const localPort = command === 'ss-redir' ? read(settings, 'local_port')! : 0;
  const method = readMethod(settings);
  const timeoutSeconds = read(settings, 'timeout') ?? defaultTimeoutSeconds[command];
  const tcpTproxy = command === 'ss-redir' && on(settings, 'tcp_tproxy');
  const networkInterface = command === 'ss-server' ? read(settings, 'interface') : undefined;
  const nofile = readNofile(settings, warnings);
  const user = read(settings, 'user');
  const udpMaxAssociations = read(settings, 'udp_max_associations');
  const credentials = readCredentials(command, settings, method, warnings);

  const config = {
    command,
    ...(file.path !== undefined && { configFile: file.path }),
    servers,
    localAddress: readLocalAddress(command, settings, servers, tcpTproxy, warnings),
    localPort,
    dscp: command === 'ss-redir' ? readDscp(settings, localPort) : [],
    nameservers: read(settings, 'nameserver') ?? [],
    ...(command === 'ss-server' && readSourceAddresses(settings, warnings)),
    ...(networkInterface !== undefined && { interface: networkInterface }),
    method: method.name,
    timeoutSeconds,
    idleTimeoutSeconds: read(settings, 'idle_timeout') ?? Math.max(minimumIdleTimeoutSeconds, timeoutSeconds),
    workers: readWorkers(settings),
    maxConnections: read(settings, 'max_connections') ?? defaultMaxConnections,
    maxDnsQueries: read(settings, 'max_dns_queries') ?? defaultMaxDnsQueries,
    outboundFwmark: read(settings, 'outbound_fwmark') ?? defaultOutboundFwmark,
    ...(nofile !== undefined && { nofile }),
    ...readMode(settings),
    udpTimeoutSeconds: readUdpTimeout(settings, method, warnings),
    ...(udpMaxAssociations !== undefined && { udpMaxAssociations }),
    mtu: read(settings, 'mtu') ?? 0,
    tcpTproxy,
    fastOpen: on(settings, 'fast_open'),
    reusePort: on(settings, 'reuse_port'),
    noDelay: on(settings, 'no_delay'),
    mptcp: on(settings, 'mptcp'),
    ipv6First: on(settings, 'ipv6_first'),
    ...(user !== undefined && user !== '' && { user }),
    verbose: on(settings, 'verbose'),
    useSyslog: on(settings, 'use_syslog'),
    tcpIncomingSndbuf: readBuffer(settings, 'tcp_incoming_sndbuf', warnings),
    tcpIncomingRcvbuf: readBuffer(settings, 'tcp_incoming_rcvbuf', warnings),
    tcpOutgoingSndbuf: readBuffer(settings, 'tcp_outgoing_sndbuf', warnings),
    tcpOutgoingRcvbuf: readBuffer(settings, 'tcp_outgoing_rcvbuf', warnings),
    warnings,
  } satisfies Omit<Config, 'credentials'>;
  return freeze(withHidden(config, credentials));
}

function unknownKeys(settings: Settings): string[] {
  const warnings: string[] = [];
  for (const [key, { origin }] of settings) {
    if (knownKeys.includes(key) || key.startsWith('_')) continue; // a key that begins with _ is a comment
    const nearest = nearestName(key, knownKeys);
    const hint = nearest === undefined ? '' : `, did you mean ${quote(nearest)}?`;
    warnings.push(`${origin} is unknown and ignored${hint}`);
  }
  return warnings;
}

/**
 * The command line wins, field by field. Password and key are one field here: `-k` also beats a key in the file, which would
 * otherwise win.
 */
function merge(commandLine: Settings, file: Settings): Settings {
  const merged = new Map(file);
  if (commandLine.has('password') || commandLine.has('key')) {
    merged.delete('password');
    merged.delete('key');
  }
  for (const [key, setting] of commandLine) merged.set(key, setting);
  return merged;
}

/** What cannot be left out, with how to give it: [there?, what it is, option]. */
function refuseMissing(
  command: Command,
  settings: Settings,
  path: string | undefined,
  warnings: readonly string[],
): void {
  const has = (key: string): boolean => (settings.get(key)?.value ?? null) !== null;
  const servers = read(settings, 'server');
  const needsPort = servers === undefined || servers.some(({ port }) => port === undefined);
  const missing: string[] = [];
  if (command === 'ss-redir' && !has('server')) missing.push('"server" (option -s)');
  if (needsPort && !has('server_port')) missing.push('"server_port" (option -p)');
  if (command === 'ss-redir' && !has('local_port')) missing.push('"local_port" (option -l)');
  if (!has('password') && !has('key')) missing.push('"password" or "key" (option -k or --key)');
  if (missing.length === 0) return;

  const manager = settings.get('port_password');
  if (manager !== undefined) {
    throw manager.refuse(`only ss-manager reads it; ${command} also needs ${missing.join(', ')}`);
  }
  // What is missing is often there under a misspelt name.
  const hints = warnings.length === 0 ? '' : ` (${warnings.join('; ')})`;
  const message = `missing ${missing.join(', ')}${hints}`;
  if (path === undefined) throw new UsageError(`${message}; no configuration file was read (option -c)`);
  throw new ConfigError(`${oneLine(path)}: ${message}`);
}

/** As in shadowsocks-libev, -u and -U are a mode each, and win over the file's. */
function readMode(settings: Settings): Pick<Config, 'tcp' | 'udp'> {
  const mode = read(settings, 'mode') ?? 'tcp_only';
  return { tcp: mode !== 'udp_only', udp: mode !== 'tcp_only' };
}

function readUdpTimeout(settings: Settings, { name, edition }: Method, warnings: string[]): number {
  const seconds = read(settings, 'udp_timeout') ?? defaultUdpTimeoutSeconds;
  const least = minimumUdpTimeoutSeconds[edition];
  if (seconds >= least) return seconds;
  warnings.push(
    `${settings.get('udp_timeout')!.origin}: ${seconds} is below ${least}, the least with ${name}: it is ${least}`,
  );
  return least;
}

function readServers(command: Command, settings: Settings, warnings: string[]): ServerAddress[] {
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

function readLocalAddress(
  command: Command,
  settings: Settings,
  servers: readonly ServerAddress[],
  tcpTproxy: boolean,
  warnings: string[],
): string {
  if (command === 'ss-server') return '::';
  const local =
    read(settings, 'local_address') ?? (servers.every(({ host }) => isIPv6(host)) ? '::1' : '127.0.0.1');
  if (!tcpTproxy && isLoopback(local)) {
    warnings.push(
      `listening on ${local} only: REDIRECT brings clients of the LAN to the address of their interface, give -b :: for them (0.0.0.0 is IPv4 only)`,
    );
  }
  if (tcpTproxy && !isLoopback(local) && local !== '::' && local !== '0.0.0.0') {
    warnings.push(
      `listening on ${local} only: the rules hand TPROXY connections to 127.0.0.1 and ::1, give -b :: for them`,
    );
  }
  return local;
}

function isLoopback(address: string): boolean {
  return address === '::1' || address.startsWith('127.');
}

function readSourceAddresses(
  settings: Settings,
  warnings: string[],
): Pick<Config, 'bindAddress4' | 'bindAddress6'> {
  const either = read(settings, 'local_address');
  const v4 =
    read(settings, 'local_ipv4_address') ?? (either !== undefined && isIPv4(either) ? either : undefined);
  const v6 =
    read(settings, 'local_ipv6_address') ?? (either !== undefined && isIPv6(either) ? either : undefined);
  for (const address of [v4, v6]) {
    if (address === undefined || !isLoopback(address)) continue;
    warnings.push(
      `outgoing connections leave from ${address} (local_address, option -b) and reach nothing but this host`,
    );
  }
  return { ...(v4 !== undefined && { bindAddress4: v4 }), ...(v6 !== undefined && { bindAddress6: v6 }) };
}

function readDscp(settings: Settings, localPort: number): Config['dscp'] {
  const ports = read(settings, 'dscp') ?? [];
  if (ports.some(({ port }) => port === localPort)) {
    throw settings.get('dscp')!.refuse(`port ${localPort} is the local port already`);
  }
  return ports;
}

function readMethod(settings: Settings): Method {
  const name = read(settings, 'method') ?? defaultMethodName;
  const method = findMethod(name);
  if (method === undefined) throw settings.get('method')!.refuse(oneLine(explainUnknownMethod(name)));
  return method;
}

function readNofile(settings: Settings, warnings: string[]): number | undefined {
  const nofile = read(settings, 'nofile');
  if (nofile === undefined || nofile > smallestNofile) return nofile;
  const { origin } = settings.get('nofile')!;
  if (nofile !== 0)
    warnings.push(
      `${origin}: ${nofile} is not above ${smallestNofile} and ignored; the limit stays as it is`,
    );
  return undefined;
}

function readWorkers(settings: Settings): number {
  const workers = read(settings, 'workers') ?? defaultWorkers;
  return workers === 'auto' ? availableParallelism() : workers;
}

function readBuffer(settings: Settings, key: Key & `tcp_${string}buf`, warnings: string[]): number {
  const size = read(settings, key) ?? 0;
  if (size === 0 || size >= smallestBuffer) return size;
  warnings.push(
    `${settings.get(key)!.origin}: ${size} is below ${smallestBuffer} and ignored; the kernel's size stays`,
  );
  return 0;
}

function on(settings: Settings, key: Key): boolean {
  return read(settings, key) === true;
}

function readCredentials(
  command: Command,
  settings: Settings,
  method: Method,
  warnings: string[],
): Credentials {
  for (const name of ['password', 'key'] as const) {
    const setting = settings.get(name);
    if (setting?.fromCommandLine === true) {
      warnings.push(
        `${setting.origin}: everybody on this host can read it in the process list; put it into a file`,
      );
    }
  }
  const users = command === 'ss-server' ? readUsers(settings, method) : [];
  const keyText = read(settings, 'key');
  const password = read(settings, 'password');
  if (keyText !== undefined && password !== undefined)
    warnings.push('both a password and a key are given; the key counts');
  if (method.edition === '2022') {
    const name = keyText === undefined ? 'password' : 'key';
    const chain = explained(settings.get(name)!, () => parsePskChain((keyText ?? password)!, method));
    if (command === 'ss-server' && chain.identityKeys.length > 0)
      throw settings
        .get(name)!
        .refuse('"iPSK:uPSK" is for clients: a server has its own key here, and "users"');
    refuseSameKeys(settings, [{ name: 'the server', key: chain.key }, ...users]);
    return { ...chain, users };
  }
  if (keyText !== undefined) return onlyKey(decodeKey(settings, keyText, method, warnings));
  return onlyKey(masterKeyFromPassword(checkPassword(settings, password!, warnings), method.keySize));
}

function onlyKey(key: Uint8Array): Credentials {
  return { key, identityKeys: [], users: [] };
}

function readUsers(settings: Settings, method: Method): User[] {
  const users = read(settings, 'users') ?? [];
  const setting = settings.get('users')!;
  if (users.length === 0) return [];
  if (!method.hasIdentityHeaders) {
    const with_ = methods.filter(({ hasIdentityHeaders }) => hasIdentityHeaders).map(({ name }) => name);
    throw setting.refuse(`${method.name} cannot tell users apart; these can: ${with_.join(', ')}`);
  }
  const names = new Set<string>();
  return users.map(({ name, password }) => {
    if (names.has(name)) throw setting.refuse(`the name ${quote(name)} is there twice`);
    names.add(name);
    return { name, key: explained(setting, () => parsePsk(password, method), `user ${quote(name)}: `) };
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

/** Puts where a key stands before what is wrong with it. */
function explained<T>(setting: Setting, parse: () => T, whose = ''): T {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw setting.refuse(whose + error.message);
  }
}

function checkPassword(settings: Settings, password: string, warnings: string[]): string {
  const setting = settings.get('password')!;
  // Node has put U+FFFD for bytes that are no UTF-8: the key would silently be another one than with shadowsocks-libev.
  if (setting.fromCommandLine && password.includes('\ufffd')) {
    throw setting.refuse('expected UTF-8, got other bytes');
  }
  // shadowsocks-libev runs with it, so we do; but whoever knows the address can use such a server.
  if (password === '') warnings.push(`${setting.origin}: the password is empty, so it protects nothing`);
  return password;
}

function decodeKey(
  settings: Settings,
  text: string,
  { name, keySize }: Method,
  warnings: string[],
): Uint8Array {
  const setting = settings.get('key')!;
  const size = Buffer.from(text, 'base64').length; // reads both alphabets
  if (size > keySize)
    warnings.push(`${setting.origin}: ${size} bytes, of which ${name} uses the first ${keySize}`);
  try {
    return masterKeyFromBase64(text, keySize);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw setting.refuse(`${error.message} (${name}); make a key with: openssl rand -base64 ${keySize}`);
  }
}

/** A getter that is not enumerable: util.inspect (even with showHidden), JSON, spread and structuredClone pass it by. */
function withHidden(config: Omit<Config, 'credentials'>, credentials: Credentials): Config {
  return Object.defineProperty(config, 'credentials', {
    enumerable: false,
    get: () => credentials,
  }) as Config;
}

function freeze(config: Config): Config {
  for (const list of [config.servers, config.dscp]) list.forEach((item) => Object.freeze(item));
  for (const list of [config.servers, config.dscp, config.nameservers, config.warnings]) Object.freeze(list);
  return Object.freeze(config);
}
