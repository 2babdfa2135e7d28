/**
 * PREFIX/lib/ss-redir/installed.json: what ss-setup has put where. A file is still its own when it is one of those noted; with
 * another content somebody has edited it.
 */
import { createHash } from 'node:crypto';
import { lstatSync, readFileSync, readlinkSync } from 'node:fs';
import { SetupError } from './error.js';

export interface Manifest {
  /** By path, without destdir. While an installation is under way, there are two of a file. */
  readonly files: ReadonlyMap<string, readonly string[]>;
  /** Those that were made for them, parents first. */
  readonly directories: readonly string[];
}

export const emptyManifest: Manifest = { files: new Map(), directories: [] };

/** @throws {SetupError} */
export function readManifest(path: string): Manifest {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return emptyManifest;
    throw new SetupError(`${path}: ${(error as NodeJS.ErrnoException).code}`);
  }
  try {
    const { files, directories } = JSON.parse(text) as {
      files: Record<string, string[]>;
      directories: string[];
    };
    return { files: new Map(Object.entries(files)), directories };
  } catch {
    throw new SetupError(`${path}: is damaged, so what was installed is not known: remove it by hand`);
  }
}

/** Sorted, so that the same installation has the same manifest; a directory then comes before what is in it. */
export function formatManifest({ files, directories }: Manifest): string {
  const sorted = {
    files: Object.fromEntries([...files].toSorted(([a], [b]) => (a < b ? -1 : 1))),
    directories: directories.toSorted(),
  };
  return `${JSON.stringify(sorted, undefined, 1)}\n`;
}

/** Of what is to be written. */
export function digestOf(content: Buffer | { readonly linkTo: string }): string {
  if (!Buffer.isBuffer(content)) return `link:${content.linkTo}`;
  return `sha256:${createHash('sha256').update(content).digest('hex')}`;
}

/** Of what is there; undefined where nothing is. */
export function digestAt(path: string): string | undefined {
  try {
    const status = lstatSync(path);
    if (status.isSymbolicLink()) return digestOf({ linkTo: readlinkSync(path) });
    return status.isFile() ? digestOf(readFileSync(path)) : 'something else';
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw new SetupError(`${path}: ${code}`);
  }
}
