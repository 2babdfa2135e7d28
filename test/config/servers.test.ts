/** Several servers, each with what it has of its own: `servers` of JSON, which INI's [server NAME] is the same as (ini.test.ts). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Command, Config } from '../../src/config/config.js';
import { masterKeyFromPassword } from '../../src/crypto/keys.js';
import { ConfigFolder, refusal, secret } from '../helpers/config-file.js';

const folder = new ConfigFolder();
const server = { address: '192.0.2.1', port: 8388, password: secret };
const psk = Buffer.alloc(16, 1).toString('base64');

function load(
  servers: unknown,
  more: object = {},
  args: readonly string[] = [],
  command: Command = 'ss-redir',
): Config {
  const common = { local_port: 1080, local_address: '::' };
  return folder.load('c.json', JSON.stringify({ ...common, ...more, servers }), command, args);
}

function keyOf(password: string, size = 32): Uint8Array {
  return masterKeyFromPassword(password, size);
}

function places({ servers }: Config): string[] {
  return servers.map(({ host, port }) => `${host} ${port}`);
}

test('each server has its own address, method, password, name and mode', () => {
  const { servers, method, credentials, warnings } = load(
    [
      { ...server, remarks: 'one', method: 'aes-128-gcm' },
      { server: 'b.example', server_port: '8389', password: 'b', name: 'two', mode: 'tcp_only' },
      { server: '[2001:db8::1]:8390', method: '2022-blake3-aes-128-gcm', key: psk, id: 'x' },
    ],
    { mode: 'tcp_and_udp' },
  );
  assert.deepEqual(servers, [
    { name: 'one', host: '192.0.2.1', port: 8388, method: 'aes-128-gcm', tcp: true, udp: true },
    { name: 'two', host: 'b.example', port: 8389, method: 'chacha20-ietf-poly1305', tcp: true, udp: false },
    { host: '2001:db8::1', port: 8390, method: '2022-blake3-aes-128-gcm', tcp: true, udp: true },
  ]);
  assert.deepEqual(
    servers.map((one) => Buffer.from(one.credentials.key)),
    [keyOf(secret, 16), keyOf('b'), Buffer.alloc(16, 1)].map((key) => Buffer.from(key)),
  );
  assert.deepEqual([method, credentials], ['aes-128-gcm', servers[0]!.credentials]);
  assert.deepEqual(warnings, []);
});

test('what a server leaves out is taken from the flat keys, secrets as one', () => {
  const flat = { server_port: 1, method: 'aes-256-gcm', key: Buffer.alloc(32, 7).toString('base64') };
  const { servers, warnings } = load([{ address: 'a' }, { address: 'b', password: 'b' }], flat);
  assert.deepEqual(
    servers.map(({ port, method, credentials }) => [port, method, Buffer.from(credentials.key)]),
    [
      [1, 'aes-256-gcm', Buffer.alloc(32, 7)],
      [1, 'aes-256-gcm', Buffer.from(keyOf('b'))],
    ],
  );
  assert.deepEqual(warnings, []);
});

test('servers come behind those of the flat keys', () => {
  const config = load([server], { server: ['a', 'b'], server_port: 1, password: 'x' });
  assert.deepEqual(places(config), ['a 1', 'b 1', '192.0.2.1 8388']);
});

test('the command line beats the file: -s all servers of it, other options the value of each', () => {
  const servers = [server, { ...server, port: 8389, method: 'aes-128-gcm', key: psk }];
  const flat = { server_port: 1, password: 'flat' };
  assert.deepEqual(places(load(servers, flat, ['-s', 'z'])), ['z 1']);
  const config = load(servers, {}, ['-m', 'aes-192-gcm', '-p', '7', '-k', 'k']);
  assert.deepEqual(places(config), ['192.0.2.1 7', '192.0.2.1 7']);
  for (const { method, credentials } of config.servers) {
    assert.deepEqual([method, credentials.key], ['aes-192-gcm', keyOf('k', 24)]);
  }
});

test('a disabled server is left out unread; with all of them disabled that is said', () => {
  assert.deepEqual(places(load([{ disabled: true, method: 'table' }, server])), ['192.0.2.1 8388']);
  assert.deepEqual(places(load([{ ...server, disabled: false }])), ['192.0.2.1 8388']);
  assert.match(
    refusal(() => load([{ ...server, disabled: true }])),
    /c\.json: all servers are disabled$/,
  );
});

test('an empty list is none', () => {
  const flat = { server: 'a', server_port: 1, password: 'x' };
  assert.deepEqual(places(load([], flat)), ['a 1']);
  assert.deepEqual(places(load(null, flat)), ['a 1']);
  assert.match(
    refusal(() => load([])),
    /: missing "server" \(option -s\), "server_port"/,
  );
});

test('what other programs weigh and bind by is ignored with a warning, and so is what nobody knows', () => {
  const { warnings } = load([
    {
      ...server,
      tcp_weight: 0.5,
      weight: 2,
      timeout: 5,
      outbound_fwmark: 1,
      _note: 'x',
      pasword: 'y',
      plugin: '',
    },
  ]);
  const expected = [
    /key "pasword" is unknown and ignored, did you mean "password"\?$/,
    /key "tcp_weight" is ignored: healthy servers take turns/,
    /key "weight" is ignored: healthy servers take turns/,
    /key "timeout" is ignored: it is given once, for all servers$/,
    /key "outbound_fwmark" is ignored: it is not for one server alone$/,
  ];
  assert.equal(warnings.length, expected.length, warnings.join('\n'));
  for (const [i, pattern] of expected.entries()) {
    assert.match(warnings[i]!, /^\S+c\.json:1:\d+: "servers" item 1: /);
    assert.match(warnings[i]!, pattern);
  }
});

for (const [what, servers, message] of [
  ['an object', {}, /:1:\d+: key "servers": expected an array of objects$/],
  ['a text in the list', [server, secret], /:1:\d+: key "servers": item 2: expected an object in braces/],
  ['no address', [{ ...server, address: undefined }], /: "servers" item 1: missing "address"$/],
  ['no port', [{ ...server, port: undefined }], /: "servers" item 1: missing "port"$/],
  [
    'no secret',
    [server, { ...server, password: undefined }],
    /:1:\d+: "servers" item 2: missing "password", "password_file" or "key"$/,
  ],
  [
    'a misspelt one',
    [{ ...server, port: undefined, prt: 1 }],
    /item 1: missing "port" \(\S+: "servers" item 1: key "prt" is unknown and ignored, did you mean "port"\?\)$/,
  ],
  [
    'a wrong port',
    [{ ...server, port: 0 }],
    /:1:\d+: "servers" item 1: key "port": expected a port from 1 to 65535, got 0$/,
  ],
  [
    'a wrong address',
    [{ ...server, address: 'a b' }],
    /"servers" item 1: key "address": expected a host name/,
  ],
  ['a wrong method', [{ ...server, method: 'rc4-md5' }], /"servers" item 1: key "method": .*retired/],
  ['a wrong mode', [{ ...server, mode: 'udp' }], /"servers" item 1: key "mode": expected "tcp_only"/],
  [
    'a wrong password',
    [{ ...server, password: [secret] }],
    /item 1: key "password": expected a string, got an array$/,
  ],
  [
    'a password where a key is wanted',
    [{ ...server, method: '2022-blake3-aes-128-gcm' }],
    /item 1: key "password": 2022-blake3-aes-128-gcm wants a key of exactly 16 bytes/,
  ],
  ['disabled 1', [{ ...server, disabled: 1 }], /item 1: key "disabled": expected true or false, got 1$/],
  [
    'a plugin',
    [{ ...server, plugin: 'x' }],
    /item 1: key "plugin": running a plugin is not in this version yet$/,
  ],
  [
    'two names of one key',
    [{ ...server, server: 'x' }],
    /item 1: key "server": there is a "address" as well/,
  ],
  [
    'two passwords at one address',
    [server, { ...server, password: 'other' }],
    /server 192\.0\.2\.1:8388 is there twice, with different methods, passwords or keys$/,
  ],
] as const) {
  test(`refused by place, key and reason: ${what}`, () => {
    assert.match(
      refusal(() => load(servers)),
      message,
    );
  });
}

test('the local port is missing beside servers, too', () => {
  assert.match(
    refusal(() => load([server], { local_port: undefined })),
    /: missing "local_port" \(option -l\)$/,
  );
  assert.match(
    refusal(() => folder.load('c.json', '{}')),
    /: missing "server" \(option -s\), "server_port" \(option -p\), "local_port"/,
  );
});

test('a protocol that no server carries is refused', () => {
  const servers = [{ ...server, mode: 'tcp_only' }];
  assert.match(
    refusal(() => load(servers, { mode: 'tcp_and_udp' })),
    /"mode" wants UDP, and no server's own "mode" has it$/,
  );
  assert.match(
    refusal(() => load([{ ...server, mode: 'udp_only' }])),
    /"mode" wants TCP/,
  );
  assert.equal(load(servers).servers[0]!.udp, false);
});

test('one server of the 2022 edition raises the UDP timeout for all', () => {
  const servers = [server, { ...server, port: 1, method: '2022-blake3-aes-128-gcm', password: psk }];
  const { udpTimeoutSeconds, warnings } = load(servers, { udp_timeout: 60 });
  assert.equal(udpTimeoutSeconds, 65);
  assert.match(warnings.join(), /60 is below 65, the least with 2022-blake3-aes-128-gcm/);
});

test('ss-server listens at each, and refuses another method or password at one of them', () => {
  const addresses = [server, { ...server, address: '::', port: 8389 }];
  const config = load(addresses, {}, [], 'ss-server');
  assert.deepEqual(places(config), ['192.0.2.1 8388', ':: 8389']);
  for (const other of [{ password: 'other' }, { method: 'aes-256-gcm' }]) {
    assert.match(
      refusal(() => load([server, { ...server, port: 1, ...other }], {}, [], 'ss-server')),
      /^192\.0\.2\.1:1: ss-server has one method and one password or key for all its addresses/,
    );
  }
});

test('a password on the command line is not asked of the servers of the file', () => {
  assert.equal(load([{ address: 'a', port: 1 }], {}, ['-k', secret]).servers.length, 1);
});
