import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { declareOptional, openLibrary } from '../../src/linux/ffi.js';

const ffi = new URL('../../src/linux/ffi.js', import.meta.url);

function run(script: string): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
}

test('without koffi the program says so in one line and exits 1', () => {
  const folder = mkdtempSync(join(tmpdir(), 'ss-redir-ffi-'));
  try {
    cpSync(fileURLToPath(new URL('../../src/linux', import.meta.url)), join(folder, 'linux'), {
      recursive: true,
    });
    cpSync(fileURLToPath(new URL('../../src/errors.js', import.meta.url)), join(folder, 'errors.js'));
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    const broken = join(folder, 'node_modules', 'koffi');
    for (const state of ['missing', 'broken']) {
      if (state === 'broken') {
        mkdirSync(broken, { recursive: true });
        writeFileSync(join(broken, 'index.js'), 'throw new Error("no binary for this system\\nand more");');
      }
      const { status, stdout, stderr } = run(
        `await import(${JSON.stringify(join(folder, 'linux', 'socket.js'))});`,
      );
      assert.deepEqual([status, stdout], [1, '']);
      assert.match(
        stderr,
        /^koffi, which makes our system calls, cannot be loaded \(reinstall with npm ci\): .+\n$/,
      );
      assert.equal(stderr.split('\n').length, 2, stderr);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('a symbol that the C library lacks is named in one line, and the exit status is 1', () => {
  const { status, stdout, stderr } = run(
    `const { declare } = await import(${JSON.stringify(ffi.href)}); declare('int no_such_call(int fd)'); console.log('alive');`,
  );
  assert.deepEqual([status, stdout], [1, '']);
  assert.match(stderr, /^the C library lacks "int no_such_call\(int fd\)": .+\n$/);
  assert.equal(stderr.split('\n').length, 2, stderr);
});

test('what may be missing is undefined then', () => {
  assert.equal(declareOptional('int no_such_call(int fd)'), undefined);
  assert.equal(openLibrary('libnosuch.so.99'), undefined);
  assert.equal(declareOptional<() => number>('int getpid()')!(), process.pid);
});
