// Where ss-redir listens, and what does not arrive there.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../src/cli/load-config.js';

const good = ['-s', '192.0.2.1', '-p', '8388', '-l', '1080', '-m', 'aes-256-gcm', '-k', 'x'];

/** The rules whose traffic the warnings say does not arrive. */
function warned(...args: string[]): string[] {
  const { warnings } = loadConfig('ss-redir', [...good, ...args], {});
  return warnings.flatMap((line) => /^listening on .* only: .*(REDIRECT|TPROXY)/.exec(line)?.[1] ?? []);
}

for (const [args, expected] of [
  ['-b 127.0.0.1', ['REDIRECT']],
  ['-b 127.0.0.1 -T', []],
  ['-b 127.0.0.1 -u', ['REDIRECT']],
  ['-b 127.0.0.1 -U', []],
  ['-b 127.0.0.1 -T -u', []],
  ['-b 192.0.2.9', []],
  ['-b 192.0.2.9 -T', ['TPROXY']],
  ['-b 192.0.2.9 -u', ['TPROXY']],
  ['-b 192.0.2.9 -U', ['TPROXY']],
  ['-b 192.0.2.9 -T -u', ['TPROXY']],
  ['-b :: -u', []],
  ['-b 0.0.0.0 -u', []],
] as const) {
  test(`${args}: warned of ${expected.join() || 'nothing'}`, () => {
    assert.deepEqual(warned(...args.split(' ')), expected);
  });
}
