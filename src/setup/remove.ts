/** Takes away what `install` has put in place. What an administrator has written stays, unless he says purge. */
import { existsSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { runTool } from '../nft/tools.js';
import { planChanges } from './changes.js';
import { SetupError } from './error.js';
import {
  dropInFolders,
  enabledUnits,
  filesOfGroup,
  findPackaged,
  hasSystemd,
  isHolder,
  isOurUser,
  loadedTables,
  removeUser,
  runningUnits,
} from './host.js';
import { configFolder, layoutOf, runFolder, user } from './layout.js';
import { readManifest } from './manifest.js';
import { tell } from './tell.js';
import { carryOut } from './transaction.js';

export interface Removal {
  readonly prefix: string;
  readonly destdir: string;
  readonly purge: boolean;
  readonly dryRun: boolean;
  say(line: string): void;
  warn(line: string): void;
}

/** @throws {SetupError | ToolError} */
export async function remove(removal: Removal): Promise<void> {
  const { prefix, destdir, purge, dryRun, say } = removal;
  const layout = layoutOf(prefix);
  const isHere = destdir === '';
  const manifest = readManifest(join(destdir, layout.manifest));
  if (isHere) {
    const packaged = await findPackaged(layout, [...manifest.files.keys()]);
    if (packaged !== undefined) throw new SetupError(`prefix ${prefix}: ${packaged}: that one removes it`);
    await checkUnused();
  }
  const changes = planChanges({ destdir, wanted: [], manifest, purge });
  const configuration = purge ? configurationOf(destdir, new Set(changes.removals)) : [];
  const would = dryRun ? 'would ' : '';
  if (manifest.files.size === 0 && configuration.length === 0) say(`nothing is installed below ${prefix}`);
  tell(changes, layout, removal);
  for (const path of configuration) say(`${would}remove ${destdir}${path}`);
  if (dryRun) return;

  const reload = async (): Promise<void> => {
    if (isHere && hasSystemd()) await runTool('systemctl', ['daemon-reload']);
  };
  await carryOut({
    destdir,
    changes,
    before: manifest,
    manifestPath: layout.manifest,
    settle: reload,
    unsettle: reload,
  });
  for (const path of configuration) rmSync(join(destdir, path), { recursive: true, force: true });
  for (const path of [configFolder, runFolder]) removeIfEmpty(join(destdir, path));
  if (configuration.length > 0) await reload();
  if (isHere) await removeUserIfUnused(removal);
}

/** What runs would go on without its program, and what is enabled would fail at the next boot. */
async function checkUnused(): Promise<void> {
  let units = await usedUnits();
  // systemd stops a holder only a moment after the service that needed it.
  for (let round = 0; round < holderRounds && units.length > 0 && units.every(isHolder); round++) {
    await delay(holderRoundMs);
    units = await usedUnits();
  }
  if (units.length > 0)
    throw new SetupError(`still in use: systemctl disable --now ${units.join(' ')}, and then again`);
  const tables = await loadedTables();
  if (tables.length === 0) return;
  throw new SetupError(
    `rules are loaded (${tables.join(', ')}): ss-nft down --all --kill-switch, and then again`,
  );
}

const holderRoundMs = 250;
const holderRounds = 20; // 5 s

/** A holder counts only where nothing that needs it is among them: with that it stops by itself. */
async function usedUnits(): Promise<string[]> {
  const units = [...new Set([...(await runningUnits()), ...enabledUnits('')])];
  return units.filter((unit) => !isHolder(unit) || !units.includes(unit.replace('-rules@', '@')));
}

/** Not the folders in which there is nothing but what is removed anyhow. */
function configurationOf(destdir: string, removals: ReadonlySet<string>): string[] {
  const dropIns = dropInFolders(destdir).filter((folder) =>
    readdirSync(join(destdir, folder)).some((name) => !removals.has(join(folder, name))),
  );
  return existsSync(join(destdir, configFolder)) ? [configFolder, ...dropIns] : dropIns;
}

function removeIfEmpty(path: string): void {
  try {
    rmdirSync(path);
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (!['ENOENT', 'ENOTEMPTY', 'EEXIST'].includes(code)) throw error;
  }
}

/** Its number may not be given to another one as long as it means something here. */
async function removeUserIfUnused({ warn }: Removal): Promise<void> {
  if (!(await isOurUser())) return;
  const [file] = await filesOfGroup();
  if (file === undefined) await removeUser();
  else warn(`the user ${user} stays: ${file} is of its group`);
}
