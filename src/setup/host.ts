/** The running system around the files: packages, systemd, the user. */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { listOurTables } from '../nft/loaded.js';
import { askTool, runTool } from '../nft/tools.js';
import { adminUnits, configFolder, type Layout, user } from './layout.js';

const unitNames = ['ss-redir', 'ss-redir-rules', 'ss-server'];

/** `FILE belongs to PACKAGE` for the first such file among those of the prefix's bin; undefined where there is none. */
export async function findPackaged(layout: Layout, paths: readonly string[]): Promise<string | undefined> {
  const programs = existsSync(layout.bin)
    ? readdirSync(layout.bin).map((name) => join(layout.bin, name))
    : [];
  const files = [...paths.filter((path) => existsSync(path)), ...programs];
  if (files.length === 0) return undefined;
  const dpkg = await askTool('dpkg-query', ['--search', ...files]);
  // `PACKAGE[:ARCHITECTURE][, PACKAGE]…: PATH`, beside `diversion by PACKAGE from: PATH` and `local diversion from: PATH`.
  const [, dpkgPackage, file] =
    /^(?!diversion by |local diversion )([a-z0-9][^\s,:]*)[^/\n]*: (\/.*)$/m.exec(dpkg ?? '') ?? [];
  if (file !== undefined) return `${file} belongs to the package ${dpkgPackage}`;
  const rpm = await askTool('rpm', ['-qf', '--qf', '%{NAME}\\n', ...files]);
  const rpmPackage = rpm?.split('\n').find((line) => /^[A-Za-z0-9][\w.+-]*$/.test(line));
  return rpmPackage === undefined ? undefined : `${layout.bin} has files of the package ${rpmPackage}`;
}

export function hasSystemd(): boolean {
  return existsSync('/run/systemd/system'); // sd_booted(3)
}

/** Instances that run, of services and sockets. */
export async function runningUnits(): Promise<string[]> {
  if (!hasSystemd()) return [];
  const patterns = unitNames.flatMap((name) => [`${name}@*.service`, `${name}@*.socket`]);
  const states = '--state=active,activating,reloading,deactivating';
  const lines = await runTool('systemctl', [
    'list-units',
    '--plain',
    '--no-legend',
    '--full',
    states,
    ...patterns,
  ]);
  return lines
    .split('\n')
    .flatMap((line) => line.split(' ', 1))
    .filter((unit) => unit !== '');
}

/** Of an instance's rules. */
export function isHolder(unit: string): boolean {
  return unit.startsWith('ss-redir-rules@');
}

/** Instances that the next boot starts: links in the folders of what wants them. */
export function enabledUnits(destdir: string): string[] {
  const folder = join(destdir, adminUnits);
  if (!existsSync(folder)) return [];
  const wanting = readdirSync(folder).filter((name) => /\.(?:wants|requires)$/.test(name));
  const links = wanting.flatMap((name) => readdirSync(join(folder, name)));
  return [...new Set(links)].filter((name) => unitNames.some((unit) => name.startsWith(`${unit}@`)));
}

/** Drop-ins of ours, of all instances and of one: `ss-redir@lan.service.d`. */
export function dropInFolders(destdir: string): string[] {
  const folder = join(destdir, adminUnits);
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((name) => /^ss-(?:redir|redir-rules|server)@.*\.(?:service|socket)\.d$/.test(name))
    .map((name) => join(adminUnits, name));
}

/** Without nft there are no rules of ours. */
export async function loadedTables(): Promise<string[]> {
  return (await askTool('nft', ['--version'])) === undefined ? [] : listOurTables();
}

/** Whether sysusers has made it: an administrator's own user of this name has another description. */
export async function isOurUser(): Promise<boolean> {
  const line = await askTool('getent', ['passwd', user]);
  return line?.split(':')[4] === 'Transparent Shadowsocks proxy'; // as in systemd/ss-redir.sysusers
}

/** Configurations that its group may read, here and in shadowsocks-libev's folder. */
export async function filesOfGroup(): Promise<string[]> {
  const line = await askTool('getent', ['group', user]);
  const gid = Number(line?.split(':')[2]);
  const paths = [configFolder, '/etc/shadowsocks-libev'].flatMap((folder) =>
    existsSync(folder) ? [folder].concat(readdirSync(folder).map((name) => join(folder, name))) : [],
  );
  return paths.filter((path) => statSync(path, { throwIfNoEntry: false })?.gid === gid);
}

export async function removeUser(): Promise<void> {
  await runTool('userdel', [user]);
  // userdel takes it along where USERGROUPS_ENAB says so, login.defs(5).
  if ((await askTool('getent', ['group', user])) !== '') await runTool('groupdel', [user]);
}
