import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const program = fileURLToPath(new URL('../../src/bin/ss-redir.js', import.meta.url));

test('--help into a pipe that nobody reads any more is no error', () => {
  const script = `(sleep 0.2; "$0" "$1" --help; echo "status $?" >&2) | true`;
  const { stderr } = spawnSync('sh', ['-c', script, process.execPath, program], { encoding: 'utf8' });
  assert.equal(stderr, 'status 0\n');
});
