// The unit files as they are: systemd finds nothing wrong, the sandbox is as tight as it says, and what a unit calls exists.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseCommandLine } from '../../src/cli/parse.js';
import type { Command } from '../../src/config/config.js';
import { findCommand } from '../helpers/packages.js';

const repository = fileURLToPath(new URL('../../../', import.meta.url));
const directory = join(repository, 'systemd');
const files = readdirSync(directory).filter((name) => /\.(service|socket)$/.test(name));
const services = files.filter((name) => name.endsWith('.service'));
const mostExposed = 2.0;

const contents = (name: string): string => readFileSync(join(directory, name), 'utf8');
const instance = (name: string): string => name.replace('@.', '@home.');

function verify(scratch: string) {
  return spawnSync(
    'systemd-analyze',
    ['verify', '--man=no', ...files.map((name) => join(scratch, instance(name)))],
    {
      encoding: 'utf8',
      env: { ...process.env, SYSTEMD_UNIT_PATH: `${scratch}:` },
    },
  );
}

describe('unit files', { skip: findCommand('systemd-analyze') ? false : 'needs systemd-analyze' }, () => {
  let scratch: string;
  before(() => {
    scratch = mkdtempSync(join(tmpdir(), 'ss-redir-test-'));
    mkdirSync(join(scratch, 'bin'));
    for (const command of ['ss-redir', 'ss-server', 'ss-nft']) {
      writeFileSync(join(scratch, 'bin', command), '#!/bin/sh\n');
      chmodSync(join(scratch, 'bin', command), 0o755);
    }
    // An instance of each, calling programs that are there.
    for (const name of files) {
      const text = contents(name).replaceAll('/usr/local/bin/', `${scratch}/bin/`);
      for (const copy of [name, instance(name)]) writeFileSync(join(scratch, copy), text);
    }
    mkdirSync(join(scratch, 'ss-redir@home.service.d'));
    writeFileSync(
      join(scratch, 'ss-redir@home.service.d/rules.conf'),
      readFileSync(join(directory, 'examples/rules.conf'), 'utf8'),
    );
  });
  after(() => rmSync(scratch, { recursive: true, force: true }));

  test('systemd-analyze verify has nothing to say, with the rules and without', () => {
    for (const round of ['with', 'without']) {
      const { status, stdout, stderr } = verify(scratch);
      assert.deepEqual({ round, status, said: stdout + stderr }, { round, status: 0, said: '' });
      rmSync(join(scratch, 'ss-redir@home.service.d'), { recursive: true, force: true });
    }
  });

  for (const name of services) {
    test(`${name}: exposure at most ${mostExposed}, with the reason for whatever is left open`, (t) => {
      const run = (...words: string[]) =>
        spawnSync(
          'systemd-analyze',
          ['security', '--offline=true', '--no-pager', ...words, join(scratch, name)],
          {
            encoding: 'utf8',
          },
        );
      const overall = /Overall exposure level for .*: ([\d.]+) /.exec(run().stdout)?.[1];
      t.diagnostic(`${name}: exposure ${overall}`);
      assert.ok(Number(overall) <= mostExposed, overall);

      const checks = JSON.parse(run('--json=short').stdout) as {
        set: boolean | null;
        name: string;
        exposure: string | null;
      }[];
      const comments = contents(name)
        .split('\n')
        .filter((line) => line.startsWith('#'))
        .join('\n');
      const open = checks.filter(({ set, exposure }) => set === false && exposure !== null);
      assert.ok(open.length > 0);
      for (const check of open) {
        const words = wordsFor(check.name);
        assert.ok(
          words.some((word) => comments.includes(word)) || isGiven(name, check.name),
          `${check.name} is left open without a reason`,
        );
      }
    });

    test(`${name}: no start limit, and it is restarted whatever ended it`, () => {
      const text = contents(name);
      assert.match(text, /^StartLimitIntervalSec=0$/m);
      assert.match(text, /^Restart=always$/m);
      assert.doesNotMatch(text, /^(PartOf|StopPropagatedFrom|DynamicUser)=/m);
    });
  }

  test('what the services call is a command of ours with options that it has', () => {
    for (const name of ['ss-redir@.service', 'ss-server@.service']) {
      const [, command, words] = /^ExecStart=\/usr\/local\/bin\/(\S+) (.*)$/m.exec(contents(name))!;
      assert.ok(existsSync(join(repository, `dist/src/bin/${command}.js`)), command);
      const line = parseCommandLine(command as Command, words!.replaceAll('%i', 'home').split(' '));
      assert.equal(line.instance, 'home'); // whose file may be the one of Debian's unit
    }
  });

  test('the holder lives as long as somebody needs it, and a crash or restart of ss-redir is none of its business', () => {
    const rules = contents('ss-redir-rules@.service');
    assert.match(rules, /^StopWhenUnneeded=yes$/m);
    assert.match(rules, /^ExecStart=\/usr\/local\/bin\/ss-nft hold %i/m);
    const dropIn = readFileSync(join(directory, 'examples/rules.conf'), 'utf8');
    for (const relation of ['Requires', 'After', 'Upholds'])
      assert.ok(dropIn.split('\n').includes(`${relation}=ss-redir-rules@%i.service`), relation);
  });

  for (const [file, command] of [
    ['redirect.conf', 'ss-redir'],
    ['redirect.json', 'ss-redir'],
    ['tproxy.conf', 'ss-redir'],
    ['tproxy.json', 'ss-redir'],
    ['server.conf', 'ss-server'],
    ['server.json', 'ss-server'],
  ] as const) {
    for (const round of ['as it is', 'with what stands in it as a comment']) {
      test(`examples/${file}, ${round}, is a valid configuration without a warning`, () => {
        const text = readFileSync(join(directory, 'examples', file), 'utf8');
        // As it is installed: for the owner alone, since it will hold a password.
        const installed = join(scratch, file);
        writeFileSync(installed, round === 'as it is' ? text : text.replaceAll(/^#(?=\S)/gm, ''));
        chmodSync(installed, 0o600);
        const words = [join(repository, `dist/src/bin/${command}.js`), '--check', '-c', installed];
        const { status, stderr } = spawnSync(process.execPath, words, { encoding: 'utf8' });
        assert.equal(status, 0, stderr);
        assert.doesNotMatch(stderr, /WARN|ERROR/);
      });
    }
  }
});

/** `RestrictAddressFamilies=~AF_(INET|INET6)` -> AF_INET; `RootDirectory=/RootImage=` -> RootDirectory. */
function wordsFor(check: string): string[] {
  const family = /~AF_\(?(\w+)/.exec(check);
  if (family !== null) return [`AF_${family[1]}`];
  return [check.slice(0, check.indexOf('='))];
}

/** A capability, whose reason stands above the line that gives it. */
function isGiven(name: string, check: string): boolean {
  if (!/^(CapabilityBoundingSet|AmbientCapabilities)=/.test(check)) return false;
  return /^# .*\nCapabilityBoundingSet=\S+\nAmbientCapabilities=\S+$/m.test(contents(name));
}
