/** What a configuration file may say. "libev" below is what shadowsocks-libev 3.3.5 was seen to do with the same file. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { inspect } from 'node:util';
import { loadConfig } from '../../src/cli/load-config.js';
import type { Command, Config } from '../../src/config/config.js';
import { findDefaultFile, findInstanceFile } from '../../src/config/load.js';
import { masterKeyFromPassword } from '../../src/crypto/keys.js';
import { ConfigError, UsageError } from '../../src/errors.js';

const directory = mkdtempSync(join(tmpdir(), 'config-'));
const file = join(directory, 'config.json');
after(() => rmSync(directory, { recursive: true }));

const secret = 'correct-horse-42';
const good = {
  server: '192.0.2.1',
  server_port: 8388,
  local_port: 1080,
  password: secret,
  local_address: '::',
};
const redirTimeout = 600;

type Content = string | Buffer | Record<string, unknown>;

function load(content: Content, command: Command = 'ss-redir', args: readonly string[] = []): Config {
  writeFileSync(
    file,
    typeof content === 'string' || Buffer.isBuffer(content) ? content : JSON.stringify(content),
    { mode: 0o600 },
  );
  return loadConfig(command, ['-c', file, ...args], {});
}

/** The good file with some keys changed; undefined takes one out. */
function loadWith(
  change: Record<string, unknown>,
  command: Command = 'ss-redir',
  args: readonly string[] = [],
): Config {
  return load({ ...good, ...change }, command, args);
}

function addresses({ servers }: Config): unknown[] {
  return servers.map(({ host, port }) => ({ host, port }));
}

/** What the default method makes of a password. */
function passwordKey(password: string): Uint8Array {
  return masterKeyFromPassword(password, 32);
}

/** The one line that a file is refused with. */
function refusal(attempt: () => unknown, kind: typeof ConfigError | typeof UsageError = ConfigError): string {
  let caught: unknown;
  try {
    attempt();
  } catch (error) {
    caught = error;
  }
  assert.ok(caught instanceof kind, `expected ${kind.name}, got ${inspect(caught)}`);
  assert.ok(!/[\r\n]/.test(caught.message), 'more than one line');
  assert.ok(!inspect(caught, { showHidden: true, depth: 9 }).includes(secret), 'the secret is in the error');
  return caught.message;
}

// What libev accepts, we accept, and understand alike.

const accepted: [name: string, content: Content, check: (config: Config) => unknown, expected: unknown][] = [
  [
    'a trailing comma in an object',
    `${JSON.stringify(good).slice(0, -1)},}`,
    (c) => c.credentials.key,
    passwordKey(secret),
  ],
  [
    'a trailing comma in an array',
    JSON.stringify({ ...good, server: ['a.example'] }).replace(']', ',]'),
    (c) => c.servers.length,
    1,
  ],
  [
    'ports as strings',
    { ...good, server_port: '8388', local_port: '1080' },
    (c) => [c.servers[0]?.port, c.localPort],
    [8388, 1080],
  ],
  [
    'what ss-manager once wrote',
    '{"server":"a.example","server_port":"8001","local_port":"1","password":"x",}',
    addresses,
    [{ host: 'a.example', port: 8001 }],
  ],
  ['a byte order mark', `\ufeff${JSON.stringify(good)}`, (c) => c.credentials.key, passwordKey(secret)],
  [
    'CRLF line ends',
    JSON.stringify(good, null, 2).replaceAll('\n', '\r\n'),
    (c) => c.credentials.key,
    passwordKey(secret),
  ],
  ['unknown keys', { ...good, obfs: 'plain' }, (c) => c.credentials.key, passwordKey(secret)],
  [
    'a key twice: the last one wins',
    `{"server_port":1,${JSON.stringify(good).slice(1)}`,
    (c) => c.servers[0]?.port,
    8388,
  ],
  ['local_address null', { ...good, local_address: null }, (c) => c.localAddress, '127.0.0.1'],
  ['no method', good, (c) => c.method, 'chacha20-ietf-poly1305'],
  ['method null', { ...good, method: null }, (c) => c.method, 'chacha20-ietf-poly1305'],
  [
    'a password as a number',
    { ...good, password: 12345678 },
    (c) => c.credentials.key,
    passwordKey('12345678'),
  ],
  [
    'a password as a 64-bit number',
    JSON.stringify(good).replace(`"${secret}"`, '1234567890123456789'),
    (c) => c.credentials.key,
    passwordKey('1234567890123456789'),
  ],
  ['an empty password', { ...good, password: '' }, (c) => c.credentials.key, passwordKey('')],
  ['a timeout in a string', { ...good, timeout: '60' }, (c) => c.timeoutSeconds, 60],
  ['no timeout', good, (c) => [c.timeoutSeconds, c.idleTimeoutSeconds], [redirTimeout, 86_400]],
  ['an empty plugin', { ...good, plugin: '', plugin_opts: 'x' }, (c) => c.servers.length, 1],
  ['plugin null', { ...good, plugin: null }, (c) => c.servers.length, 1],
  ['mtu 0', { ...good, mtu: 0 }, (c) => c.servers.length, 1],
  [
    '12 servers, of which libev drops two',
    { ...good, server: Array.from({ length: 12 }, (_, i) => `192.0.2.${i + 1}`) },
    (c) => c.servers.length,
    12,
  ],
  [
    'server_port left out when every server has its own',
    { ...good, server_port: undefined, server: ['[::1]:9001', 'a.example:9002'] },
    addresses,
    [
      { host: '::1', port: 9001 },
      { host: 'a.example', port: 9002 },
    ],
  ],
  // More than libev accepts.
  ['8388.0, which is 8388', JSON.stringify(good).replace('8388', '8388.0'), (c) => c.servers[0]?.port, 8388],
  [
    'comments of both kinds',
    `// one\n{ /* two */ ${JSON.stringify(good).slice(1)} // three`,
    (c) => c.credentials.key,
    passwordKey(secret),
  ],
  [
    'what looks like a comment in a string',
    { ...good, password: 'pass//word a#b /*x*/' },
    (c) => c.credentials.key,
    passwordKey('pass//word a#b /*x*/'),
  ],
  ['a method in capitals', { ...good, method: 'AES-256-GCM' }, (c) => c.method, 'aes-256-gcm'],
  ['a method with spaces around', { ...good, method: ' aes-256-gcm' }, (c) => c.method, 'aes-256-gcm'],
];

for (const [name, content, check, expected] of accepted) {
  test(`accepted: ${name}`, () => assert.deepEqual(check(load(content)), expected));
}

// What libev refuses, or accepts and does otherwise than asked, is refused with the place and reason.

const refused: [name: string, content: Content, message: RegExp][] = [
  [
    '# comments',
    `{\n# note\n${JSON.stringify(good).slice(1)}`,
    /config\.json:2:1: a comment begins with \/\/ /,
  ],
  [
    'a # comment at the beginning',
    `# note\n${JSON.stringify(good)}`,
    /config\.json:1:1: a comment begins with \/\/ /,
  ],
  ['a missing comma', `{"server": "a.example"\n  "server_port": 1}`, /config\.json:2:3: expected a comma/],
  [
    'a cut file',
    JSON.stringify(good).slice(0, -30),
    /config\.json:1:\d+: (?:this string is not closed|the file ends)/,
  ],
  [
    'a file cut behind a comma',
    '{"server": "a.example",\n',
    /config\.json:\d:\d+: the file ends in the middle/,
  ],
  ['a nested object cut', '{"dscp": {"1": "EF"}\n', /config\.json:\d:\d+: the file ends in the middle/],
  ['bytes behind the object', `${JSON.stringify(good)}\n x`, /config\.json:2:2: nothing may follow/],
  [
    'a second object',
    `${JSON.stringify(good)}${JSON.stringify(good)}`,
    /config\.json:1:\d+: nothing may follow/,
  ],
  ['single quotes', `{'server': 'a.example'}`, /config\.json:1:2: .*double quotes, not in single/],
  ['a value without quotes', `{"password": ${secret}}`, /config\.json:1:14: expected a value/],
  ['a key without quotes', `{server: "a"}`, /config\.json:1:2: expected a value or a key/],
  ['a line end in a string', `{"password": "${secret}\n"}`, /config\.json:1:14: this string is not closed/],
  ['an unknown escape', String.raw`{"password": "${secret}\q"}`, /config\.json:1:14: .*backslash/],
  ['a cut \\u escape', String.raw`{"password": "${secret}\u12"}`, /config\.json:1:14: .*four hexadecimal/],
  ['a tab in a string', `{"password": "${secret}\t"}`, /config\.json:1:14: .*control character/],
  ['an open comment', `{ /* ${secret}`, /config\.json:1:3: this comment is not closed/],
  [
    'an array at the top',
    '[{"server": "a"}]',
    /config\.json:1:1: expected a JSON object in braces \{ \}, got an array/,
  ],
  ['a string at the top', `"${secret}"`, /config\.json:1:1: expected a JSON object/],
  ['an empty file', '', /config\.json:1:1: the file is empty/],
  ['white space only', '\n\n ', /config\.json:1:1: the file is empty/],
  ['a comment only', '// nothing', /config\.json:1:11: the file ends/],
  ['arrays without end', `{"server":${'['.repeat(200_000)}`, /config\.json:1:1: .*nested too deeply/],
  [
    'bytes that are not UTF-8',
    Buffer.concat([Buffer.from('{\n "password": "'), Buffer.from([0xe9, 0x22, 0x7d])]),
    /config\.json:2:15: expected UTF-8 text/,
  ],
  [
    'UTF-16',
    Buffer.from(`\ufeff${JSON.stringify(good)}`, 'utf16le'),
    /config\.json:1:1: expected UTF-8 text/,
  ],
  ['more than 1 MiB', `${JSON.stringify(good)}${' '.repeat(1024 * 1024)}`, /config\.json: larger than 1 MiB/],
  [
    'fast_open "true"',
    { ...good, fast_open: 'true' },
    /key "fast_open": expected true or false, got "true"$/,
  ],
  ['fast_open 1', { ...good, fast_open: 1 }, /key "fast_open": expected true or false, got 1$/],
  ['tcp_tproxy null', { ...good, tcp_tproxy: null }, /key "tcp_tproxy": expected true or false, got null$/],
  [
    'timeout 0',
    { ...good, timeout: 0 },
    /key "timeout": expected a whole number of seconds, at least 1, got 0$/,
  ],
  ['timeout -5', { ...good, timeout: -5 }, /key "timeout": .* got -5$/],
  ['timeout "60s"', { ...good, timeout: '60s' }, /key "timeout": .* got "60s"$/],
  [
    'an unknown mode',
    { ...good, mode: 'udp' },
    /key "mode": expected "tcp_only", "tcp_and_udp", "udp_only", got "udp"$/,
  ],
  ['a mode in capitals', { ...good, mode: 'TCP_AND_UDP' }, /key "mode": expected .* got "TCP_AND_UDP"$/],
  ['mode true', { ...good, mode: true }, /key "mode": expected .* got true$/],
  [
    'mode in capitals',
    { ...good, mode: 'TCP_AND_UDP' },
    /key "mode": expected "tcp_only", "tcp_and_udp", "udp_only", got "TCP_AND_UDP"$/,
  ],
  ['mode true', { ...good, mode: true }, /key "mode": expected "tcp_only".* got true$/],
  [
    'an unknown method',
    { ...good, method: 'chacha20-poly1305' },
    /key "method": .*did you mean "chacha20-ietf-poly1305"\?/,
  ],
  [
    'a retired method',
    { ...good, method: 'rc4-md5' },
    /key "method": .*retired.*valid methods: aes-128-gcm, /,
  ],
  ['method none', { ...good, method: 'none' }, /key "method": .*"none".*valid methods/],
  ['auth, whatever its value', { ...good, auth: false }, /key "auth": one-time authentication is gone/],
  ['plugin', { ...good, plugin: 'v2ray-plugin' }, /key "plugin": .*not in this version/],
  ['mtu', { ...good, mtu: 70_000 }, /key "mtu": expected a number of bytes from 0 to 65535, got 70000$/],
  ['udp_timeout', { ...good, udp_timeout: 0 }, /key "udp_timeout": expected a whole number of seconds/],
  [
    'udp_max_associations',
    { ...good, udp_max_associations: 0 },
    /key "udp_max_associations": expected a number from 1 to 1000000, got 0$/,
  ],
  [
    'a key that is too short',
    { ...good, key: 'c2hvcnQ=' },
    /key "key": expected base64 of a 32-byte key, got one of 5 bytes.*openssl rand -base64 32$/,
  ],
  [
    'a key that is not base64',
    { ...good, key: `${secret}!` },
    /key "key": .*not base64.*openssl rand -base64 32$/,
  ],
  ['workers 0', { ...good, workers: 0 }, /key "workers": expected a number from 1 to 256, or "auto", got 0$/],
  ['workers "many"', { ...good, workers: 'many' }, /key "workers": .* got "many"$/],
  ['max_connections 0', { ...good, max_connections: 0 }, /key "max_connections": expected .* got 0$/],
  [
    'a mask in outbound_fwmark',
    { ...good, outbound_fwmark: '0x10/0xff' },
    /key "outbound_fwmark": .*without a mask.* got "0x10\/0xff"$/,
  ],
  [
    'outbound_fwmark of 33 bits',
    { ...good, outbound_fwmark: 2 ** 32 },
    /key "outbound_fwmark": expected a 32-bit number/,
  ],
  [
    'a name as local_address',
    { ...good, local_address: 'gateway.example' },
    /key "local_address": expected an IP address/,
  ],
  [
    'a port in local_address',
    { ...good, local_address: '127.0.0.1:1080' },
    /key "local_address": expected an IP address/,
  ],
  [
    'a name as nameserver',
    { ...good, nameserver: 'dns.example' },
    /key "nameserver": expected an IP address/,
  ],
  [
    'a name in a list of nameservers',
    { ...good, nameserver: ['8.8.8.8', 'dns'] },
    /key "nameserver": item 2: expected an IP address.* got "dns"$/,
  ],
  ['dscp with a name for a port', { ...good, dscp: { x: 'EF' } }, /key "dscp": expected "x" to be a port/],
  [
    'an unknown DSCP name',
    { ...good, dscp: { 1081: 'AF44' } },
    /key "dscp": expected "1081" to be a port and its value EF/,
  ],
  ['a DSCP of seven bits', { ...good, dscp: { 1081: '0x40' } }, /key "dscp": expected/],
  ['dscp on the local port', { ...good, dscp: { 1080: 'EF' } }, /key "dscp": port 1080 is the local port/],
  [
    '65 DSCP ports',
    { ...good, dscp: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [2000 + i, 'EF'])) },
    /key "dscp": expected at most 64 ports/,
  ],
];

for (const [name, content, message] of refused) {
  test(`refused: ${name}`, () =>
    assert.match(
      refusal(() => load(content)),
      message,
    ));
}

test('a wrong value is reported with file, line, column, key, expected and got', () => {
  const content = JSON.stringify({ ...good, server_port: 'eighty' }, null, 2);
  assert.equal(
    refusal(() => load(content)),
    `${file}:3:18: key "server_port": expected a port from 1 to 65535, got "eighty"`,
  );
});

// Servers (string and list alike)

const servers: [written: unknown, expected: unknown][] = [
  ['192.0.2.7', [{ host: '192.0.2.7', port: 8388 }]],
  ['a.example', [{ host: 'a.example', port: 8388 }]],
  ['localhost:9003', [{ host: 'localhost', port: 9003 }]],
  ['127.0.0.1:9002', [{ host: '127.0.0.1', port: 9002 }]],
  ['::1', [{ host: '::1', port: 8388 }]],
  ['[::1]', [{ host: '::1', port: 8388 }]],
  ['[::1]:9001', [{ host: '::1', port: 9001 }]],
  ['::0', [{ host: '::0', port: 8388 }]],
  ['[::0]', [{ host: '::0', port: 8388 }]],
  ['::1:9001', [{ host: '::1:9001', port: 8388 }]],
  ['fe80::1%eth0', [{ host: 'fe80::1%eth0', port: 8388 }]],
  ['[fe80::1%eth0]:9001', [{ host: 'fe80::1%eth0', port: 9001 }]],
  ['::ffff:192.0.2.7', [{ host: '192.0.2.7', port: 8388 }]],
  ['[::FFFF:c000:207]:9001', [{ host: '192.0.2.7', port: 9001 }]],
  ['0:0:0:0:0:ffff:c000:207', [{ host: '192.0.2.7', port: 8388 }]],
  [
    ['::1', '1.2.3.4'],
    [
      { host: '::1', port: 8388 },
      { host: '1.2.3.4', port: 8388 },
    ],
  ],
  [
    ['[::1]:9001', '127.0.0.1:9002'],
    [
      { host: '::1', port: 9001 },
      { host: '127.0.0.1', port: 9002 },
    ],
  ],
];

for (const [written, expected] of servers) {
  test(`server ${JSON.stringify(written)} is understood in the file, in a list and behind -s`, () => {
    assert.deepEqual(addresses(loadWith({ server: written })), expected);
    const list = [written].flat() as string[];
    assert.deepEqual(addresses(loadWith({ server: list })), expected);
    const options = list.flatMap((one) => ['-s', one]);
    assert.deepEqual(addresses(loadWith({ server: 'overridden.example' }, 'ss-redir', options)), expected);
  });
}

const wrongServers = [
  [],
  [null],
  [8388],
  { a: 1 },
  true,
  '',
  ' ',
  'a b',
  'a.example:',
  'a.example:0',
  'a.example:65536',
  'a.example:http',
  '[::1',
  '[::1]x',
  '[::1]:',
  '[a.example]:1',
  '::1:90010',
  '1:2:3:4:5:6:7:8:8388',
  '1.2.3',
  '1.2.3.256',
  'a/24',
  ['a.example', ''],
  'x'.repeat(256),
  'evil\nhost',
];

for (const written of wrongServers) {
  test(`server ${JSON.stringify(written).slice(0, 40)} is refused by name`, () => {
    assert.match(
      refusal(() => loadWith({ server: written })),
      /:\d+:\d+: key "server": (?:item \d+: )?expected /,
    );
    if (typeof written !== 'string') return;
    const onCommandLine = (): unknown => loadWith({}, 'ss-redir', ['-s', written]);
    assert.match(refusal(onCommandLine, UsageError), /^option -s: item 1: expected /);
  });
}

test('an address that could have been meant as address and port is taken as libev takes it, with a warning', () => {
  assert.match(
    loadWith({ server: '::1:9001' }).warnings.join('\n'),
    /::1:9001 is taken for an address.*write \[::1\]:9001/,
  );
  assert.deepEqual(loadWith({ server: ['::1', '2001:db8::1', '1:2:3:4:5:6:7:8388'] }).warnings, []);
});

test('a link to a server is refused without repeating the password in it', () => {
  const message = refusal(() => loadWith({ server: `ss://aes-256-gcm:${secret}@192.0.2.1:8388` }));
  assert.match(message, /key "server": .* got a URL$/);
});

// Ports

for (const written of [
  0,
  -1,
  65_536,
  70_000,
  8388.5,
  '8388 ',
  ' 8388',
  '0x20',
  '8388.0',
  '+1',
  'abc',
  '',
  true,
  [1],
]) {
  test(`port ${JSON.stringify(written)} is refused alike in the file and on the command line`, () => {
    for (const key of ['server_port', 'local_port']) {
      const message = refusal(() => loadWith({ [key]: written }));
      assert.match(message, new RegExp(`:\\d+:\\d+: key "${key}": expected a port from 1 to 65535, got `));
    }
    if (typeof written !== 'string' && typeof written !== 'number') return;
    for (const option of ['-p', '-l']) {
      const onCommandLine = (): unknown => loadWith({}, 'ss-redir', [option, String(written)]);
      assert.match(
        refusal(onCommandLine, UsageError),
        new RegExp(`^option ${option}: expected a port from 1 to 65535, got `),
      );
    }
  });
}

for (const [written, expected] of [
  [1, 1],
  [65_535, 65_535],
  ['65535', 65_535],
  ['08388', 8388],
] as const) {
  test(`port ${JSON.stringify(written)} is accepted alike in the file and on the command line`, () => {
    assert.equal(loadWith({ local_port: written }).localPort, expected);
    assert.equal(loadWith({}, 'ss-redir', ['-l', String(written)]).localPort, expected);
  });
}

// What cannot be left out

for (const [command, key, message] of [
  ['ss-redir', 'server', /: missing "server" \(option -s\)/],
  ['ss-redir', 'server_port', /: missing "server_port" \(option -p\)$/],
  ['ss-redir', 'local_port', /: missing "local_port" \(option -l\)$/],
  ['ss-redir', 'password', /: missing "password" or "key" \(option -k or --key\)$/],
  ['ss-server', 'server_port', /: missing "server_port" \(option -p\)$/],
  ['ss-server', 'password', /: missing "password" or "key" \(option -k or --key\)$/],
] as const) {
  test(`${command} without ${key} says which key and option are missing`, () => {
    assert.match(
      refusal(() => loadWith({ [key]: undefined }, command)),
      message,
    );
    assert.match(
      refusal(() => loadWith({ [key]: null }, command)),
      message,
    );
  });
}

test('all that is missing is told at once, and that no file was read', () => {
  const message = refusal(() => loadConfig('ss-redir', ['-v'], {}), UsageError);
  assert.match(
    message,
    /^missing "server".*"server_port".*"local_port".*"password" or "key".*no configuration file/,
  );
});

test('ss-server needs no local_port and listens on all addresses by default', () => {
  const config = loadWith(
    { server: undefined, local_port: undefined, local_address: undefined },
    'ss-server',
  );
  assert.deepEqual(addresses(config), [{ host: '::', port: 8388 }]);
  assert.deepEqual([config.timeoutSeconds, config.idleTimeoutSeconds, config.localPort], [60, 86_400, 0]);
  assert.deepEqual(
    [config.bindAddress4, config.bindAddress6, config.interface],
    [undefined, undefined, undefined],
  );
});

test('port_password belongs to ss-manager: refused in place of a password, otherwise a warning', () => {
  const alone = { server: '::', port_password: { 8388: secret } };
  assert.match(
    refusal(() => load(alone, 'ss-server')),
    /key "port_password": only ss-manager reads it; .*"server_port"/,
  );
  const warnings = loadWith({ port_password: { 8388: secret } }, 'ss-server').warnings.join('\n');
  assert.match(warnings, /key "port_password": only ss-manager reads it/);
  assert.ok(!warnings.includes(secret));
});

// Passwords

for (const [name, json, expected] of [
  ['escapes', String.raw`"\u00e9\"\\\/\ud83d\ude00"`, 'é"\\/😀'],
  ['the same bytes raw', String.raw`"é\"\\/😀"`, 'é"\\/😀'],
  ['spaces around', '" x "', ' x '],
  ['4 kB', `"${'p'.repeat(4096)}"`, 'p'.repeat(4096)],
  ['a negative number', '-7', '-7'],
] as const) {
  test(`a password with ${name} is the text that was written`, () => {
    const key = passwordKey(expected);
    assert.deepEqual(load(JSON.stringify(good).replace(`"${secret}"`, json)).credentials.key, key);
    assert.deepEqual(loadWith({}, 'ss-redir', ['-k', expected]).credentials.key, key);
  });
}

for (const [name, json, message] of [
  ['a lone surrogate', String.raw`"${secret}\ud800"`, /expected text without lone surrogates/],
  [
    'a NUL, at which libev would cut it',
    String.raw`"${secret}\u0000x"`,
    /expected text without a NUL.*shadowsocks-libev cuts/,
  ],
  [
    'a number that libev could not hold',
    '12345678901234567890',
    /expected a string, got a number that is no 64-bit integer$/,
  ],
  ['a fraction', '1234.5', /expected a string, got a number/],
  ['a boolean', 'true', /expected a string, got a boolean$/],
  ['an array', `["${secret}"]`, /expected a string, got an array$/],
  ['an object', `{"x": "${secret}"}`, /expected a string, got an object$/],
] as const) {
  test(`a password that is or has ${name} is refused without showing it`, () => {
    const message_ = refusal(() => load(JSON.stringify(good).replace(`"${secret}"`, json)));
    assert.match(message_, message);
    assert.ok(!message_.includes('1234'));
  });
}

test('an empty password is used, as by libev, with a warning', () => {
  assert.match(loadWith({ password: '' }).warnings.join('\n'), /key "password": the password is empty/);
});

test('a password or key on the command line is used, beats both in the file, and brings a warning that does not show it', () => {
  const key = Buffer.alloc(32, 7).toString('base64');
  for (const option of ['-k', '--password']) {
    const config = loadWith({ key }, 'ss-redir', [option, `-${secret}`]);
    assert.deepEqual(config.credentials.key, passwordKey(`-${secret}`));
    assert.match(
      config.warnings.join('\n'),
      new RegExp(`option ${option}: everybody on this host can read it`),
    );
    assert.ok(!config.warnings.join('\n').includes(secret));
  }
  const config = loadWith({}, 'ss-redir', ['--key', key]);
  assert.deepEqual(config.credentials.key, new Uint8Array(32).fill(7));
  assert.ok(!inspect(config.warnings).includes(key));
});

test('a password on the command line that is not UTF-8 is refused, since Node has lost its bytes', () => {
  const message = refusal(() => loadWith({}, 'ss-redir', ['-k', `${secret}\ufffd`]), UsageError);
  assert.equal(message, 'option -k: expected UTF-8, got other bytes');
});

test('a key wins over a password and takes both base64 alphabets, padded or not', () => {
  const bytes = Buffer.alloc(32, 0xfb);
  for (const key of [bytes.toString('base64'), bytes.toString('base64url')]) {
    const config = loadWith({ key });
    assert.deepEqual(Buffer.from(config.credentials.key), bytes);
    assert.match(config.warnings.join('\n'), /the key counts/);
  }
});

function keyOf(length: number): string {
  return Buffer.alloc(length, 1).toString('base64');
}

test('a key is as long as the method wants it', () => {
  for (const [method, size] of [
    ['aes-128-gcm', 16],
    ['aes-192-gcm', 24],
    ['aes-256-gcm', 32],
  ] as const) {
    assert.equal(loadWith({ method, key: keyOf(size) }).credentials.key.length, size);
    const message = refusal(() => loadWith({ method, key: keyOf(size - 1) }));
    assert.match(
      message,
      new RegExp(`${size}-byte key, got one of ${size - 1} bytes.*${method}.*openssl rand -base64 ${size}$`),
    );
    assert.match(loadWith({ method, key: keyOf(size + 1) }).warnings.join('\n'), /uses the first/);
  }
});

test('neither password nor key shows when a Config is printed, serialised, copied or cloned', () => {
  const key = Buffer.alloc(32, 0x61);
  for (const config of [load(good), loadWith({ key: key.toString('base64'), password: undefined })]) {
    const shown = [
      inspect(config, { showHidden: true, depth: 9 }),
      JSON.stringify(config),
      inspect({ ...config }),
      inspect(structuredClone({ ...config })),
      String(config),
    ].join('\n');
    assert.ok(!shown.includes(secret) && !shown.includes(key.toString('base64')), shown);
    assert.ok(!shown.includes('97, 97') && !shown.includes('61 61'), shown);
    const hex = Buffer.from(config.credentials.key).toString('hex');
    assert.ok(!shown.includes(hex.slice(0, 16)) && hex.length === 64);
  }
});

// Other values

test('every key arrives in the Config', () => {
  const config = loadWith({
    local_address: '[::]',
    timeout: 90_000,
    tcp_tproxy: true,
    fast_open: true,
    reuse_port: true,
    no_delay: true,
    mptcp: true,
    ipv6_first: true,
    use_syslog: true,
    verbose: true,
    workers: 3,
    max_connections: 100,
    max_dns_queries: 7,
    outbound_fwmark: '0xff',
    nofile: 4096,
    nameserver: '8.8.8.8, 1.1.1.1:5353 [2001:db8::1]:53',
    mode: 'tcp_and_udp',
    udp_timeout: 90,
    udp_max_associations: 500,
    mtu: 1400,
    user: 'nobody',
    tcp_incoming_sndbuf: 16_383,
    tcp_incoming_rcvbuf: 20_000,
    tcp_outgoing_sndbuf: 30_000,
    tcp_outgoing_rcvbuf: 40_000,
    dscp: { 1081: 'EF', 1082: 'cs7', 1083: 'AF41', 1084: '0x01', 1085: 63, 1086: 'CS0' },
    method: 'aes-128-gcm',
  });
  assert.deepEqual(
    { ...config },
    {
      command: 'ss-redir',
      configFile: file,
      servers: [{ host: '192.0.2.1', port: 8388, method: 'aes-128-gcm', tcp: true, udp: true }],
      localAddress: '::',
      localPort: 1080,
      makesRules: false,
      dscp: [
        { port: 1081, tos: 0xb8 },
        { port: 1082, tos: 0xe0 },
        { port: 1083, tos: 0x88 },
        { port: 1084, tos: 4 },
        { port: 1085, tos: 0xfc },
        { port: 1086, tos: 0 },
      ],
      nameservers: ['8.8.8.8', '1.1.1.1:5353', '[2001:db8::1]:53'],
      method: 'aes-128-gcm',
      timeoutSeconds: 90_000,
      idleTimeoutSeconds: 90_000,
      workers: 3,
      maxConnections: 100,
      maxDnsQueries: 7,
      outboundFwmark: 255,
      nofile: 4096,
      tcp: true,
      udp: true,
      udpTimeoutSeconds: 90,
      udpMaxAssociations: 500,
      mtu: 1400,
      user: 'nobody',
      tcpTproxy: true,
      fastOpen: true,
      reusePort: true,
      noDelay: true,
      mptcp: true,
      ipv6First: true,
      verbose: true,
      useSyslog: true,
      tcpIncomingSndbuf: 16_383,
      tcpIncomingRcvbuf: 20_000,
      tcpOutgoingSndbuf: 30_000,
      tcpOutgoingRcvbuf: 40_000,
      warnings: [],
    },
  );
});

test('the defaults', () => {
  const config = load(good);
  assert.deepEqual(
    { ...config, servers: [] },
    {
      command: 'ss-redir',
      configFile: file,
      servers: [],
      localAddress: '::',
      localPort: 1080,
      makesRules: false,
      dscp: [],
      nameservers: [],
      method: 'chacha20-ietf-poly1305',
      timeoutSeconds: 600,
      idleTimeoutSeconds: 86_400,
      workers: 1,
      maxConnections: 8192,
      maxDnsQueries: 512,
      outboundFwmark: 0x0200_0000,
      tcp: true,
      udp: false,
      udpTimeoutSeconds: 300,
      mtu: 0,
      tcpTproxy: false,
      fastOpen: false,
      reusePort: false,
      noDelay: false,
      mptcp: false,
      ipv6First: false,
      verbose: false,
      useSyslog: false,
      tcpIncomingSndbuf: 0,
      tcpIncomingRcvbuf: 0,
      tcpOutgoingSndbuf: 0,
      tcpOutgoingRcvbuf: 0,
      warnings: [],
    },
  );
  assert.ok(Object.isFrozen(config) && Object.isFrozen(config.servers) && Object.isFrozen(config.servers[0]));
});

test('idle_timeout may be shorter than the timeout when it is asked for', () => {
  assert.equal(loadWith({ idle_timeout: 5 }).idleTimeoutSeconds, 5);
  assert.equal(loadWith({}, 'ss-redir', ['--idle-timeout', '5']).idleTimeoutSeconds, 5);
});

test('workers auto is a number of threads', () => {
  const { workers } = loadWith({ workers: 'auto' });
  assert.ok(Number.isInteger(workers) && workers >= 1);
});

/** Where ss-redir listens, and whether it warns of it. */
function listening(server: unknown, change: Record<string, unknown> = {}): [string, boolean] {
  const { localAddress, warnings } = loadWith({ local_address: undefined, server, ...change });
  return [localAddress, warnings.some((line) => line.includes('-b ::'))];
}

test("the listen address is a loopback one of the servers' family unless it is given, and REDIRECT warns of that", () => {
  assert.deepEqual(listening('192.0.2.1'), ['127.0.0.1', true]);
  assert.deepEqual(listening(['::1', '[2001:db8::1]:1']), ['::1', true]);
  assert.deepEqual(listening(['::1', 'a.example']), ['127.0.0.1', true]);
  assert.deepEqual(listening('192.0.2.1', { tcp_tproxy: true }), ['127.0.0.1', false]);
  assert.deepEqual(listening('192.0.2.1', { local_address: '0.0.0.0' }), ['0.0.0.0', false]);
  assert.deepEqual(listening('192.0.2.1', { local_address: 'localhost' }), ['127.0.0.1', true]);
  assert.deepEqual(listening('192.0.2.1', { local_address: '::ffff:192.0.2.9' }), ['192.0.2.9', false]);
});

function sources(change: Record<string, unknown>): unknown[] {
  const { bindAddress4, bindAddress6 } = loadWith({ local_address: undefined, ...change }, 'ss-server');
  return [bindAddress4, bindAddress6];
}

test('in ss-server local_address and its two special forms are source addresses', () => {
  assert.deepEqual(sources({ local_address: '192.0.2.9' }), ['192.0.2.9', undefined]);
  assert.deepEqual(sources({ local_address: '2001:db8::9' }), [undefined, '2001:db8::9']);
  assert.deepEqual(sources({ local_ipv4_address: '192.0.2.9', local_ipv6_address: '::2' }), [
    '192.0.2.9',
    '::2',
  ]);
  assert.match(
    refusal(() => loadWith({ local_ipv6_address: '192.0.2.9' }, 'ss-server')),
    /expected an IPv6 address/,
  );
  assert.match(
    refusal(() => loadWith({ local_ipv4_address: '::9' }, 'ss-server')),
    /expected an IPv4 address/,
  );
  assert.match(
    loadWith({ local_address: '127.0.0.1' }, 'ss-server').warnings.join(),
    /reach nothing but this host/,
  );
});

test('a buffer below 16,383 and a nofile up to 1,024 are ignored, as by libev, with a warning', () => {
  for (const key of [
    'tcp_incoming_sndbuf',
    'tcp_incoming_rcvbuf',
    'tcp_outgoing_sndbuf',
    'tcp_outgoing_rcvbuf',
  ]) {
    const config = loadWith({ [key]: 16_382 });
    assert.match(config.warnings.join(), new RegExp(`key "${key}": 16382 is below 16383 and ignored`));
    assert.ok(
      ![
        config.tcpIncomingSndbuf,
        config.tcpIncomingRcvbuf,
        config.tcpOutgoingSndbuf,
        config.tcpOutgoingRcvbuf,
      ].includes(16_382),
    );
    assert.match(
      refusal(() => loadWith({ [key]: -1 })),
      /expected a number of bytes/,
    );
  }
  const config = loadWith({ nofile: 1024 });
  assert.equal(config.nofile, undefined);
  assert.match(config.warnings.join(), /key "nofile": 1024 is not above 1024 and ignored/);
  assert.deepEqual(loadWith({ nofile: 0, tcp_incoming_sndbuf: 0 }).warnings, []);
});

test("Debian's own configuration starts both commands, with UDP", () => {
  const debian = {
    server: ['::1', '127.0.0.1'],
    mode: 'tcp_and_udp',
    server_port: 8388,
    local_port: 1080,
    password: secret,
    timeout: 86_400,
    method: 'chacha20-ietf-poly1305',
  };
  for (const command of ['ss-redir', 'ss-server'] as const) {
    const config = load(debian, command);
    assert.equal(config.servers.length, 2);
    assert.deepEqual([config.tcp, config.udp], [true, true]);
    assert.doesNotMatch(config.warnings.join('\n'), /mode/);
  }
});

// UDP

for (const [mode, args, tcp, udp] of [
  [undefined, [], true, false],
  ['tcp_only', [], true, false],
  ['tcp_and_udp', [], true, true],
  ['udp_only', [], false, true],
  ['udp_only', ['-u'], true, true],
  ['tcp_only', ['-U'], false, true],
  ['tcp_and_udp', ['-U'], false, true],
  [undefined, ['-u'], true, true],
  [undefined, ['-u', '-U'], false, true],
] as const) {
  test(`mode ${mode} in the file and ${args.join(' ') || 'nothing'} on the command line`, () => {
    const config = loadWith(mode === undefined ? {} : { mode }, 'ss-redir', args);
    assert.deepEqual([config.tcp, config.udp], [tcp, udp]);
  });
}

test('a UDP timeout below the least is raised, with a warning; without one it is 300 s, whatever `timeout` is', () => {
  assert.equal(loadWith({ timeout: 10 }).udpTimeoutSeconds, 300);
  assert.equal(loadWith({ udp_timeout: 60 }).udpTimeoutSeconds, 60);
  const aead = loadWith({ udp_timeout: 59 });
  assert.equal(aead.udpTimeoutSeconds, 60);
  assert.match(aead.warnings.join(), /key "udp_timeout": 59 is below 60, .*: it is 60/);
  const edition2022 = loadWith({ udp_timeout: 60, method: methodOf(32), password: keyOf(32) });
  assert.equal(edition2022.udpTimeoutSeconds, 65);
  assert.equal(loadWith({}, 'ss-redir', ['--udp-timeout', '100']).udpTimeoutSeconds, 100);
});

test('UDP associations are as many as asked for, or left to the descriptors', () => {
  assert.equal(loadWith({}).udpMaxAssociations, undefined);
  assert.equal(loadWith({ udp_max_associations: 100 }).udpMaxAssociations, 100);
  assert.equal(loadWith({}, 'ss-server', ['--udp-max-associations', '7']).udpMaxAssociations, 7);
  assert.equal(loadWith({ mtu: 1492 }).mtu, 1492);
});

// Keys of the 2022 edition

function methodOf(size: number): string {
  return size === 16 ? '2022-blake3-aes-128-gcm' : '2022-blake3-aes-256-gcm';
}

for (const size of [16, 32]) {
  const method = methodOf(size);
  const key = Buffer.alloc(size, 0xfb);
  const standard = key.toString('base64');

  test(`${method}: its key is base64 of ${size} bytes, padded or not, as password or key`, () => {
    for (const text of [standard, standard.replace(/=+$/, ''), `${standard}\n`, ` ${standard}`]) {
      for (const setting of [{ password: text }, { password: undefined, key: text }]) {
        const { credentials } = loadWith({ method, ...setting });
        assert.deepEqual(Buffer.from(credentials.key), key);
        assert.deepEqual(credentials.identityKeys, []);
      }
    }
  });

  for (const [name, text, got] of [
    ['the URL-safe alphabet', key.toString('base64url'), 'URL-safe alphabet'],
    ['hexadecimal', Buffer.alloc(size, 0x5a).toString('hex'), `${size} bytes in hexadecimal`],
    [
      `${size} characters`,
      'correct-horse-battery-staple-word'.slice(0, size),
      'perhaps a password|not base64',
    ],
    ['one byte too many', Buffer.alloc(size + 1, 0xfb).toString('base64'), `${size + 1} bytes`],
    ['one byte too few', Buffer.alloc(size - 1, 0xfb).toString('base64'), `${size - 1} bytes`],
    ['nothing', '', 'nothing'],
  ] as const) {
    test(`${method}: ${name} is refused with what is wanted, what came, and how to make a key`, () => {
      for (const command of ['ss-redir', 'ss-server'] as const) {
        const message = refusal(() => loadWith({ method, password: text }, command));
        assert.match(message, new RegExp(`key "password": ${method} wants a key of exactly ${size} bytes`));
        assert.match(message, new RegExp(got));
        assert.match(message, new RegExp(`openssl rand -base64 ${size}$`));
        assert.ok(text === '' || !message.includes(text));
      }
    });
  }

  test(`${method}: iPSK:uPSK is a client's, and refused by name in a server`, () => {
    const other = keyOf(size);
    const { credentials } = loadWith({ method, password: `${standard}:${other}` });
    assert.deepEqual(Buffer.from(credentials.key).toString('base64'), other);
    assert.deepEqual(
      credentials.identityKeys.map((each) => Buffer.from(each)),
      [key],
    );
    const message = refusal(() => loadWith({ method, password: `${standard}:${other}` }, 'ss-server'));
    assert.match(message, /key "password": "iPSK:uPSK" is for clients/);
  });

  test(`${method}: users have a name and a key of their own each`, () => {
    const users = [1, 2].map((fill) => ({
      name: `user${fill}`,
      password: Buffer.alloc(size, fill + 1).toString('base64'),
    }));
    const server = { method, password: standard };
    const { credentials } = loadWith({ ...server, users }, 'ss-server');
    assert.deepEqual(
      credentials.users.map(({ name, key: userKey }) => [name, userKey[0]]),
      [
        ['user1', 2],
        ['user2', 3],
      ],
    );
    for (const [wrong, message] of [
      [[], /key "users": expected at least one user, got an empty array/],
      [[users[0], users[0]], /key "users": the name "user1" is there twice/],
      [[users[0], { ...users[1], password: users[0]!.password }], /"user2" has the same key as "user1"/],
      [[{ ...users[0], password: standard }], /"user1" has the same key as "the server"/],
      [[{ name: 'x', password: secret }], /key "users": user "x": .*exactly/],
      [[{ name: 'x', password: 7 }], /key "users": item 1: expected a key in a string/],
      [['x'], /key "users": item 1: expected an object of name and password/],
      ['x', /key "users": expected an array of users/],
    ] as const) {
      assert.match(
        refusal(() => loadWith({ ...server, users: wrong }, 'ss-server')),
        message,
      );
    }
  });
}

test('methods without identity headers refuse iPSK:uPSK and users by name', () => {
  const method = '2022-blake3-chacha20-poly1305';
  const chain = refusal(() => loadWith({ method, password: `${keyOf(32)}:${keyOf(32)}` }));
  assert.match(chain, /2022-blake3-chacha20-poly1305 has no identity headers/);
  const users = [{ name: 'x', password: keyOf(32) }];
  for (const change of [{ method, password: keyOf(32) }, { method: 'aes-256-gcm' }]) {
    const message = refusal(() => loadWith({ ...change, users }, 'ss-server'));
    assert.match(message, /key "users": .* cannot tell users apart; these can: 2022-blake3-aes-128-gcm/);
  }
});

test('keys of other commands are accepted in silence; an ACL that ss-redir has no use for is told', () => {
  assert.deepEqual(
    loadWith({ tunnel_address: '8.8.8.8:53', workdir: '/tmp', manager_address: '/x', nameserver: '' })
      .warnings,
    [],
  );
  assert.match(
    loadWith({ acl: '/etc/x.acl' }).warnings.join(),
    /key "acl": ss-redir uses no access control list/,
  );
  assert.match(
    refusal(() => loadWith({ acl: '/etc/x.acl' }, 'ss-server')),
    /key "acl": .*not in this version/,
  );
  assert.match(
    refusal(() => loadWith({ manager_address: '/x' }, 'ss-server')),
    /key "manager_address": .*not in this version/,
  );
});

test('unknown keys warn once each, with the key that was probably meant; keys that begin with _ are comments', () => {
  const { warnings } = loadWith({
    'plugin-opts': 'x',
    protocol: 'origin',
    obfs: 'plain',
    _comment: 'a',
    local_prot: 1,
    'evil\nkey': 1,
  });
  assert.equal(warnings.length, 5);
  assert.match(
    warnings[0]!,
    /:\d+:\d+: key "plugin-opts" is unknown and ignored, did you mean "plugin_opts"\?$/,
  );
  assert.match(warnings[1]!, /key "protocol" is unknown and ignored$/);
  assert.match(warnings[3]!, /key "local_prot" is unknown and ignored, did you mean "local_port"\?$/);
  assert.match(warnings[4]!, /key "evil\\nkey" is unknown and ignored$/);
});

test('a key that is there twice warns with its place', () => {
  const { warnings } = load(`{"server_port":1,\n${JSON.stringify(good).slice(1)}`);
  assert.match(
    warnings.join('\n'),
    /config\.json:2:\d+: key "server_port" is there twice; the last one counts/,
  );
});

test('names that objects have by themselves are unknown keys like others', () => {
  const { warnings } = load(
    `{"__proto__": {"password": "${secret}"}, "constructor": 1, "toString": 2, ${JSON.stringify(good).slice(1)}`,
  );
  assert.equal(warnings.length, 2);
});

// The file itself

function unreadable(path: string): string {
  return refusal(() => loadConfig('ss-redir', ['-c', path], {}));
}

test('a file that cannot be read is named with the reason', () => {
  assert.equal(
    unreadable(join(directory, 'none.json')),
    `${join(directory, 'none.json')}: cannot be read: no such file or directory`,
  );
  assert.equal(unreadable(directory), `${directory}: is a directory, expected a file`);
  assert.match(unreadable(join(file, 'x')), /cannot be read: not a directory$/);
  assert.match(unreadable('evil\nname'), /^evil\\nname: cannot be read/);
});

test('a file without permission is named with the reason', (t) => {
  if (process.getuid?.() !== 0) return t.skip('needs root, to stop being it');
  load(good);
  const loader = new URL('../../src/cli/load-config.js', import.meta.url).href;
  const source = `import { loadConfig } from ${JSON.stringify(loader)};
    process.setgid(65534); process.setuid(65534);
    try { loadConfig('ss-redir', ['-c', ${JSON.stringify(file)}], {}); } catch (error) { process.stdout.write(error.message); }`;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', source], {
    encoding: 'utf8',
  });
  assert.equal(stdout, `${file}: cannot be read: permission denied`);
});

test('a configuration may come through a pipe', () => {
  const loader = new URL('../../src/cli/load-config.js', import.meta.url).href;
  const source = `import { loadConfig } from ${JSON.stringify(loader)};
    process.stdout.write(loadConfig('ss-redir', ['-c', '/dev/stdin'], {}).localAddress);`;
  const { stdout } = spawnSync(
    'sh',
    ['-c', 'cat | "$@"', 'sh', process.execPath, '--input-type=module', '--eval', source],
    {
      input: JSON.stringify(good),
      encoding: 'utf8',
    },
  );
  assert.equal(stdout, '::');
});

/** The places that are looked at when nothing is found. */
function placesOf(command: Command, env: NodeJS.ProcessEnv): string[] {
  const seen: string[] = [];
  const look = (path: string): boolean => {
    seen.push(path);
    return false;
  };
  assert.match(
    refusal(() => findDefaultFile(command, env, look), UsageError),
    /^no configuration: none of .* exists; give -c FILE/,
  );
  return seen;
}

test('without arguments the places of libev are looked at, after our own', () => {
  const env = { HOME: '/home/x', XDG_CONFIG_HOME: '/xdg' };
  const own = '/etc/ss-redir/config.conf';
  const system = '/etc/shadowsocks-libev/config.json';
  assert.equal(
    findDefaultFile('ss-redir', env, () => true),
    own,
  );
  assert.deepEqual(placesOf('ss-redir', env), [own, '/xdg/shadowsocks-libev/config.json', system]);
  assert.deepEqual(placesOf('ss-server', { HOME: '/home/x' }), [
    '/home/x/.config/shadowsocks-libev/config.json',
    system,
  ]);
  assert.deepEqual(placesOf('ss-server', {}), [system]);
});

test("an instance's file is looked for in our own folder, then in Debian's", () => {
  const places = ['/etc/ss-redir/lan.conf', '/etc/ss-redir/lan.json', '/etc/shadowsocks-libev/lan.json'];
  for (const [index, place] of places.entries()) {
    assert.equal(
      findInstanceFile('lan', (path) => places.indexOf(path) >= index),
      place,
    );
  }
  assert.equal(
    refusal(() => findInstanceFile('lan', () => false), UsageError),
    `no configuration for the instance lan: none of ${places.join(', ')} exists; give -c FILE, or see --help`,
  );
});

test('-c goes before --instance, whose name is kept; a name that is a path or a table of ours is refused', () => {
  const config = loadWith({}, 'ss-redir', ['--instance', 'lan-2.b']);
  assert.deepEqual([config.configFile, config.instance], [file, 'lan-2.b']);
  assert.equal(loadWith({}).instance, undefined);
  assert.match(
    refusal(() => loadConfig('ss-redir', ['--instance', 'nobody-has-this'], {}), UsageError),
    /^no configuration for the instance nobody-has-this: none of /,
  );
  for (const name of ['', '.', '..', '../x', 'a/b', 'a b', '-x', 'dns_x', 'kill_x', 'x'.repeat(65), 'a\nb']) {
    assert.match(
      refusal(() => loadWith({}, 'ss-redir', ['--instance', name]), UsageError),
      /^option --instance: expected at most 64 letters, digits and _\.-/,
    );
  }
  assert.equal(loadWith({}, 'ss-server', ['--instance', 'up']).instance, 'up');
});

test('the default file is read when the command line sets nothing', () => {
  mkdirSync(join(directory, 'shadowsocks-libev'));
  writeFileSync(join(directory, 'shadowsocks-libev', 'config.json'), JSON.stringify(good));
  const env = { XDG_CONFIG_HOME: directory };
  for (const args of [[], ['--check'], ['-f', '/run/x.pid']]) {
    assert.equal(
      loadConfig('ss-server', args, env).configFile,
      join(directory, 'shadowsocks-libev', 'config.json'),
    );
  }
  assert.match(
    refusal(() => loadConfig('ss-server', ['-v'], env), UsageError),
    /^missing "server_port"/,
  );
});
