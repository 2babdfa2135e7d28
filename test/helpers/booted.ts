// Scenarios under a real systemd: a test boots one (test/testbed/systemd-boot) and runs a program there, which prints a line
// `RESULT {"name":…}` for each of its scenarios.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { dirname } from 'node:path';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { findCommand } from './packages.js';

export const repository = fileURLToPath(new URL('../../../', import.meta.url)).replace(/\/$/, '');
const bootSeconds = 180;

export type Scenarios = Readonly<Record<string, () => Promise<void>>>;

interface Result {
  name: string;
  ms: number;
  error?: string;
}

export function whyNotBooted(): string | false {
  if (process.getuid?.() !== 0) return 'needs root to boot a systemd';
  for (const [command, what] of [
    ['systemd-nspawn', 'systemd-container'],
    ['dbus-daemon', 'dbus'],
  ] as const) {
    if (findCommand(command) === undefined) return `needs ${what}`;
  }
  return false;
}

/** Within a `describe`: a test for each scenario, all of which `program` runs when it is called with "run". */
export function testBooted(program: string, scenarios: Scenarios): void {
  const results = new Map<string, Result>();
  before(() => {
    // The machine that boots has the same root, but a /tmp of its own.
    const outside = [repository, dirname(process.execPath)].filter((path) => !path.startsWith('/usr/'));
    const binds = outside.flatMap((path) => ['--bind', `${path}:${path}`]);
    const { stdout, stderr } = spawnSync(
      `${repository}/test/testbed/systemd-boot`,
      [...binds, '--', process.execPath, program, 'run'],
      { encoding: 'utf8', env: { ...process.env, BOOT_TIMEOUT: String(bootSeconds) } },
    );
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
}

/** One after the other, whatever becomes of them. */
export async function runScenarios(scenarios: Scenarios): Promise<never> {
  for (const [name, run] of Object.entries(scenarios)) {
    const startMs = performance.now();
    let error: string | undefined;
    try {
      await run();
    } catch (thrown) {
      const words = ['-n', '25', '--no-pager', '-o', 'cat', '-u', 'ss-*', '-u', 'shadowsocks*'];
      const journal = spawnSync('journalctl', words, { encoding: 'utf8' }).stdout; // fails without any such unit
      error = `${(thrown as Error).stack}\n${journal}`;
    }
    const ms = Math.round(performance.now() - startMs);
    console.log(`RESULT ${JSON.stringify({ name, ms, error })}`);
  }
  process.exit(0);
}
