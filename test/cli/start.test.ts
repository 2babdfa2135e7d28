import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const built = fileURLToPath(new URL('../../', import.meta.url));
const bin = (command: string, root = built): string => join(root, 'src', 'bin', `${command}.js`);

for (const command of ['ss-redir', 'ss-server']) {
  test(`${command} without its npm packages says so in one line`, () => {
    const folder = mkdtempSync(join(tmpdir(), 'ss-redir-start-'));
    try {
      cpSync(join(built, 'src'), join(folder, 'src'), { recursive: true });
      writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
      const { status, stdout, stderr } = spawnSync(process.execPath, [bin(command, folder), '--help'], {
        encoding: 'utf8',
      });
      assert.deepEqual([status, stdout], [1, '']);
      assert.match(
        stderr,
        /^ss-\w+: Cannot find package '[^']+': the npm packages are not installed, run "npm ci"\n$/,
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
}

test('a required key under a misspelt name is named beside what is missing', () => {
  const folder = mkdtempSync(join(tmpdir(), 'ss-redir-start-'));
  try {
    const file = join(folder, 'c.json');
    writeFileSync(
      file,
      '{"server":"192.0.2.1","server_port":8388,"local_port":1080,"pasword":"tell-nobody"}',
    );
    const { status, stderr } = spawnSync(process.execPath, [bin('ss-redir'), '-c', file], {
      encoding: 'utf8',
    });
    assert.equal(status, 1);
    assert.match(stderr, /missing "password" or "key".*"pasword".*"password"/);
    assert.equal(stderr.trimEnd().split('\n').length, 1);
    assert.doesNotMatch(stderr, /tell-nobody/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('a password where a 2022 method wants a key is refused in one line that says how to make one', () => {
  const args = [bin('ss-server'), '-p', '8388', '-k', 'tell-nobody!', '-m', '2022-blake3-aes-256-gcm'];
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 20_000 });
  assert.equal(status, 1);
  assert.match(stderr, /wants a key of exactly 32 bytes in base64, got 12 characters that are not base64/);
  assert.match(stderr, /openssl rand -base64 32\n$/);
  assert.doesNotMatch(stderr, /tell-nobody|\n\s+at /);
});

test('deep nesting and many keys in a file are refused or read in time, never an internal error', () => {
  const folder = mkdtempSync(join(tmpdir(), 'ss-redir-start-'));
  try {
    const many = Array.from({ length: 20_000 }, (_, i) => `"_k${i}":1`).join(',\n');
    for (const depth of [100, 2000, 3000, 3500, 4000, 6000, 50_000]) {
      const file = join(folder, `${depth}.json`);
      writeFileSync(
        file,
        `{"_x":${'['.repeat(depth)}${']'.repeat(depth)},${many},"server_port":8388,"password":"x"}`,
      );
      const args = [bin('ss-server'), '-c', file, '--check'];
      const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 20_000 });
      assert.ok(status === 0 || status === 1, `${depth}: status ${status}: ${stderr.slice(0, 300)}`);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('too few descriptors for a connection are refused in one line', () => {
  const command = `ulimit -n 60; exec ${process.execPath} ${bin('ss-server')} -s 127.0.0.1 -p 18999 -k x --workers 4`;
  const { status, stderr } = spawnSync('bash', ['-c', command], { encoding: 'utf8', timeout: 10_000 });
  assert.equal(status, 1, stderr);
  assert.match(
    stderr,
    /ERROR: the limit of 60 descriptors leaves none for connections: at least \d+ are needed/,
  );
});

test('--check looks at JSON and INI, says what file it was, and ends with 0 or 1', () => {
  const folder = mkdtempSync(join(tmpdir(), 'ss-redir-start-'));
  const common = { server: '192.0.2.1', server_port: 8388, password: 'tell-nobody', local_address: '::' };
  const ini =
    '[redir]\nlocal_port = 1080\n[server a]\naddress = 192.0.2.1\nport = 8388\npassword = tell-nobody\n';
  try {
    for (const [name, content, expected, line] of [
      [
        'good.json',
        JSON.stringify({ ...common, local_port: 1080 }),
        0,
        /INFO: the configuration is valid: \S+good\.json$/,
      ],
      ['good.conf', ini, 0, /INFO: the configuration is valid: \S+good\.conf$/],
      [
        'bad.json',
        JSON.stringify({ ...common, local_port: 0 }),
        1,
        /ERROR: \S+bad\.json:1:\d+: key "local_port": expected/,
      ],
      [
        'bad.conf',
        ini.replace('1080', '0'),
        1,
        /ERROR: \S+bad\.conf:2: \[redir\]: key "local_port": expected a port/,
      ],
      ['cut.conf', `${ini}tell-nobody`, 1, /ERROR: \S+cut\.conf:7: expected a \[section\]/],
    ] as const) {
      const file = join(folder, name);
      writeFileSync(file, content, { mode: 0o600 });
      const { status, stdout, stderr } = spawnSync(
        process.execPath,
        [bin('ss-redir'), '-c', file, '--check'],
        { encoding: 'utf8', timeout: 20_000 },
      );
      assert.deepEqual([status, stdout], [expected, ''], stderr);
      assert.match(stderr.trimEnd(), line);
      assert.doesNotMatch(stderr, /tell-nobody|\n./);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
