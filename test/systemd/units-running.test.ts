// The units under a real systemd: it is booted once, and each scenario of boot.ts that it ran there is a test here.
import assert from 'node:assert/strict';
import { execa } from 'execa';
import { before, describe, test } from 'node:test';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findCommand } from '../helpers/packages.js';
import { scenarios } from './boot.js';

const repository = fileURLToPath(new URL('../../../', import.meta.url)).replace(/\/$/, '');
const boot = `${repository}/test/testbed/systemd-boot`;
const program = fileURLToPath(new URL('boot.js', import.meta.url));
const bootSeconds = 180;

interface Result {
  name: string;
  ms: number;
  error?: string;
}

function whySkipped(): string | false {
  if (process.getuid?.() !== 0) return 'needs root to boot a systemd';
  for (const [command, what] of [
    ['systemd-nspawn', 'systemd-container'],
    ['dbus-daemon', 'dbus'],
    ['ss-redir', 'shadowsocks-libev'],
  ] as const) {
    if (findCommand(command) === undefined) return `needs ${what}`;
  }
  return false;
}

describe('under a real systemd', { skip: whySkipped() }, () => {
  const results = new Map<string, Result>();
  before(async () => {
    // The machine that boots has the same root, but a /tmp of its own.
    const outside = [repository, dirname(process.execPath)].filter((path) => !path.startsWith('/usr/'));
    const binds = outside.flatMap((path) => ['--bind', `${path}:${path}`]);
    const words = [...binds, '--', process.execPath, program, 'run'];
    const { stdout, stderr } = await execa(boot, words, {
      reject: false,
      env: { BOOT_TIMEOUT: String(bootSeconds) },
    });
    for (const line of stdout.split('\n')) {
      if (!line.startsWith('RESULT ')) continue;
      const result = JSON.parse(line.slice('RESULT '.length)) as Result;
      results.set(result.name, result);
    }
    assert.ok(results.size > 0, `${stdout}\n${stderr}`);
  });

  for (const name of Object.keys(scenarios)) {
    test(name, () => {
      const result = results.get(name);
      assert.ok(result !== undefined, 'was not run');
      assert.equal(result.error, undefined);
    });
  }
});
