/** Puts everything in its place, in this order: is it allowed here → what changes → files → user, folders, systemd → what now. */
import { existsSync, lstatSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { runTool } from '../nft/tools.js';
import { planChanges } from './changes.js';
import { listContents, type Shell } from './contents.js';
import { SetupError } from './error.js';
import { findPackaged, hasSystemd, isHolder, isOurUser, removeUser, runningUnits } from './host.js';
import { adminUnits, configFolder, dropInOf, layoutOf, runFolder, type Layout } from './layout.js';
import { digestAt, readManifest, type Manifest } from './manifest.js';
import { checkNode, checkVisible } from './node.js';
import { tell } from './tell.js';
import { carryOut } from './transaction.js';

export interface Installation {
  readonly source: string;
  readonly prefix: string;
  /** In front of every path; empty for this system itself. */
  readonly destdir: string;
  readonly node: string;
  /** Instances whose rules are to be held, beside those of earlier runs. */
  readonly instances: readonly string[];
  readonly dryRun: boolean;
  completion(program: string, shell: Shell): string;
  say(line: string): void;
  warn(line: string): void;
}

/** @throws {SetupError | ToolError} one or more lines; then nothing has changed. */
export async function install(installation: Installation): Promise<void> {
  const { prefix, destdir, node, dryRun, say, warn } = installation;
  const layout = layoutOf(prefix);
  checkVisible(prefix, 'prefix', 'take another one');
  const isHere = destdir === '';
  const manifest = readManifest(join(destdir, layout.manifest));
  const wanted = listContents({ ...installation, layout, instances: instancesOf(installation, manifest) });
  if (isHere) {
    const paths = wanted.map(({ path }) => path);
    const packaged = await findPackaged(layout, paths);
    if (packaged !== undefined)
      throw new SetupError(
        `prefix ${prefix}: ${packaged}: take another prefix, or let the package manager do it`,
      );
    await checkNode(node);
  }
  const changes = planChanges({ destdir, wanted, manifest });
  tell(changes, layout, installation);
  if (changes.writes.length + changes.removals.length === 0) say('everything is in its place already');
  const hasHost = isHere && hasSystemd();
  const running = hasHost ? await runningUnits() : [];
  if (dryRun) {
    if (hasHost) for (const words of hostCommands(layout)) say(`would run ${words.join(' ')}`);
    return;
  }
  const userWasThere = hasHost && (await isOurUser());
  const absent = [configFolder, runFolder].filter((path) => !existsSync(path));
  await carryOut({
    destdir,
    changes,
    before: manifest,
    manifestPath: layout.manifest,
    settle: async () => {
      if (!hasHost) return;
      for (const [command, ...words] of hostCommands(layout)) await runTool(command!, words);
      // systemd-tmpfiles says nothing of what is in the way.
      const obstacle = [configFolder, runFolder].find((path) => !lstatSync(path).isDirectory());
      if (obstacle !== undefined)
        throw new SetupError(`${obstacle} is in the place of a directory: move it away; nothing was changed`);
    },
    unsettle: async () => {
      if (!hasHost) return;
      for (const path of absent) if (existsSync(path)) rmdirSync(path);
      if (!userWasThere && (await isOurUser())) await removeUser();
      await runTool('systemctl', ['daemon-reload']);
    },
  });
  if (isHere && !hasHost)
    warn('no systemd runs here: the user ss-redir and the folders of sysusers.d and tmpfiles.d are not made');
  if (changes.writes.length + changes.removals.length > 0) tellRunning(running, say);
}

/** Those that are asked for, and those of earlier runs whose drop-in is still there. */
function instancesOf({ instances, destdir }: Installation, { files }: Manifest): string[] {
  const earlier = [...files.keys()].flatMap((path) => {
    const name = /\/ss-redir@(.+)\.service\.d\/rules\.conf$/.exec(path)?.[1];
    return path.startsWith(adminUnits) && name !== undefined ? [name] : [];
  });
  const kept = earlier.filter((name) => digestAt(join(destdir, dropInOf(name))) !== undefined);
  return [...new Set([...kept, ...instances])];
}

function hostCommands({ sysusers, tmpfiles }: Layout): string[][] {
  return [
    ['systemd-sysusers', join(sysusers, 'ss-redir.conf')],
    ['systemd-tmpfiles', '--create', join(tmpfiles, 'ss-redir.conf')],
    ['systemctl', 'daemon-reload'],
  ];
}

function tellRunning(running: readonly string[], say: (line: string) => void): void {
  const services = running.filter((unit) => unit.endsWith('.service') && !isHolder(unit));
  if (services.length > 0) say(`still of the old version: systemctl restart ${services.join(' ')}`);
  for (const unit of running.filter(isHolder))
    say(`${unit} goes on with the old version until it is stopped: a restart would open its rules`);
}
