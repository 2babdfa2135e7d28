/** Passwords from files of their own, and files that others can read. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { loadConfig } from '../../src/cli/load-config.js';
import type { Command, Config } from '../../src/config/config.js';
import { masterKeyFromPassword } from '../../src/crypto/keys.js';
import { ConfigFolder, refusal, secret } from '../helpers/config-file.js';

const folder = new ConfigFolder();
const flat = { server: '192.0.2.1', server_port: 8388, local_port: 1080, local_address: '::' };

function load(
  change: object,
  {
    env = {},
    args = [],
    command = 'ss-redir',
  }: { env?: NodeJS.ProcessEnv; args?: string[]; command?: Command } = {},
): Config {
  return folder.load('c.json', JSON.stringify({ ...flat, ...change }), command, args, env);
}

function key(fill: number): string {
  return Buffer.alloc(16, fill).toString('base64');
}

function keyOf(password: string): Uint8Array {
  return masterKeyFromPassword(password, 32);
}

test('password_file is a path, beside the configuration when it is relative, in both formats', () => {
  const path = folder.write('secret', `${secret}\n`);
  for (const written of [path, 'secret', './secret']) {
    assert.deepEqual(load({ password_file: written }).credentials.key, keyOf(secret));
    const ini = `local_port = 1080\n[server]\naddress = a\nport = 1\npassword_file = ${written}\n`;
    const { credentials, warnings } = folder.load('c.conf', ini);
    assert.deepEqual([credentials.key, warnings], [keyOf(secret), []]);
  }
});

for (const [what, content, expected] of [
  ['without a line end', secret, secret],
  ['with LF', `${secret}\n`, secret],
  ['with CRLF', `${secret}\r\n`, secret],
  ['with blanks around', ' x \n', ' x '],
  ['with a byte order mark', `\ufeff${secret}\n`, secret],
  ['that a shell would read otherwise', '$a"\'\\#;=\n', '$a"\'\\#;='],
  ['in another script', 'é😀\n', 'é😀'],
] as const) {
  test(`a password file ${what} has that password`, () => {
    folder.write('secret', content);
    assert.deepEqual(load({ password_file: 'secret' }).credentials.key, keyOf(expected));
  });
}

for (const [what, content, message] of [
  ['nothing in it', '', /secret: expected the password in one line, got nothing$/],
  ['a line end only', '\n', /secret: expected the password in one line, got nothing$/],
  ['two lines', `${secret}\n${secret}\n`, /secret: expected the password in one line, got several$/],
  ['an empty line behind', `${secret}\n\n`, /got several$/],
  ['a carriage return inside', `a\rb`, /got several$/],
  ['a NUL', `${secret}\0x\n`, /secret: expected text without a NUL/],
] as const) {
  test(`a password file with ${what} is refused by its name, without its content`, () => {
    folder.write('secret', content);
    assert.match(
      refusal(() => load({ password_file: 'secret' })),
      message,
    );
  });
}

test('a password file that cannot be read is named with place, path and reason', () => {
  assert.match(
    refusal(() => load({ password_file: 'none' })),
    /c\.json:1:\d+: key "password_file": \S+\/none: cannot be read: no such file or directory$/,
  );
  assert.match(
    refusal(() => load({ password_file: '.' })),
    /: is a directory, expected a file$/,
  );
  assert.match(
    refusal(() => load({ password_file: '' })),
    /expected the name of a file, got an empty string$/,
  );
});

test('a password file without permission is named with the reason', (t) => {
  if (process.getuid?.() !== 0) return t.skip('needs root, to stop being it');
  folder.write('secret', secret);
  const config = folder.write('readable.json', JSON.stringify({ ...flat, password_file: 'secret' }), 0o644);
  chmodSync(folder.path, 0o755);
  const loader = new URL('../../src/cli/load-config.js', import.meta.url).href;
  const source = `import { loadConfig } from ${JSON.stringify(loader)};
    process.setgid(65534); process.setuid(65534);
    try { loadConfig('ss-redir', ['-c', ${JSON.stringify(config)}], {}); } catch (error) { process.stdout.write(error.message); }`;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', source], {
    encoding: 'utf8',
  });
  assert.match(stdout, /key "password_file": \S+\/secret: cannot be read: permission denied$/);
});

test('credential:NAME is a file that systemd has passed', () => {
  const credentials = join(folder.path, 'credentials');
  mkdirSync(credentials, { recursive: true });
  folder.write('credentials/proxy', `${secret}\n`, 0o400);
  const env = { CREDENTIALS_DIRECTORY: credentials };
  const { credentials: read, warnings } = load({ password_file: 'credential:proxy' }, { env });
  assert.deepEqual([read.key, warnings], [keyOf(secret), []]);
  assert.match(
    refusal(() => load({ password_file: 'credential:other' }, { env })),
    /key "password_file": \S+\/credentials\/other: cannot be read: no such file or directory$/,
  );
  assert.match(
    refusal(() => load({ password_file: 'credential:proxy' })),
    /credential:proxy: the service manager has passed no credentials \(LoadCredential=proxy:FILE in the unit/,
  );
  for (const name of ['', '.', '..', '../secret', 'a/b']) {
    assert.match(
      refusal(() => load({ password_file: `credential:${name}` }, { env })),
      /expected credential:NAME with the name of a credential/,
    );
  }
});

test('a key of the 2022 edition and those of users may be in files', () => {
  folder.write('server.key', `${key(1)}\n`);
  folder.write('anna.key', `${key(2)}\n`);
  const users = [
    { name: 'anna', password_file: 'anna.key' },
    { name: 'ben', password: key(3) },
  ];
  const change = { method: '2022-blake3-aes-128-gcm', password_file: 'server.key', users };
  const { credentials } = load(change, { command: 'ss-server' });
  assert.equal(credentials.key[0], 1);
  assert.deepEqual(
    credentials.users.map((user) => user.key[0]),
    [2, 3],
  );
  for (const wrong of [{ name: 'x' }, { name: 'x', password: key(4), password_file: 'anna.key' }]) {
    assert.match(
      refusal(() => load({ ...change, users: [wrong] }, { command: 'ss-server' })),
      /user "x": expected "password" or "password_file", one of them$/,
    );
  }
  const typo = load({ ...change, users: [{ ...users[0], pasword: secret }] }, { command: 'ss-server' });
  assert.match(typo.warnings.join(), /user "anna": key "pasword" is unknown and ignored/);
  folder.write('server.key', secret);
  assert.match(
    refusal(() => load(change, { command: 'ss-server' })),
    /key "password_file": 2022-blake3-aes-128-gcm wants a key of exactly 16 bytes/,
  );
});

test('a password beside a password file is refused: which of them counts?', () => {
  folder.write('secret', 'from the file');
  for (const other of [{ password: secret }, { key: Buffer.alloc(32).toString('base64') }]) {
    assert.match(
      refusal(() => load({ ...other, password_file: 'secret' })),
      /key "password_file": there is a "password" or "key" as well: which of them counts\?$/,
    );
  }
});

test('a password on the command line, or of a server, takes the place of the file', () => {
  assert.deepEqual(load({ password_file: 'none' }, { args: ['-k', 'x'] }).credentials.key, keyOf('x'));
  const { servers } = load({
    server: undefined,
    password_file: 'none',
    servers: [{ address: 'a', password: 'x' }],
  });
  assert.deepEqual(servers[0]!.credentials.key, keyOf('x'));
});

test('a configuration that holds a secret and is open to others brings a warning that names chmod', () => {
  const json = JSON.stringify({ ...flat, password: secret });
  const server = JSON.stringify({
    ...flat,
    server: undefined,
    servers: [{ address: 'a', password: secret }],
  });
  const ini = `local_port = 1080\n[server]\naddress = a\nport = 1\npassword = ${secret}\n`;
  for (const [name, content] of [
    ['open.json', json],
    ['servers.json', server],
    ['open.conf', ini],
  ] as const) {
    for (const [mode, warned] of [
      [0o600, false],
      [0o640, false],
      [0o644, true],
      [0o602, true],
      [0o601, true],
    ] as const) {
      const path = folder.write(name, content);
      chmodSync(path, mode);
      const { warnings } = loadPath(path);
      const expected = `${path} holds a password or key and is open to others (mode 0${mode.toString(8)}): chmod o= ${path}`;
      assert.deepEqual(warnings, warned ? [expected] : [], `${name} ${mode.toString(8)}`);
    }
  }
});

test('a configuration without a secret may be open; its password file may not, and is told of once', () => {
  const password = folder.write('secret', secret);
  chmodSync(password, 0o644);
  const servers = [
    { address: 'a', port: 1 },
    { address: 'b', port: 2 },
  ];
  const path = folder.write(
    'open.json',
    JSON.stringify({ ...flat, server: undefined, password_file: 'secret', servers }),
  );
  chmodSync(path, 0o644);
  assert.deepEqual(loadPath(path).warnings, [
    `${password} holds a password or key and is open to others (mode 0644): chmod o= ${password}`,
  ]);
});

function loadPath(path: string): Config {
  return loadConfig('ss-redir', ['-c', path], {});
}
