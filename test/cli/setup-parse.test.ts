import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseSetupCommandLine } from '../../src/cli/setup-parse.js';
import { UsageError } from '../../src/errors.js';

const script = fileURLToPath(new URL('../../src/bin/ss-setup.js', import.meta.url));

function refusal(...argv: string[]): string {
  try {
    parseSetupCommandLine(argv);
  } catch (error) {
    assert.ok(error instanceof UsageError);
    return error.message;
  }
  throw new Error(`${argv.join(' ')}: is not refused`);
}

test('a command line is read, with its defaults', () => {
  const line = {
    command: 'install',
    prefix: '/usr/local',
    destdir: '',
    instances: [],
    purge: false,
    dryRun: false,
  };
  assert.deepEqual(parseSetupCommandLine(['install']), line);
  assert.deepEqual(
    parseSetupCommandLine([
      '--prefix',
      '/opt/x/',
      'install',
      '--destdir=/tmp/a',
      '--node',
      '/usr/bin/node',
      '--rules',
      'lan',
      '--rules',
      'dmz',
      '--dry-run',
    ]),
    {
      ...line,
      prefix: '/opt/x',
      destdir: '/tmp/a',
      node: '/usr/bin/node',
      instances: ['lan', 'dmz'],
      dryRun: true,
    },
  );
  assert.deepEqual(parseSetupCommandLine(['remove', '--purge', '--destdir', '/']), {
    ...line,
    command: 'remove',
    purge: true,
  });
  assert.equal(parseSetupCommandLine([]).command, 'help');
});

test('what is wrong is refused by name', () => {
  assert.equal(refusal('--dry-run'), 'expected a command: install or remove');
  assert.equal(refusal('instal'), 'unknown command "instal" (did you mean install?)');
  assert.equal(refusal('install', 'remove'), 'argument "remove" is one too many: install or remove');
  assert.equal(refusal('install', '--purge'), 'option --purge is for remove, and the command is install');
  for (const option of ['--rules', '--node'])
    assert.equal(
      refusal('remove', option, 'x'),
      `option ${option} is for install, and the command is remove`,
    );
  assert.match(refusal('install', '--rules', '../x'), /^option --rules: expected at most 64 letters/);
  for (const path of ['', 'usr', '/a b', '/a%b', '/a"b', '/a$b', '/a\nb', '../x']) {
    assert.match(refusal('install', '--prefix', path), /^option --prefix: expected an absolute path/, path);
    assert.match(refusal('remove', '--destdir', path), /^option --destdir: expected an absolute path/, path);
  }
});

test('where the units cannot see it, neither Node nor the program is installed', () => {
  for (const [words, message] of [
    [
      ['--node', '/root/.nvm/node'],
      /^ss-setup: node \/root\/\.nvm\/node: \/root is hidden from the units .* --node FILE\n$/,
    ],
    [
      ['--node', '/etc/shadow'],
      /^ss-setup: node \/etc\/shadow: \/etc\/shadow is closed to the user ss-redir: /,
    ],
    [
      ['--node', '/nowhere/node'],
      /^ss-setup: node \/nowhere\/node: \/nowhere\/node, which does not exist, is closed/,
    ],
    [['--node', '/usr/bin/true'], /^ss-setup: node \/usr\/bin\/true: expected 20\.19 or later, got /],
    [['--prefix', '/home/x'], /^ss-setup: prefix \/home\/x: \/home is hidden from the units /],
  ] as const) {
    const argv = [script, 'install', '--dry-run', '--prefix', '/opt/ss-redir-test', ...words];
    const { status, stdout, stderr } = spawnSync(process.execPath, argv, { encoding: 'utf8' });
    assert.deepEqual([status, stdout], [1, '']);
    assert.match(stderr, message);
  }
});
