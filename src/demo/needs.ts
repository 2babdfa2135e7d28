/*
 * What the demo needs from the machine, and how it gets it.
 */
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { execa } from 'execa';
import { UsageError } from '../errors.js';

const tools = [
  { command: 'nft', debianPackage: 'nftables' },
  { command: 'ip', debianPackage: 'iproute2' },
] as const;

/** How other systems install both, by the command that does it there. */
const otherSystems: Record<string, string> = {
  dnf: 'dnf install nftables iproute',
  zypper: 'zypper install nftables iproute2',
  pacman: 'pacman -S nftables iproute2',
  apk: 'apk add nftables iproute2',
  opkg: 'opkg install nftables ip-full',
};

export function requireRoot(): void {
  if (process.getuid?.() === 0) return;
  throw new UsageError('needs root, to make network namespaces: sudo npm start');
}

/** Installs what is missing with apt-get where that is the way; elsewhere the error says what to type. */
export async function requireTools(say: (line: string) => void): Promise<void> {
  const missing = tools.filter(({ command }) => !isInstalled(command)).map((tool) => tool.debianPackage);
  if (missing.length === 0) return;
  if (!isInstalled('apt-get')) {
    const system = Object.keys(otherSystems).find(isInstalled);
    const advice = system === undefined ? 'install them' : `install them with: ${otherSystems[system]}`;
    throw new UsageError(`needs ${missing.join(' and ')}: ${advice}`);
  }
  say(`Needs ${missing.join(' and ')}: installing with apt-get`);
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  const install = ['install', '-y', '-q', '--no-install-recommends', ...missing];
  // The package lists of a fresh container are empty; a stale list fails too.
  const first = await execa('apt-get', install, { env, reject: false });
  if (!first.failed) return;
  await execa('apt-get', ['update', '-q'], { env });
  await execa('apt-get', install, { env });
}

function isInstalled(command: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((folder) => existsSync(join(folder, command)));
}

/** nft and ip live in the sbin folders, which root's PATH lacks after a plain `su`. */
export function completePath(): void {
  process.env['PATH'] = [process.env['PATH'], '/usr/sbin', '/sbin'].filter(Boolean).join(delimiter);
}
