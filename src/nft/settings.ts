/**
 * What a gateway is to do: the one form that ss-nft's options and the configuration's gateway section both fill. Keys have
 * the names that shadowsocks-libev (server, local_port, mode, tcp_tproxy), shadowsocks-rust (outbound_fwmark) and OpenWrt's
 * ss-rules (ifnames, src_…, dst_…, local_default, nft_…_extra) know them by.
 */
import { isIP, isIPv4 } from 'node:net';
import { resolve } from 'node:path';
import * as v from 'valibot';
import { readPort, readServer } from '../config/address.js';
import { describe, type Settings } from '../config/setting.js';
import { nearestName } from '../config/nearest.js';
import { expectedInstance, isInstanceName } from '../config/instance.js';
import { ConfigError } from '../errors.js';
import { quote } from '../text.js';
import * as names from './names.js';
import { mergePorts, readPorts, type PortRange } from './ports.js';
import { expectedPrefix, readPrefix, type Prefix } from './ranges.js';

/** What becomes of a connection: direct, to ss-redir, or as its destination says. */
export type Policy = 'bypass' | 'forward' | 'checkdst';

/** LAN clients, by address, network or MAC. */
export interface Clients {
  readonly prefixes: readonly Prefix[];
  readonly macs: readonly string[];
}

export interface MaskedMark {
  readonly value: number;
  readonly mask: number;
}

/** Where DNS goes; without an address to the router itself. */
export interface DnsTarget {
  readonly address?: string;
  readonly port: number;
}

export interface GatewaySettings {
  readonly instance: string;
  readonly tcp: 'redirect' | 'tproxy' | 'none';
  readonly udp: boolean;
  /** Where ss-redir listens, for TCP and for UDP. */
  readonly localPort: number;
  readonly udpLocalPort: number;
  /** Names and addresses; always direct. */
  readonly servers: readonly string[];
  /** Of the LAN; a name may end in `*`. */
  readonly interfaces: readonly string[];

  readonly srcBypass: Clients;
  readonly srcForward: Clients;
  readonly srcCheckdst: Clients;
  readonly srcDefault: Policy;
  readonly dstBypass: readonly Prefix[];
  readonly dstForward: readonly Prefix[];
  readonly dstBypassFiles: readonly string[];
  readonly dstForwardFiles: readonly string[];
  readonly dstDefault: 'bypass' | 'forward';
  /** Only these are proxied; empty: all. */
  readonly tcpPorts: readonly PortRange[];
  readonly udpPorts: readonly PortRange[];
  /** More that a packet must match to be proxied, in nft's language. */
  readonly tcpExtra: string;
  readonly udpExtra: string;
  /** Names whose addresses have the other policy than `dstDefault`. */
  readonly domainsFiles: readonly string[];
  readonly domainsTimeoutSeconds: number;

  /** The router's own connections. */
  readonly localDefault: Policy;
  readonly localBypassMarks: readonly MaskedMark[];
  readonly localBypassUsers: readonly string[];

  readonly fail: 'closed' | 'open';
  readonly killSwitch: boolean;
  readonly rejectQuic: boolean;
  readonly dnsHijack: readonly DnsTarget[];
  /** Whether networks that are not on the internet are direct. */
  readonly reserved: boolean;

  readonly toProxyMark: number;
  readonly ownMark: number;
  readonly nameSetMark: number;
  readonly routeTable: number;
  readonly rulePriority: number;
}

/** A reader returns what it read, or a string that says what was expected. */
type Reader<T> = (text: string) => T | string;

function one<T extends object | number>(read: Reader<T>, expected: string) {
  return v.pipe(
    v.union([v.string(), v.number()], expected),
    v.rawTransform<string | number, T>(({ dataset, addIssue, NEVER }) => {
      const result = read(String(dataset.value).trim());
      if (typeof result !== 'string') return result;
      addIssue({ message: result });
      return NEVER;
    }),
  );
}

/** Several in one string, separated by commas or spaces, or an array of such. */
function list<T extends object>(read: Reader<T>, expected: string) {
  return v.pipe(
    v.union([v.string(), v.number(), v.array(v.union([v.string(), v.number()], expected))], expected),
    v.rawTransform<string | number | (string | number)[], T[]>(({ dataset, addIssue, NEVER }) => {
      const items: T[] = [];
      for (const text of [dataset.value].flat().flatMap((part) => String(part).split(/[\s,]+/))) {
        if (text === '') continue;
        const item = read(text);
        if (typeof item !== 'string') {
          items.push(item);
          continue;
        }
        addIssue({ message: `${item} (${quote(text)} is none)` });
        return NEVER;
      }
      return items;
    }),
  );
}

/** A word behind its check, in a box: a reader's plain string is a complaint. */
const word =
  (accepts: (text: string) => boolean, expected: string): Reader<{ text: string }> =>
  (text) =>
    accepts(text) ? { text } : expected;

const expectedInterface =
  'interface names of at most 15 letters, digits and _.:@-, perhaps with * at the end';
const interfaceNames = list(
  // What nft could take for its own language, a quote or a brace, is in none of them.
  word((text) => /^[A-Za-z0-9_.:@-]{1,15}\*?$/.test(text), expectedInterface),
  expectedInterface,
);

const prefixes = list((text) => readPrefix(text) ?? expectedPrefix, expectedPrefix);

const expectedClient = `${expectedPrefix}, or a MAC like 02:00:5e:10:00:00`;
const clients = list((text) => {
  const mac = /^[\da-f]{2}(?:([:-])[\da-f]{2})(?:\1[\da-f]{2}){4}$/i.test(text);
  return mac ? { mac: text.toLowerCase().replaceAll('-', ':') } : (readPrefix(text) ?? expectedClient);
}, expectedClient);

const expectedPorts = 'ports from 1 to 65535 and ranges like 1-1023, separated by commas';
const ports = v.pipe(
  v.union([v.string(), v.number(), v.array(v.union([v.string(), v.number()], expectedPorts))], expectedPorts),
  v.rawTransform<string | number | (string | number)[], PortRange[]>(({ dataset, addIssue, NEVER }) => {
    const result = readPorts([dataset.value].flat().join(','));
    if (typeof result !== 'string') return mergePorts(result);
    addIssue({ message: result });
    return NEVER;
  }),
);

function readNumber(text: string, least: number, most: number): number | undefined {
  if (!/^(?:\d+|0x[\da-f]+)$/i.test(text)) return undefined;
  const number = Number(text);
  return number >= least && number <= most ? number : undefined;
}

const expectedMark = 'a mark of at least one bit in 32, decimal or 0x and hexadecimal';
const mark = one((text) => readNumber(text, 1, 0xffff_ffff) ?? expectedMark, expectedMark);
const expectedOwnMark = 'a 32-bit number, decimal or 0x and hexadecimal';
const outboundMark = one((text) => readNumber(text, 0, 0xffff_ffff) ?? expectedOwnMark, expectedOwnMark);

const expectedMarks = 'marks, each with a mask perhaps, like 0x10/0xf0';
const marks = list<MaskedMark>((text) => {
  const [value, mask, ...rest] = text.split('/').map((part, index) => readNumber(part, index, 0xffff_ffff));
  const fits = value !== undefined && rest.length === 0 && (mask !== undefined || !text.includes('/'));
  return fits ? { value, mask: mask ?? 0xffff_ffff } : expectedMarks;
}, expectedMarks);

const expectedUsers = 'users, each a name or a number';
const users = list(
  word((text) => /^(?:\d{1,10}|[a-z_][a-z0-9_.-]{0,31}\$?)$/i.test(text), expectedUsers),
  expectedUsers,
);

const expectedServer = 'host names and addresses';
const servers = list<{ host: string }>((text) => {
  const server = readServer(text);
  return typeof server === 'string' ? server : { host: server.host };
}, expectedServer);

const expectedDns =
  'an address with or without a port, like 192.0.2.53 or [2001:db8::53]:5353, or :PORT for the router itself';
const dnsTargets = list<DnsTarget>((text) => {
  if (text.startsWith(':')) {
    const port = readPort(text.slice(1));
    return port === undefined ? expectedDns : { port };
  }
  const written = readServer(text);
  if (typeof written === 'string' || isIP(written.host) === 0) return expectedDns;
  const { host, port = 53 } = written;
  if (/^127\.|^::1$/.test(host)) {
    // A packet from the LAN to a loopback address is a martian (RFC 1122, section 3.2.1.3 g).
    return 'an address that the LAN can reach, or :PORT for the router itself';
  }
  return { address: host, port };
}, expectedDns);

/** Words where a form has no other, as on the command line. */
const flag = v.pipe(
  v.union([v.boolean(), v.picklist(['true', 'false'] as const)], 'true or false'),
  v.transform((given) => given === true || given === 'true'),
);
const policies = ['bypass', 'forward', 'checkdst'] as const;
const policy = v.picklist(policies, '"bypass", "forward" or "checkdst"');
const files = v.pipe(
  v.union([v.string(), v.array(v.string('file names'))], 'a file name or an array of them'),
  v.transform((given) => [given].flat().filter((path) => path !== '')),
);
const port = one((text) => readPort(text) ?? 'a port from 1 to 65535', 'a port from 1 to 65535');
const expectedNumber = 'a whole number from 1 to 2147483647';
const number = one((text) => readNumber(text, 1, 2 ** 31 - 1) ?? expectedNumber, expectedNumber);

/** Goes into a rule as it is: nothing may end that rule or its chain. */
const extra = v.pipe(
  v.string('a match in the language of nft'),
  v.check(
    (text) => !/[\n\r;#]/.test(text) && isBalanced(text),
    'one match in the language of nft, on one line',
  ),
);

function isBalanced(text: string): boolean {
  let depth = 0;
  for (const character of text.replaceAll(/"[^"]*"/g, '')) {
    if (character === '"') return false;
    if (character === '{') depth++;
    if (character === '}' && --depth < 0) return false;
  }
  return depth === 0;
}

const modes = ['tcp_only', 'tcp_and_udp', 'udp_only'] as const;

export const gatewaySchemas = {
  mode: v.picklist(modes, modes.map((mode) => `"${mode}"`).join(', ')),
  tcp_tproxy: flag,
  local_port: port,
  udp_local_port: port,
  server: servers,
  udp_server: servers,
  outbound_fwmark: outboundMark,
  ifnames: interfaceNames,
  src_ips_bypass: clients,
  src_ips_forward: clients,
  src_ips_checkdst: clients,
  src_default: policy,
  dst_ips_bypass: prefixes,
  dst_ips_forward: prefixes,
  dst_ips_bypass_file: files,
  dst_ips_forward_file: files,
  dst_default: v.picklist(['bypass', 'forward'] as const, '"bypass" or "forward"'),
  tcp_ports: ports,
  udp_ports: ports,
  nft_tcp_extra: extra,
  nft_udp_extra: extra,
  domains_file: files,
  domains_timeout: number,
  local_default: policy,
  local_bypass_mark: marks,
  local_bypass_user: users,
  fail: v.picklist(['closed', 'open'] as const, '"closed" or "open"'),
  kill_switch: flag,
  reject_quic: flag,
  dns_hijack: dnsTargets,
  reserved: flag,
  to_proxy_mark: mark,
  name_set_mark: mark,
  route_table: number,
  rule_priority: number,
} as const;

export const gatewayKeys: readonly string[] = Object.keys(gatewaySchemas);

export type GatewayKey = keyof typeof gatewaySchemas;
type Values = { [K in GatewayKey]?: v.InferOutput<(typeof gatewaySchemas)[K]> };

/** An hour: longer than browsers keep a name, short enough that addresses which have moved on leave the set. */
const defaultDomainsTimeoutSeconds = 3600;

/**
 * @throws {UsageError | ConfigError} which names option or file and key, what was expected and what came, or what is
 * missing.
 */
export function readGatewaySettings(
  given: Settings,
  instance: string = names.defaultInstance,
): GatewaySettings {
  if (!isInstanceName(instance)) {
    throw new ConfigError(`instance name ${quote(instance)}: expected ${expectedInstance}`);
  }
  const values: Values = {};
  for (const [key, setting] of given) {
    if (!gatewayKeys.includes(key)) throw setting.refuse(unknownKey(key));
    if (setting.value === null) continue;
    const result = v.safeParse(gatewaySchemas[key as GatewayKey], setting.value);
    if (!result.success) {
      const [{ message }] = result.issues;
      throw setting.refuse(`expected ${message}, got ${describe(setting.value)}`);
    }
    Object.assign(values, { [key]: result.output });
  }
  const settings = fromValues(values, instance);
  refuseContradictions(settings);
  return settings;
}

/** Refused, not passed over: a rule that is missing lets traffic out. */
function unknownKey(key: string): string {
  const nearest = nearestName(key, gatewayKeys);
  return nearest === undefined ? 'is unknown' : `is unknown, did you mean ${quote(nearest)}?`;
}

function fromValues(values: Values, instance: string): GatewaySettings {
  const { mode = 'tcp_only', local_port: localPort = values.udp_local_port } = values;
  if (localPort === undefined) throw new ConfigError('no port of ss-redir given (local_port, option -l)');
  return {
    instance,
    tcp: mode === 'udp_only' ? 'none' : values.tcp_tproxy === true ? 'tproxy' : 'redirect',
    udp: mode !== 'tcp_only',
    localPort,
    udpLocalPort: values.udp_local_port ?? localPort,
    servers: [...(values.server ?? []), ...(values.udp_server ?? [])].map(({ host }) => host),
    interfaces: [...new Set(texts(values.ifnames))],
    srcBypass: toClients(values.src_ips_bypass),
    srcForward: toClients(values.src_ips_forward),
    srcCheckdst: toClients(values.src_ips_checkdst),
    srcDefault: values.src_default ?? 'checkdst',
    dstBypass: values.dst_ips_bypass ?? [],
    dstForward: values.dst_ips_forward ?? [],
    dstBypassFiles: (values.dst_ips_bypass_file ?? []).map((file) => resolve(file)),
    dstForwardFiles: (values.dst_ips_forward_file ?? []).map((file) => resolve(file)),
    dstDefault: values.dst_default ?? 'forward',
    tcpPorts: values.tcp_ports ?? [],
    udpPorts: values.udp_ports ?? [],
    tcpExtra: values.nft_tcp_extra?.trim() ?? '',
    udpExtra: values.nft_udp_extra?.trim() ?? '',
    domainsFiles: (values.domains_file ?? []).map((file) => resolve(file)),
    domainsTimeoutSeconds: values.domains_timeout ?? defaultDomainsTimeoutSeconds,
    localDefault: values.local_default ?? 'bypass',
    localBypassMarks: values.local_bypass_mark ?? [],
    localBypassUsers: texts(values.local_bypass_user),
    fail: values.fail ?? 'closed',
    killSwitch: values.kill_switch ?? false,
    rejectQuic: values.reject_quic ?? false,
    dnsHijack: values.dns_hijack ?? [],
    reserved: values.reserved ?? true,
    toProxyMark: values.to_proxy_mark ?? names.toProxyMark,
    ownMark: values.outbound_fwmark ?? names.ownMark,
    nameSetMark: values.name_set_mark ?? names.nameSetMark,
    routeTable: values.route_table ?? names.routeTable,
    rulePriority: values.rule_priority ?? names.rulePriority,
  };
}

function texts(boxes: readonly { text: string }[] = []): string[] {
  return boxes.map(({ text }) => text);
}

function toClients(items: readonly (Prefix | { mac: string })[] = []): Clients {
  return {
    prefixes: items.filter((item): item is Prefix => !('mac' in item)),
    macs: items.flatMap((item) => ('mac' in item ? [item.mac] : [])),
  };
}

function refuseContradictions(settings: GatewaySettings): void {
  const { interfaces, localDefault, ownMark, localBypassUsers, dnsHijack } = settings;
  if (interfaces.length === 0 && localDefault === 'bypass') {
    throw new ConfigError('no LAN interface given (ifnames, option -I), and own connections are not proxied');
  }
  if (interfaces.includes('lo'))
    throw new ConfigError('interface "lo" is not of the LAN (own connections: -o)');
  if (localDefault !== 'bypass' && ownMark === 0 && localBypassUsers.length === 0) {
    throw new ConfigError(
      'own connections are proxied, and outbound_fwmark is 0: ss-redir would dial itself (set a mark, or local_bypass_user)',
    );
  }
  if (settings.fail === 'open' && settings.killSwitch) {
    throw new ConfigError('fail is "open" and kill_switch is on: the one lets through what the other stops');
  }
  if (settings.routeTable >= 253 && settings.routeTable <= 255) {
    throw new ConfigError(`route_table ${settings.routeTable} is a table of the system`);
  }
  // 32766 is the rule for the main table, which has a default route: what comes behind it is never asked.
  if (settings.rulePriority >= 32_766) {
    throw new ConfigError(`rule_priority ${settings.rulePriority}: expected less than 32766`);
  }
  for (const [key, otherKey, bits] of [
    ['to_proxy_mark', 'outbound_fwmark', settings.toProxyMark & settings.ownMark],
    ['to_proxy_mark', 'name_set_mark', settings.toProxyMark & settings.nameSetMark],
    ['outbound_fwmark', 'name_set_mark', settings.ownMark & settings.nameSetMark],
  ] as const) {
    if (bits !== 0) throw new ConfigError(`${key} and ${otherKey} share the bits ${names.hex(bits >>> 0)}`);
  }
  for (const family of ['IPv4', 'IPv6'] as const) {
    const targets = dnsHijack.filter(
      ({ address }) => address === undefined || isIPv4(address) === (family === 'IPv4'),
    );
    if (targets.length > 1) throw new ConfigError(`dns_hijack: more than one address for ${family}`);
  }
}
