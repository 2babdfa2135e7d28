/** From what file and command line say to the one frozen Config. */
import { isIPv4, isIPv6 } from 'node:net';
import { availableParallelism } from 'node:os';
import { findMethod } from '../crypto/methods.js';
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
import type { Command, Config, Server } from './config.js';
import type { ConfigFile } from './file.js';
import {
  knownKeys,
  knownLogKeys,
  read,
  readOfLog,
  refuseLaterKeys,
  warnOfUnknown,
  warnOfUnusedKeys,
} from './schema.js';
import type { Key } from './schema.js';
import { warningOfMode } from './secrets.js';
import { merge, readServers, withHidden } from './servers.js';
import { isGiven } from './setting.js';
import type { Setting, Settings } from './setting.js';

/** What a Config is made of. */
export interface Parts {
  readonly commandLine: Settings;
  readonly file?: ConfigFile;
  /** Of --instance. */
  readonly instance?: string;
  readonly makesRules?: boolean;
  /** Of --fail. */
  readonly fail?: Setting;
  /** Says where systemd has put the credentials. */
  readonly env?: NodeJS.ProcessEnv;
}

/**
 * @throws {ConfigError} for a value of the file, {UsageError} for one of the command line or when something is missing
 * in both. Warnings are collected in the Config.
 */
export function buildConfig(
  command: Command,
  { commandLine, file, instance, makesRules = false, fail, env = {} }: Parts,
): Config {
  const warnings = [...(file?.warnings ?? []), ...warnOfUnknown(file?.settings ?? new Map(), knownKeys)];
  if (file?.openMode !== undefined && holdsSecret(file))
    warnings.push(warningOfMode(file.path, file.openMode));
  const settings = merge(commandLine, file?.settings ?? new Map());
  refuseLaterKeys(command, settings);
  const mode = readMode(settings);
  const servers = readServers(commandLine, file, mode, { command, env, path: file?.path, warnings });
  const [{ method, credentials }] = servers as [Server];
  warnings.push(...warnOfUnusedKeys(command, settings));
  if (file?.log !== undefined) warnings.push(...warnOfUnknown(file.log.settings, knownLogKeys));
  const log = readLog(settings, file?.log?.settings ?? new Map());
  const gateway = readGateway(command, file, warnings);

  const localPort = command === 'ss-redir' ? read(settings, 'local_port')! : 0;
  const timeoutSeconds = read(settings, 'timeout') ?? defaultTimeoutSeconds[command];
  const tcpTproxy = command === 'ss-redir' && on(settings, 'tcp_tproxy');
  const networkInterface = command === 'ss-server' ? read(settings, 'interface') : undefined;
  const nofile = readNofile(settings, warnings);
  const user = read(settings, 'user');
  const udpMaxAssociations = read(settings, 'udp_max_associations');

  const config = {
    command,
    ...(file !== undefined && { configFile: file.path }),
    ...(instance !== undefined && { instance }),
    makesRules,
    ...(fail !== undefined && { fail }),
    servers,
    localAddress: readLocalAddress(
      command,
      settings,
      makesRules || file?.format === 'ini',
      servers,
      { ...mode, tcpTproxy },
      warnings,
    ),
    localPort,
    dscp: command === 'ss-redir' ? readDscp(settings, localPort) : [],
    nameservers: read(settings, 'nameserver') ?? [],
    ...(command === 'ss-server' && readSourceAddresses(settings, warnings)),
    ...(networkInterface !== undefined && { interface: networkInterface }),
    method,
    timeoutSeconds,
    idleTimeoutSeconds: read(settings, 'idle_timeout') ?? Math.max(minimumIdleTimeoutSeconds, timeoutSeconds),
    workers: readWorkers(settings),
    maxConnections: read(settings, 'max_connections') ?? defaultMaxConnections,
    maxDnsQueries: read(settings, 'max_dns_queries') ?? defaultMaxDnsQueries,
    outboundFwmark: read(settings, 'outbound_fwmark') ?? defaultOutboundFwmark,
    ...(nofile !== undefined && { nofile }),
    ...mode,
    udpTimeoutSeconds: readUdpTimeout(settings, servers, warnings),
    ...(udpMaxAssociations !== undefined && { udpMaxAssociations }),
    mtu: read(settings, 'mtu') ?? 0,
    tcpTproxy,
    fastOpen: on(settings, 'fast_open'),
    reusePort: on(settings, 'reuse_port'),
    noDelay: on(settings, 'no_delay'),
    mptcp: on(settings, 'mptcp'),
    ipv6First: on(settings, 'ipv6_first'),
    ...(user !== undefined && user !== '' && { user }),
    ...log,
    tcpIncomingSndbuf: readBuffer(settings, 'tcp_incoming_sndbuf', warnings),
    tcpIncomingRcvbuf: readBuffer(settings, 'tcp_incoming_rcvbuf', warnings),
    tcpOutgoingSndbuf: readBuffer(settings, 'tcp_outgoing_sndbuf', warnings),
    tcpOutgoingRcvbuf: readBuffer(settings, 'tcp_outgoing_rcvbuf', warnings),
    ...(gateway !== undefined && { gateway }),
    warnings: [...new Set(warnings)], // a password file that two servers have in common is told of once
  } satisfies Omit<Config, 'credentials'>;
  return freeze(withHidden(config, credentials));
}

function holdsSecret({ settings, servers }: ConfigFile): boolean {
  const holders = [settings, ...servers.map((server) => server.settings)];
  return holders.some((holder) => ['password', 'key', 'users'].some((key) => isGiven(holder, key)));
}

/** The section adds to the flat keys, which can only switch on. */
function readLog(settings: Settings, log: Settings): Pick<Config, 'verbose' | 'useSyslog'> {
  return {
    verbose: on(settings, 'verbose') || readOfLog(log, 'level') === 'debug',
    useSyslog: on(settings, 'use_syslog') || readOfLog(log, 'syslog') === true,
  };
}

function readGateway(
  command: Command,
  file: ConfigFile | undefined,
  warnings: string[],
): Settings | undefined {
  if (file?.gateway === undefined) return undefined;
  if (command === 'ss-redir') return file.gateway.settings;
  warnings.push(`${file.gateway.origin}: ${command} makes no rules`);
  return undefined;
}

/** As in shadowsocks-libev, -u and -U are a mode each, and win over the file's. */
function readMode(settings: Settings): Pick<Config, 'tcp' | 'udp'> {
  const mode = read(settings, 'mode') ?? 'tcp_only';
  return { tcp: mode !== 'udp_only', udp: mode !== 'tcp_only' };
}

/** The method of one server that wants it longest decides for all. */
function readUdpTimeout(settings: Settings, servers: readonly Server[], warnings: string[]): number {
  const seconds = read(settings, 'udp_timeout') ?? defaultUdpTimeoutSeconds;
  const wanted = servers.map(({ method }) => ({
    name: method,
    least: minimumUdpTimeoutSeconds[findMethod(method)!.edition],
  }));
  const { name, least } = wanted.reduce((longest, one) => (one.least > longest.least ? one : longest));
  if (seconds >= least) return seconds;
  warnings.push(
    `${settings.get('udp_timeout')!.origin}: ${seconds} is below ${least}, the least with ${name}: it is ${least}`,
  );
  return least;
}

function readLocalAddress(
  command: Command,
  settings: Settings,
  isForGateway: boolean,
  servers: readonly Server[],
  { tcp, udp, tcpTproxy }: Pick<Config, 'tcp' | 'udp' | 'tcpTproxy'>,
  warnings: string[],
): string {
  if (command === 'ss-server') return '::';
  const local = read(settings, 'local_address') ?? (isForGateway ? '::' : defaultLocalAddress(servers));
  if (tcp && !tcpTproxy && isLoopback(local)) {
    warnings.push(
      `listening on ${local} only: REDIRECT brings clients of the LAN to the address of their interface, give -b :: for them (0.0.0.0 is IPv4 only)`,
    );
  }
  const byTproxy = udp || (tcp && tcpTproxy); // UDP has no REDIRECT
  if (byTproxy && !isLoopback(local) && local !== '::' && local !== '0.0.0.0') {
    warnings.push(
      `listening on ${local} only: the rules hand what comes by TPROXY to 127.0.0.1 and ::1, give -b :: for it`,
    );
  }
  return local;
}

/** As shadowsocks-libev. */
function defaultLocalAddress(servers: readonly Server[]): string {
  return servers.every(({ host }) => isIPv6(host)) ? '::1' : '127.0.0.1';
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

function freeze(config: Config): Config {
  for (const list of [config.servers, config.dscp]) list.forEach((item) => Object.freeze(item));
  for (const list of [config.servers, config.dscp, config.nameservers, config.warnings]) Object.freeze(list);
  return Object.freeze(config);
}
