// Our programs where a user without rights can read them: where they are, or else a copy. A clone below /root is closed to
// everybody but root.
import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const repository = fileURLToPath(new URL('../../../', import.meta.url));
const developmentOnly = new Set([
  'typescript',
  '@typescript',
  'prettier',
  'oxlint',
  '@oxlint',
  '@types',
  '.bin',
]);

export interface ReadableProgram {
  /** The script of a command: `ss-redir`. */
  script(command: string): string;
  remove(): void;
}

const scriptIn = (directory: string) => (command: string) => join(directory, `${command}.js`);

export function readableProgram(uid: number): ReadableProgram {
  const own = join(repository, 'dist/src/bin');
  if (mayRead(uid, join(own, 'ss-redir.js'))) return { script: scriptIn(own), remove: () => {} };
  const copy = mkdtempSync(join(tmpdir(), 'ss-redir-test-'));
  chmodSync(copy, 0o755);
  copyProgram(copy);
  return {
    script: scriptIn(join(copy, 'dist/src/bin')),
    remove: () => rmSync(copy, { recursive: true, force: true }),
  };
}

/** What a package would install: the built program and the packages that it runs with. */
export function copyProgram(directory: string): void {
  cpSync(join(repository, 'package.json'), join(directory, 'package.json'));
  cpSync(join(repository, 'dist/src'), join(directory, 'dist/src'), { recursive: true });
  cpSync(join(repository, 'node_modules'), join(directory, 'node_modules'), {
    recursive: true,
    filter: (path) => !developmentOnly.has(basename(path)),
  });
}

function mayRead(uid: number, file: string): boolean {
  const options = ['--reuid', String(uid), '--clear-groups', 'test', '-r', file];
  return spawnSync('setpriv', options).status === 0;
}
