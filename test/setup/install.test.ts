// ss-setup below a destdir, on real file systems: a full one, a read-only one, with what somebody has edited, and killed.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { manPages } from '../../src/cli/man.js';
import { findCommand } from '../helpers/packages.js';

const repository = fileURLToPath(new URL('../../../', import.meta.url)).replace(/\/$/, '');
const setupScript = join(repository, 'dist/src/bin/ss-setup.js');
const library = '/usr/local/lib/ss-redir';
const unit = '/usr/local/lib/systemd/system/ss-redir@.service';
const dropIn = '/etc/systemd/system/ss-redir@lan.service.d/rules.conf';

let scratch: string;
let root: string;

/** Scripts of other versions: see makeSource. */
let newer: string;
let newest: string;

before(() => {
  scratch = mkdtempSync(join(tmpdir(), 'ss-redir-test-'));
  newer = makeSource(false);
  newest = makeSource(true);
});
after(() => rmSync(scratch, { recursive: true, force: true }));
beforeEach(() => (root = mkdtempSync(join(scratch, 'root-'))));
afterEach(() => rmSync(root, { recursive: true, force: true }));

interface Result {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function run(
  words: readonly string[],
  { script = setupScript, below = root, under = [] as string[] } = {},
): Result {
  const [command, ...args] = [...under, process.execPath, script, ...words, '--destdir', below];
  const { status, stdout, stderr } = spawnSync(command!, args, { encoding: 'utf8' });
  return { status, stdout, stderr };
}

function mustRun(words: readonly string[], options = {}): Result {
  const result = run(words, options);
  assert.equal(result.status, 0, result.stderr);
  return result;
}

/** Each path with what tells whether somebody has touched it. */
function snapshot(folder: string, details: (path: string) => string = identity): Map<string, string> {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).toSorted();
  return new Map(names.map((name) => [name, details(join(folder, name))]));
}

function identity(path: string): string {
  const { ino, mtimeMs, mode } = lstatSync(path);
  return lstatSync(path).isDirectory() ? `${ino} ${mode}` : `${ino} ${mtimeMs} ${mode}`;
}

function content(path: string): string {
  const status = lstatSync(path);
  if (status.isDirectory()) return `directory ${status.mode.toString(8)}`;
  return status.isSymbolicLink()
    ? `-> ${readlinkSync(path)}`
    : `${status.mode.toString(8)} ${createHash('sha256').update(readFileSync(path)).digest('hex')}`;
}

const at = (path: string): string => join(root, path);

describe('install', () => {
  test('everything is in its place, readable for all, and works without the source', () => {
    const umask = process.umask(0o077);
    try {
      mustRun(['install', '--rules', 'lan']);
    } finally {
      process.umask(umask);
    }
    for (const command of ['ss-redir', 'ss-server', 'ss-nft', 'ss-setup']) {
      const program = at(`/usr/local/bin/${command}`);
      assert.match(readFileSync(program, 'utf8'), new RegExp(`^#!${process.execPath}\n`));
      const { stdout, status, stderr } = spawnSync(program, ['--version'], { encoding: 'utf8', cwd: '/' });
      assert.deepEqual([status, stderr], [0, '']);
      assert.match(stdout, new RegExp(`^${command} \\d`));
      for (const [folder, name] of [
        ['bash-completion/completions', command],
        ['zsh/site-functions', `_${command}`],
        ['fish/vendor_completions.d', `${command}.fish`],
      ])
        assert.ok(existsSync(at(`/usr/local/share/${folder}/${name}`)), name);
    }
    for (const [, page] of manPages)
      assert.ok(existsSync(at(`/usr/local/share/man/man${page.at(-1)}/${page}`)), page);
    for (const name of readdirSync(join(repository, 'systemd')).filter((file) =>
      /\.(service|socket)$/.test(file),
    )) {
      const installed = readFileSync(at(`/usr/local/lib/systemd/system/${name}`), 'utf8');
      assert.equal(installed, readFileSync(join(repository, 'systemd', name), 'utf8'));
    }
    assert.match(readFileSync(at(dropIn), 'utf8'), /^Requires=ss-redir-rules@%i\.service$/m);
    for (const path of readdirSync(root, { recursive: true, encoding: 'utf8' })) {
      const { mode } = lstatSync(join(root, path));
      assert.equal(mode & 0o044, 0o044, path);
    }
    // koffi's binary comes along, what is for development does not.
    const packages = readdirSync(at(`${library}/node_modules`));
    assert.ok(packages.includes('koffi') && packages.includes('execa'), packages.join(' '));
    assert.ok(!packages.includes('typescript') && !packages.includes('@types'), packages.join(' '));
    const server = spawnSync(at('/usr/local/bin/ss-server'), ['-p', '1', '-k', 'x', '-s', '203.0.113.1'], {
      encoding: 'utf8',
      timeout: 20_000,
    });
    assert.match(server.stderr, /cannot listen at 203\.0\.113\.1:1 /, 'it has come as far as bind(2)');
  });

  test('a second time nothing is touched, and the installed ss-setup itself can do it', () => {
    mustRun(['install', '--rules', 'lan']);
    const once = snapshot(root);
    for (const script of [setupScript, at('/usr/local/bin/ss-setup')]) {
      const { stdout } = mustRun(['install'], { script });
      assert.equal(stdout, 'everything is in its place already\n');
      const twice = snapshot(root);
      twice.set('usr/local/lib/ss-redir/installed.json', once.get('usr/local/lib/ss-redir/installed.json')!);
      assert.deepEqual(twice, once);
    }
  });

  test('--dry-run says the same and does nothing', () => {
    const said = mustRun(['install', '--rules', 'lan', '--dry-run']).stdout;
    assert.deepEqual(readdirSync(root), []);
    assert.equal(said.replaceAll(/^would /gm, ''), mustRun(['install', '--rules', 'lan']).stdout);
    const there = snapshot(root);
    const removal = mustRun(['remove', '--dry-run']).stdout;
    assert.deepEqual(snapshot(root), there);
    assert.equal(removal.replaceAll(/^would /gm, ''), mustRun(['remove']).stdout);
  });

  test('another prefix: its paths in the units, which are where systemd looks', () => {
    mustRun(['install', '--prefix', '/opt/proxy/']);
    const service = readFileSync(at('/etc/systemd/system/ss-redir@.service'), 'utf8');
    assert.match(service, /^ExecStart=\/opt\/proxy\/bin\/ss-redir --instance %i$/m);
    assert.ok(
      existsSync(at('/etc/sysusers.d/ss-redir.conf')) && existsSync(at('/etc/tmpfiles.d/ss-redir.conf')),
    );
    const texts = readdirSync(at('/etc/systemd/system')).map((name) =>
      readFileSync(at(`/etc/systemd/system/${name}`), 'utf8'),
    );
    assert.ok(!texts.some((text) => text.includes('/usr/local')));
    mustRun(['remove', '--prefix', '/opt/proxy']);
    assert.deepEqual(readdirSync(root), []);
  });

  test('its packages may also be beside it, where npm puts them for all users', () => {
    const folder = join(root, 'global/node_modules/ss-redir');
    cpSync(join(newer, '../../../..'), folder, { recursive: true });
    const beside = join(root, 'global/node_modules');
    for (const name of readdirSync(join(folder, 'node_modules')))
      renameSync(join(folder, 'node_modules', name), join(beside, name));
    mustRun(['install'], { script: scriptOf(folder), below: join(root, 'there') });
    mustRun(['install'], { script: newer, below: join(root, 'usual') });
    assert.deepEqual(snapshot(join(root, 'there'), content), snapshot(join(root, 'usual'), content));
  });

  test('--node is in the first line of the programs', () => {
    mustRun(['install', '--node', '/usr/bin/node-20']);
    assert.match(readFileSync(at('/usr/local/bin/ss-nft'), 'utf8'), /^#!\/usr\/bin\/node-20\n/);
  });

  test('a source that is not built is refused by name, with the command that builds it', () => {
    const source = join(root, 'source');
    mustRun(['install'], { below: join(root, 'full') });
    cpSync(join(root, 'full', library), source, { recursive: true });
    rmSync(join(source, 'man'), { recursive: true });
    const { status, stderr } = run(['install'], {
      script: join(source, 'dist/src/bin/ss-setup.js'),
      below: join(root, 'x'),
    });
    assert.deepEqual([status, stderr], [1, `ss-setup: ${source} has no man\n`]);
    assert.ok(!existsSync(join(root, 'x')));
  });
});

describe('what somebody has edited', () => {
  beforeEach(() => mustRun(['install', '--rules', 'lan']));

  test('stays, with the new version beside it; once it is as we had it, it is replaced', () => {
    const old = readFileSync(at(unit), 'utf8');
    writeFileSync(at(unit), `${old}# mine\n`);
    for (let round = 0; round < 2; round++) {
      const { stderr } = mustRun(['install'], { script: newer });
      assert.equal(
        stderr,
        `ss-setup: ${root}${unit} was edited and stays: the new version is ${root}${unit}.new\n`,
      );
      assert.equal(readFileSync(at(unit), 'utf8'), `${old}# mine\n`);
      assert.equal(readFileSync(at(`${unit}.new`), 'utf8'), `${old}# newer\n`);
    }
    writeFileSync(at(unit), old);
    assert.equal(mustRun(['install'], { script: newer }).stderr, '');
    assert.equal(readFileSync(at(unit), 'utf8'), `${old}# newer\n`);
    assert.ok(!existsSync(at(`${unit}.new`)));
  });

  test('of the program: nothing is installed, and the file is named', () => {
    const file = `${library}/dist/src/cli/run.js`;
    appendFileSync(at(file), '// mine\n');
    const there = snapshot(root);
    const { status, stderr } = run(['install'], { script: newer });
    assert.deepEqual([status, stderr], [1, `ss-setup: ${file} was edited: move it away\n`]);
    assert.deepEqual(snapshot(root), there);
  });

  test('a drop-in that was taken away does not come back by itself', () => {
    rmSync(at(dropIn));
    mustRun(['install']);
    assert.ok(!existsSync(at(dropIn)));
    mustRun(['install', '--rules', 'lan', '--rules', 'dmz']);
    assert.ok(existsSync(at(dropIn)) && existsSync(at(dropIn.replace('lan', 'dmz'))));
  });

  test('remove leaves it and says so, and takes everything else; purge takes it, too', () => {
    writeFileSync(at(unit), 'mine\n');
    mkdirSync(at('/etc/ss-redir'));
    writeFileSync(at('/etc/ss-redir/lan.conf'), '[redir]\n');
    mkdirSync(at('/etc/systemd/system/ss-server@.service.d'));
    writeFileSync(at('/etc/systemd/system/ss-server@.service.d/override.conf'), '[Service]\n');
    const { stderr } = mustRun(['remove']);
    assert.match(stderr, new RegExp(`^ss-setup: ${root}${unit} was edited and stays: [^\n]+\n$`));
    const left = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter(
      (name) => !lstatSync(at(name)).isDirectory(),
    );
    assert.deepEqual(left.toSorted(), [
      'etc/ss-redir/lan.conf',
      'etc/systemd/system/ss-server@.service.d/override.conf',
      'usr/local/lib/ss-redir/installed.json',
      unit.slice(1),
    ]);
    mustRun(['remove', '--purge']);
    assert.deepEqual(
      snapshot(root, content),
      new Map(
        [
          ['etc', 'directory 40755'],
          ['etc/systemd', 'directory 40755'],
          ['etc/systemd/system', 'directory 40755'],
        ].filter(([name]) => existsSync(at(name!))) as [string, string][],
      ),
    );
  });
});

describe('what is of others', () => {
  test('a program of that name is not overwritten', () => {
    mkdirSync(at('/usr/local/bin'), { recursive: true });
    writeFileSync(at('/usr/local/bin/ss-redir'), "shadowsocks-libev's\n");
    const there = snapshot(root);
    const { status, stderr } = run(['install']);
    assert.deepEqual(
      [status, stderr],
      [1, 'ss-setup: /usr/local/bin/ss-redir is there and not of ss-setup: move it away\n'],
    );
    assert.deepEqual(snapshot(root), there);
  });

  test('directories that were there stay, with their files', () => {
    mkdirSync(at('/usr/local/share/man/man1'), { recursive: true });
    mkdirSync(at('/usr/local/lib/systemd/system'), { recursive: true });
    writeFileSync(at('/usr/local/share/man/man1/other.1'), '');
    const there = snapshot(root, content);
    mustRun(['install']);
    mustRun(['remove']);
    assert.deepEqual(snapshot(root, content), there);
    assert.equal(mustRun(['remove']).stdout, 'nothing is installed below /usr/local\n');
  });

  test(
    'a prefix with files of a package is refused, and the package named',
    { skip: findCommand('dpkg-query') ? false : 'needs dpkg' },
    () => {
      const words = [setupScript, 'install', '--prefix', '/usr', '--dry-run', '--node', process.execPath];
      const { status, stderr } = spawnSync(process.execPath, words, { encoding: 'utf8' });
      assert.equal(status, 1);
      assert.match(
        stderr,
        /^ss-setup: prefix \/usr: \/usr\/bin\/\S+ belongs to the package \S+: take another prefix/,
      );
    },
  );
});

describe('an upgrade', () => {
  test('replaces, adds, and takes away what the new version has no more', () => {
    mustRun(['install']);
    const folder = join(scratch, 'newer');
    cpSync(join(newer, '../../../..'), folder, { recursive: true });
    const script = scriptOf(folder);
    rmSync(join(folder, 'dist/src/demo'), { recursive: true });
    writeFileSync(join(folder, 'nft/another.nft'), '# another\n');
    mustRun(['install'], { script });
    const fresh = join(scratch, 'fresh');
    mustRun(['install'], { script, below: fresh });
    assert.deepEqual(snapshot(root, content), snapshot(fresh, content));
    rmSync(fresh, { recursive: true });
    mustRun(['remove']);
    assert.deepEqual(readdirSync(root), []);
  });
});

const isRoot = process.getuid?.() === 0;

describe('after a failure everything is as it was', { skip: isRoot ? false : 'needs root to mount' }, () => {
  test('a disk that is full in the middle of it', () => {
    const { status, stderr, left } = onMount('size=3m', 'true', ['install']);
    assert.equal(status, 1, stderr);
    assert.match(stderr, /^ss-setup: write[^\n]* ENOSPC: no space is left; nothing was changed\n$/);
    assert.equal(left, '');
  });

  test('a disk that is full in the middle of an upgrade', () => {
    const install = `${process.execPath} ${setupScript} install --destdir ${root} >/dev/null`;
    const { status, stderr, left } = onMount(
      'size=16m',
      `${install}; head -c 99m /dev/zero >${root}/fill 2>/dev/null; truncate -s -8k ${root}/fill`,
      ['install'],
      newest,
    );
    assert.equal(status, 1, stderr);
    assert.match(stderr, /ENOSPC: no space is left; nothing was changed\n$/);
    assert.equal(left, '');
  });

  test('a read-only file system', () => {
    const { status, stderr, left } = onMount('size=99m', `mount -o remount,ro ${root}`, ['install']);
    assert.equal(status, 1, stderr);
    assert.match(
      stderr,
      /^ss-setup: mkdir [^\n]* EROFS: the file system is read-only; nothing was changed\n$/,
    );
    assert.equal(left, '');
  });

  test('a file in the place of a directory', () => {
    const { status, stderr, left } = onMount(
      'size=99m',
      `mkdir -p ${root}/usr/local; touch ${root}/usr/local/share`,
      ['install'],
    );
    assert.equal(status, 1, stderr);
    assert.match(stderr, /^ss-setup: mkdir [^\n]*\/usr\/local\/share[^\n]*; nothing was changed\n$/);
    assert.equal(left, '');
  });
});

const noStrace = findCommand('strace') === undefined ? 'needs strace' : false;

describe('in the middle of the exchange', { skip: noStrace }, () => {
  test('a rename that fails is undone, the others with it', () => {
    mustRun(['install']);
    const there = snapshot(root, content);
    for (const when of [2, 150]) {
      const { status, stderr } = run(['install'], {
        script: newest,
        under: inject(`error=EIO:when=${when}`),
      });
      assert.equal(status, 1);
      assert.match(stderr, /^ss-setup: rename [^\n]* EIO; nothing was changed\n$/);
      assert.deepEqual(snapshot(root, content), there);
    }
  });

  test('kill -9 leaves what the next run completes, and remove takes away', () => {
    const fresh = join(scratch, 'fresh');
    mustRun(['install'], { script: newest, below: fresh });
    for (const when of [1, 60, 150]) {
      mustRun(['install']);
      run(['install'], { script: newest, under: inject(`signal=KILL:when=${when}`) });
      mustRun(['install'], { script: newest });
      assert.deepEqual(snapshot(root, content), snapshot(fresh, content), `killed at the rename ${when}`);
      mustRun(['remove']);
      assert.deepEqual(readdirSync(root), []);
      run(['install'], { under: inject(`signal=KILL:when=${when}`) });
      mustRun(['remove']);
      assert.deepEqual(readdirSync(root), when === 1 ? ['usr'] : [], 'before it is noted there are folders');
      rmSync(root, { recursive: true });
    }
    rmSync(fresh, { recursive: true });
  });
});

/** ss-setup of a version with a changed unit; if asked, with every file of its own changed. */
function makeSource(everything: boolean): string {
  const folder = mkdtempSync(join(scratch, 'source-'));
  mustRun(['install'], { below: folder });
  const source = join(folder, library);
  rmSync(join(source, 'installed.json'));
  appendFileSync(join(source, 'systemd/ss-redir@.service'), '# newer\n');
  for (const name of readdirSync(join(source, 'dist/src'), { recursive: true, encoding: 'utf8' }))
    if (everything && name.endsWith('.js')) appendFileSync(join(source, 'dist/src', name), '// newer\n');
  return scriptOf(source);
}

function scriptOf(source: string): string {
  return join(source, 'dist/src/bin/ss-setup.js');
}

/** In a mount namespace of its own, with `root` on a file system of this kind. */
function onMount(
  options: string,
  prepare: string,
  words: readonly string[],
  script = setupScript,
): Result & { left: string } {
  const code = [
    `mount -t tmpfs -o ${options} tmpfs ${root}`,
    prepare,
    `find ${root} -printf '%P %y %s %m\\n' | sort >${scratch}/before`,
    `${process.execPath} ${script} ${words.join(' ')} --destdir ${root}`,
    'status=$?',
    `find ${root} -printf '%P %y %s %m\\n' | sort | diff ${scratch}/before - >&3`,
    'exit $status',
  ].join('\n');
  const { status, stdout, stderr, output } = spawnSync('unshare', ['-m', 'sh', '-c', code], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
  });
  return { status, stdout, stderr, left: output[3]! };
}

function inject(what: string): string[] {
  return `strace -qq -o /dev/null -f -e trace=rename -e inject=rename:${what}`.split(' ');
}
