/** The one table of configuration keys: what each takes. The command line's values go through the same checks. */
import { isIPv4, isIPv6 } from 'node:net';
import * as v from 'valibot';
import { quote } from '../text.js';
import { nearestName } from './nearest.js';
import { readIpAddress, readNameserver, readServer } from './address.js';
import { describe, describeSecret } from './setting.js';
import type { Setting, Settings } from './setting.js';
import type { Command, MarkedPort } from './config.js';

const digits = v.pipe(v.string(), v.regex(/^\d+$/), v.transform(Number));

/** A number or its decimal digits in a string, as the files of ss-manager and many scripts have them. */
function integer(least: number, most: number, expected: string) {
  const schema = v.pipe(v.union([v.number(), digits]), v.safeInteger(), v.minValue(least), v.maxValue(most));
  return v.message(schema, expected);
}

/** What a reader returns instead of a value: what it had expected. */
class Expected {
  readonly what: string;

  constructor(what: string) {
    this.what = what;
  }
}

function parsed<T>(parse: (written: string) => T | Expected, expected: string) {
  return v.pipe(
    v.string(expected),
    v.rawTransform<string, T>(({ dataset, addIssue, NEVER }) => {
      const result = parse(dataset.value);
      if (!(result instanceof Expected)) return result;
      addIssue({ message: result.what });
      return NEVER;
    }),
  );
}

const largest = 2 ** 31 - 1; // what the kernel's int options take
const port = integer(1, 65_535, 'a port from 1 to 65535');
const seconds = integer(1, largest, 'a whole number of seconds, at least 1');
const bytes = integer(0, largest, `a number of bytes from 0 to ${largest}`);
const flag = v.boolean('true or false');
const text = v.string('a string');

const server = parsed((written) => {
  const address = readServer(written);
  return typeof address === 'string' ? new Expected(address) : address;
}, 'a host name or address in a string');

function ipAddress(expected: string, accepts: (address: string) => boolean = () => true) {
  return parsed((written) => {
    const address = readIpAddress(written);
    return address !== undefined && accepts(address) ? address : new Expected(expected);
  }, expected);
}

const expectedNameserver = 'an IP address, "address:port" or "[IPv6]:port"';
const nameserver = parsed(
  (written) => readNameserver(written) ?? new Expected(expectedNameserver),
  expectedNameserver,
);

/** Several in one string, separated by commas or spaces, or a list of them. */
const nameservers = v.pipe(
  v.union([v.string(), v.array(v.unknown())], 'a string or an array of strings'),
  v.transform((given) => (typeof given === 'string' ? splitList(given) : given)),
  v.array(nameserver),
);

const servers = v.pipe(
  v.union([v.string(), v.array(v.unknown())], 'a string or an array of strings'),
  v.transform((given) => (typeof given === 'string' ? [given] : given)),
  v.minLength(1, 'at least one server'),
  v.array(server),
);

const expectedMark = 'a 32-bit number, decimal or 0x and hexadecimal';
const mark = v.pipe(
  v.union([v.number(), v.string()], expectedMark),
  v.check(
    (given) => typeof given !== 'string' || !given.includes('/'),
    `${expectedMark}, without a mask: all its bits are set on our sockets`,
  ),
  v.check((given) => typeof given === 'number' || /^(?:\d+|0x[\da-f]+)$/i.test(given), expectedMark),
  v.transform(Number),
  v.integer(expectedMark),
  v.minValue(0, expectedMark),
  v.maxValue(0xffff_ffff, expectedMark),
);

/** DSCP names of RFC 2474 (CS), 2597 (AF) and 3246 (EF), or the six bits as a number, decimal or hexadecimal. */
function readDscp(name: string): number | undefined {
  if (/^EF$/i.test(name)) return 46;
  const selector = /^CS([0-7])$/i.exec(name);
  if (selector !== null) return Number(selector[1]) << 3;
  const assured = /^AF([1-4])([1-3])$/i.exec(name);
  if (assured !== null) return (Number(assured[1]) << 3) | (Number(assured[2]) << 1);
  if (!/^(?:\d+|0x[\da-f]+)$/i.test(name)) return undefined;
  return Number(name) <= 63 ? Number(name) : undefined;
}

const expectedDscp = 'EF, CS0 to CS7, AF11 to AF43 or a number from 0 to 0x3f';
const mostDscpPorts = 64; // as in shadowsocks-libev

const dscp = v.pipe(
  v.record(v.string(), v.union([v.string(), v.number()], expectedDscp), 'an object of ports and DSCP names'),
  v.rawTransform<Record<string, string | number>, MarkedPort[]>(({ dataset, addIssue, NEVER }) => {
    const ports: MarkedPort[] = [];
    for (const [written, name] of Object.entries(dataset.value)) {
      const listenPort = v.safeParse(port, written);
      const value = readDscp(String(name));
      if (listenPort.success && value !== undefined) {
        ports.push({ port: listenPort.output, tos: value << 2 });
        continue;
      }
      addIssue({ message: `${quote(written)} to be a port and its value ${expectedDscp}` });
      return NEVER;
    }
    if (ports.length <= mostDscpPorts) return ports;
    addIssue({ message: `at most ${mostDscpPorts} ports` });
    return NEVER;
  }),
);

const expectedInterface = 'the name of a network interface, at most 15 bytes';
const networkInterface = v.pipe(
  v.string(expectedInterface),
  v.check((name) => Buffer.byteLength(name) <= 15 && /^[^\s/:]+$/.test(name), expectedInterface), // IFNAMSIZ, dev_valid_name
);

const password = v.pipe(
  v.string('a string'),
  // Half of a pair of UTF-16 units has no UTF-8, so there are no bytes that both ends would agree on.
  v.check(
    (secret) => !/\p{Surrogate}/u.test(secret),
    'text without lone surrogates (a \\ud800 to \\udfff by itself)',
  ),
  // shadowsocks-libev takes only what is before the NUL for the password, which nobody can have meant.
  v.check(
    (secret) => !secret.includes('\0'),
    'text without a NUL (\\u0000): shadowsocks-libev cuts the password there, so write only what is before it',
  ),
);

/** What a password from elsewhere ought to be and is not; undefined when there is nothing wrong with it. */
export function checkPassword(written: string): string | undefined {
  const result = v.safeParse(password, written);
  return result.success ? undefined : result.issues[0].message;
}

/** Users of the 2022 edition, as shadowsocks-rust has them: their keys are looked at where the method is known. */
const userList = v.array(
  v.looseObject(
    {
      name: v.pipe(v.string('a name in a string'), v.regex(/^[^\s\p{Cc}]+$/u, 'a name without blanks')),
      password: v.optional(v.string('a key in a string')),
      password_file: v.optional(v.string('a file name in a string')),
    },
    'an object of name and password',
  ),
  'an array of users',
);

const expectedWorkers = 'a number from 1 to 256, or "auto"';
const modes = ['tcp_only', 'tcp_and_udp', 'udp_only'] as const;

const schemas = {
  server: servers,
  server_port: port,
  local_address: ipAddress('an IP address'),
  local_port: port,
  local_ipv4_address: ipAddress('an IPv4 address', isIPv4),
  local_ipv6_address: ipAddress('an IPv6 address', isIPv6),
  interface: networkInterface,
  password,
  password_file: text,
  key: v.string('base64 in a string'),
  method: text,
  timeout: seconds,
  idle_timeout: seconds,
  nameserver: nameservers,
  dscp,
  mode: v.picklist(modes, modes.map((mode) => `"${mode}"`).join(', ')),
  udp_timeout: seconds,
  udp_max_associations: integer(1, 1_000_000, 'a number from 1 to 1000000'),
  mtu: integer(0, 65_535, 'a number of bytes from 0 to 65535'),
  users: userList,
  nofile: integer(0, largest, 'a number of descriptors'),
  workers: v.message(v.union([v.literal('auto'), integer(1, 256, expectedWorkers)]), expectedWorkers),
  max_connections: integer(1, 1_000_000, 'a number from 1 to 1000000'),
  max_dns_queries: integer(1, 65_535, 'a number from 1 to 65535'),
  outbound_fwmark: mark,
  tcp_tproxy: flag,
  fast_open: flag,
  reuse_port: flag,
  no_delay: flag,
  mptcp: flag,
  ipv6_first: flag,
  use_syslog: flag,
  user: text,
  verbose: flag,
  tcp_incoming_sndbuf: bytes,
  tcp_incoming_rcvbuf: bytes,
  tcp_outgoing_sndbuf: bytes,
  tcp_outgoing_rcvbuf: bytes,
} as const;

/** Of one of several servers, beside those of the flat keys that say how to reach it. */
const serverSchemas = {
  name: text,
  disabled: flag,
  mode: schemas.mode,
} as const;

const levels = ['info', 'debug'] as const;

const logSchemas = {
  level: v.picklist(levels, levels.map((level) => `"${level}"`).join(' or ')),
  syslog: flag,
} as const;

export type Key = keyof typeof schemas;
type Schemas = Readonly<Record<string, v.GenericSchema>>;
type Value<T extends Schemas, K extends keyof T> = v.InferOutput<T[K]> | undefined;

const secrets: ReadonlySet<string> = new Set<Key>(['password', 'key', 'users']);
/** Texts that shadowsocks-libev also takes as an integer; the others know numbers themselves or take none. */
const texts: ReadonlySet<string> = new Set<Key | 'name'>([
  'password',
  'password_file',
  'key',
  'method',
  'server',
  'local_address',
  'mode',
  'user',
  'name',
]);

function splitList(written: string): string[] {
  return written.split(/[\s,]+/).filter((part) => part !== '');
}

/** What INI, which has text only, writes in one line: `a.example [2001:db8::1]:8389`, `1081:EF, 1082:AF41`. */
const fromLine: Readonly<Record<string, (written: string) => unknown>> = {
  server: (written) => (written.trim() === '' ? written : splitList(written)),
  dscp: (written) =>
    Object.fromEntries(
      splitList(written).map((pair) => {
        const at = pair.indexOf(':');
        return at < 0 ? [pair, ''] : [pair.slice(0, at), pair.slice(at + 1)];
      }),
    ),
};

/**
 * The checked value of a key; undefined when nobody gave it, or gave null.
 *
 * @throws {UsageError | ConfigError} which names option or file and key, what was expected and what came.
 */
export function read<K extends Key>(settings: Settings, key: K): Value<typeof schemas, K> {
  return readBy(schemas, settings, key);
}

export function readOfServer<K extends keyof typeof serverSchemas>(
  settings: Settings,
  key: K,
): Value<typeof serverSchemas, K> {
  return readBy(serverSchemas, settings, key);
}

export function readOfLog<K extends keyof typeof logSchemas>(
  settings: Settings,
  key: K,
): Value<typeof logSchemas, K> {
  return readBy(logSchemas, settings, key);
}

function readBy<T extends Schemas, K extends keyof T & string>(
  table: T,
  settings: Settings,
  key: K,
): Value<T, K> {
  const setting = settings.get(key);
  const schema: v.GenericSchema = table[key]!;
  if (setting === undefined) return undefined;
  if (setting.value === null && schema !== flag) return undefined;
  const given = givenTo(setting, key);
  const result = v.safeParse(schema, given);
  if (result.success) return result.output as Value<T, K>;
  const [{ message, input, path }] = result.issues;
  const position = path?.[0]?.key;
  const isItem = typeof position === 'number' && Array.isArray(given);
  const culprit = position === undefined ? given : input;
  const got = secrets.has(key) ? describeSecret(culprit) : describe(culprit);
  throw setting.refuse(`${isItem ? `item ${position + 1}: ` : ''}expected ${message}, got ${got}`);
}

function givenTo(setting: Setting, key: string): unknown {
  const split = fromLine[key];
  if (setting.isIni && split !== undefined) return split(String(setting.text));
  return texts.has(key) ? setting.text : setting.value;
}

/** Keys whose feature is in none of our commands yet: leaving them out of account would do something else than asked. */
const laterKeys: ReadonlyMap<string, { readonly feature: string; readonly command?: Command }> = new Map([
  ['plugin', { feature: 'running a plugin' }],
  ['acl', { feature: 'the access control list', command: 'ss-server' }],
  ['manager_address', { feature: 'reporting to ss-manager', command: 'ss-server' }],
  ['nftables_sets', { feature: 'filling nftables sets', command: 'ss-server' }],
]);

/** Known, but of no meaning to ss-redir and ss-server. */
const otherKeys = [
  'plugin_opts',
  'port_password',
  'tunnel_address',
  'workdir',
  'remote_dns',
  'auth',
  'remarks',
];

/** JSON: what is in them has tables of its own. */
const structures = ['servers', 'gateway', 'log'];

export const knownKeys: readonly string[] = [
  ...Object.keys(schemas),
  ...laterKeys.keys(),
  ...structures,
  ...otherKeys,
];

/** shadowsocks-rust's other names for keys of a server. */
export const serverAliases: ReadonlyMap<string, string> = new Map([
  ['address', 'server'],
  ['port', 'server_port'],
  ['remarks', 'name'],
]);

const noWeights = 'healthy servers take turns, whatever their weight';
const notForOne = 'it is not for one server alone';

/** Of a server, and of no effect here: the value goes for all servers, or there is nothing like it. */
const unusedServerKeys: ReadonlyMap<string, string> = new Map([
  ['timeout', 'it is given once, for all servers'],
  ['weight', noWeights],
  ['tcp_weight', noWeights],
  ['udp_weight', noWeights],
  ['outbound_fwmark', notForOne],
  ['outbound_bind_addr', notForOne],
  ['outbound_bind_interface', notForOne],
  ['outbound_udp_allow_fragmentation', notForOne],
]);

export const knownServerKeys: readonly string[] = [
  ...Object.keys(serverSchemas),
  ...serverAliases.keys(),
  ...unusedServerKeys.keys(),
  'server',
  'server_port',
  'method',
  'password',
  'password_file',
  'key',
  'users',
  'id',
  'acl',
  'plugin',
  'plugin_opts',
  'plugin_args',
  'plugin_mode',
];

export const knownLogKeys: readonly string[] = Object.keys(logSchemas);

/** One line each for what stands in a table that does not know it, or that makes no use of it. */
export function warnOfUnknown(settings: Settings, known: readonly string[]): string[] {
  const warnings: string[] = [];
  for (const [key, { origin }] of settings) {
    if (known.includes(key) || key.startsWith('_')) continue; // a key that begins with _ is a comment
    const nearest = nearestName(key, known);
    const hint = nearest === undefined ? '' : `, did you mean ${quote(nearest)}?`;
    warnings.push(`${origin} is unknown and ignored${hint}`);
  }
  return warnings;
}

export function warnOfUnusedServerKeys(settings: Settings): string[] {
  return [...settings].flatMap(([key, setting]) => {
    const why = unusedServerKeys.get(key);
    return why === undefined || meansNone(setting) ? [] : [`${setting.origin} is ignored: ${why}`];
  });
}

/**
 * @throws {UsageError | ConfigError} for a key whose feature this version lacks, unless its value means "none", and for
 * `auth`, which shadowsocks-libev refuses too.
 */
export function refuseLaterKeys(command: Command, settings: Settings): void {
  for (const [key, setting] of settings) {
    if (key === 'auth') throw setting.refuse(noOneTimeAuth);
    const later = laterKeys.get(key);
    if (later === undefined || meansNone(setting)) continue;
    if (later.command !== undefined && later.command !== command) continue;
    throw setting.refuse(notYet(later.feature));
  }
}

/** What shadowsocks-libev's command leaves out of account too, although whoever wrote it may count on it. */
export function warnOfUnusedKeys(command: Command, settings: Settings): string[] {
  const warnings: string[] = [];
  const acl = settings.get('acl');
  if (acl !== undefined && command === 'ss-redir' && !meansNone(acl))
    warnings.push(`${acl.origin}: ss-redir uses no access control list`);
  const manager = settings.get('port_password');
  if (manager !== undefined) warnings.push(`${manager.origin}: only ss-manager reads it`);
  const users = settings.get('users');
  if (users !== undefined && command === 'ss-redir')
    warnings.push(`${users.origin}: only ss-server has users`);
  return warnings;
}

export const noOneTimeAuth = 'one-time authentication is gone: the AEAD methods authenticate by themselves';

export function notYet(feature: string): string {
  return `${feature} is not in this version yet`;
}

function meansNone({ value }: Setting): boolean {
  return value === null || value === '' || value === 0;
}
