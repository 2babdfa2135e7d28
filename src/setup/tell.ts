/** What is going to be done, for people. */
import type { Changes } from './changes.js';
import type { Layout } from './layout.js';

export interface Listener {
  readonly destdir: string;
  readonly dryRun: boolean;
  say(line: string): void;
  warn(line: string): void;
}

/** The program's own files are many: one line for all of them. */
export function tell(changes: Changes, { library }: Layout, { destdir, dryRun, say, warn }: Listener): void {
  const { writes, removals, kept } = changes;
  const would = dryRun ? 'would ' : '';
  const isInside = (path: string): boolean => path.startsWith(`${library}/`);
  const written = writes.filter(({ path }) => isInside(path)).length;
  const removed = removals.filter(isInside).length;
  if (written > 0) say(`${would}write ${written} files below ${destdir}${library}`);
  if (removed > 0) say(`${would}remove ${removed} files below ${destdir}${library}`);
  for (const { path, isNew } of writes)
    if (!isInside(path)) say(`${would}${isNew ? 'write' : 'replace'} ${destdir}${path}`);
  for (const path of removals) if (!isInside(path)) say(`${would}remove ${destdir}${path}`);
  for (const { path, newVersion } of kept) {
    const beside =
      newVersion === undefined ? 'it is not ours any more' : `the new version is ${destdir}${newVersion}`;
    warn(`${destdir}${path} was edited and stays: ${beside}`);
  }
}
