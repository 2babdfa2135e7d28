/**
 * Changes to the file system that happen as a whole or not at all:
 *
 *     1. note      what is there and what will be, so that a run after a crash knows both for its own
 *     2. stage     every new file beside its place, as .NAME.ss-setup: a full disk is noticed here
 *     3. exchange  rename(2) for each, keeping what was there as .NAME.ss-setup-old
 *     4. settle    the caller's part (users, daemon-reload), which may fail
 *     5. tidy up   the old ones and the directories that have become empty
 *
 * A failure in 1 to 4 undoes everything before it.
 */
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Changes } from './changes.js';
import { explain } from './error.js';
import { formatManifest, type Manifest } from './manifest.js';

export interface Transaction {
  readonly destdir: string;
  readonly changes: Changes;
  readonly before: Manifest;
  readonly manifestPath: string;
  /** What else belongs to it, and may fail. */
  settle(): Promise<void>;
  /** After an undoing: the host looks again at what is there. */
  unsettle(): Promise<void>;
}

/** @throws {SetupError | ToolError} */
export async function carryOut(transaction: Transaction): Promise<void> {
  const { destdir, changes, before, manifestPath } = transaction;
  const undo: (() => void)[] = [];
  let isExchanged = false;
  try {
    const paths = changes.writes.map(({ path }) => path);
    if (changes.files.size > 0) paths.unshift(manifestPath);
    const missing = missingFolders(destdir, paths);
    const directories = [...new Set([...before.directories, ...missing])];
    const isOfManifest = (folder: string): boolean => folder === '/' || manifestPath.startsWith(`${folder}/`);
    makeFolders(destdir, missing.filter(isOfManifest), undo);
    note(transaction, directories, undo);
    makeFolders(
      destdir,
      missing.filter((folder) => !isOfManifest(folder)),
      undo,
    );
    stage(transaction, undo);
    isExchanged = true;
    exchange(transaction, undo);
    await transaction.settle();
    tidyUp(transaction, directories);
  } catch (error) {
    for (const step of undo.toReversed()) attempt(step);
    if (isExchanged) await transaction.unsettle().catch(() => {}); // the first reason is the one to tell
    throw explain(error, '; nothing was changed');
  }
}

/** Parents first; `/` is the destdir itself. */
function missingFolders(destdir: string, paths: readonly string[]): string[] {
  const missing = new Set<string>();
  for (const path of paths) {
    for (let folder = dirname(path); !existsSync(join(destdir, folder)); folder = dirname(folder)) {
      missing.add(folder);
      if (folder === '/') break;
    }
  }
  return [...missing].toSorted();
}

function makeFolders(destdir: string, folders: readonly string[], undo: (() => void)[]): void {
  for (const folder of folders) {
    const path = join(destdir, folder);
    mkdirSync(path, { recursive: folder === '/' });
    undo.push(() => rmdirSync(path));
    chmodSync(path, 0o755); // whatever the umask is
  }
}

function note(
  { destdir, changes, before, manifestPath }: Transaction,
  directories: readonly string[],
  undo: (() => void)[],
): void {
  const both = new Map(before.files);
  for (const [path, digests] of changes.files)
    both.set(path, [...new Set([...(both.get(path) ?? []), ...digests])]);
  if (both.size === 0) return;
  const path = join(destdir, manifestPath);
  const old = existsSync(path) ? readFileSync(path) : undefined;
  undo.push(() => (old === undefined ? rmSync(path, { force: true }) : replace(path, old)));
  replace(path, formatManifest({ files: both, directories }));
}

function stage({ destdir, changes }: Transaction, undo: (() => void)[]): void {
  for (const { path, content, mode } of changes.writes) {
    const staged = stagedName(join(destdir, path));
    rmSync(staged, { force: true }); // of a run that was killed
    undo.push(() => rmSync(staged, { force: true }));
    if (Buffer.isBuffer(content)) {
      writeFileSync(staged, content, { flag: 'wx' });
      chmodSync(staged, mode);
    } else symlinkSync(content.linkTo, staged);
  }
}

function exchange({ destdir, changes }: Transaction, undo: (() => void)[]): void {
  for (const { path, isNew } of changes.writes) {
    const target = join(destdir, path);
    if (!isNew) {
      rmSync(oldName(target), { force: true });
      linkSync(target, oldName(target)); // so that there is no moment without it
      undo.push(() => rmSync(oldName(target), { force: true }));
    }
    renameSync(stagedName(target), target);
    undo.push(() => (isNew ? rmSync(target) : renameSync(oldName(target), target)));
  }
  for (const path of changes.removals) {
    const target = join(destdir, path);
    renameSync(target, oldName(target));
    undo.push(() => renameSync(oldName(target), target));
  }
}

function tidyUp(
  { destdir, changes, before, manifestPath }: Transaction,
  directories: readonly string[],
): void {
  const manifest = join(destdir, manifestPath);
  const { files } = changes;
  if (files.size > 0) replace(manifest, formatManifest({ files, directories }));
  else rmSync(manifest, { force: true });
  // From here on nothing can be undone, and nothing has to be.
  for (const path of new Set([manifestPath, ...before.files.keys(), ...files.keys()])) {
    const target = join(destdir, path);
    for (const name of [oldName(target), stagedName(target)]) attempt(() => rmSync(name, { force: true }));
  }
  for (const folder of directories.toSorted().toReversed()) {
    if (folder !== '/') attempt(() => rmdirSync(join(destdir, folder))); // if empty
  }
  const left = directories.filter((folder) => folder !== '/' && existsSync(join(destdir, folder)));
  if (files.size > 0) attempt(() => replace(manifest, formatManifest({ files, directories: left })));
}

function replace(path: string, content: string | Buffer): void {
  const staged = stagedName(path);
  try {
    writeFileSync(staged, content);
    chmodSync(staged, 0o644);
    renameSync(staged, path);
  } catch (error) {
    attempt(() => rmSync(staged, { force: true }));
    throw error;
  }
}

function stagedName(path: string): string {
  return join(dirname(path), `.${basename(path)}.ss-setup`);
}

function oldName(path: string): string {
  return `${stagedName(path)}-old`;
}

function attempt(step: () => void): void {
  try {
    step();
  } catch {
    // What could be done is done; the reason that is told is the first one.
  }
}
