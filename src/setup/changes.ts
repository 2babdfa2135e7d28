/** What has to be done to get from what is there to what is wanted. Nobody's work is overwritten or taken away. */
import { join } from 'node:path';
import type { Wanted } from './contents.js';
import { SetupError } from './error.js';
import { digestAt, digestOf, type Manifest } from './manifest.js';

export interface Changes {
  readonly writes: readonly Write[];
  readonly removals: readonly string[];
  /** Edited, so left as they are: their new version, where there is one, is beside them. */
  readonly kept: readonly { readonly path: string; readonly newVersion?: string }[];
  /** As it is afterwards. */
  readonly files: ReadonlyMap<string, readonly string[]>;
}

export interface Write extends Wanted {
  readonly isNew: boolean;
}

export interface Aim {
  readonly destdir: string;
  readonly wanted: readonly Wanted[];
  readonly manifest: Manifest;
  /** To remove what was edited, too. */
  readonly purge?: boolean;
}

/** @throws {SetupError} where something else is in the place of the program. */
export function planChanges({ destdir, wanted, manifest, purge = false }: Aim): Changes {
  const writes: Write[] = [];
  const kept: { path: string; newVersion?: string }[] = [];
  const files = new Map<string, readonly string[]>();
  const obstacles: string[] = [];

  for (const item of wanted) {
    const digest = digestOf(item.content);
    const there = digestAt(join(destdir, item.path));
    const ours = manifest.files.get(item.path);
    if (there === undefined || there === digest || ours?.includes(there)) {
      files.set(item.path, [digest]);
      if (there !== digest) writes.push({ ...item, isNew: there === undefined });
      continue;
    }
    if (item.isProgram) {
      obstacles.push(
        ours === undefined ? `${item.path} is there and not of ss-setup` : `${item.path} was edited`,
      );
      continue;
    }
    if (ours !== undefined) files.set(item.path, ours);
    const newVersion = `${item.path}.new`;
    kept.push({ path: item.path, newVersion });
    files.set(newVersion, [digest]);
    const beside = digestAt(join(destdir, newVersion));
    if (beside !== digest) writes.push({ ...item, path: newVersion, isNew: beside === undefined });
  }
  if (obstacles.length > 0) throw new SetupError(obstacles.map((text) => `${text}: move it away`).join('\n'));

  const removals: string[] = [];
  for (const [path, ours] of manifest.files) {
    if (files.has(path)) continue;
    const there = digestAt(join(destdir, path));
    if (there === undefined) continue;
    if (ours.includes(there) || (purge && there !== 'something else')) {
      removals.push(path);
      continue;
    }
    kept.push({ path });
    files.set(path, ours);
  }
  return { writes, removals, kept, files };
}
