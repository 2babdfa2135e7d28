// The Debian packages that the end-to-end tests and the bench need: what is missing is installed, nothing else is touched.
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { join } from 'node:path';

/** A command, and the Debian package that brings it. */
export type Tool = readonly [command: string, debianPackage: string];

export const testTools: readonly Tool[] = [
  ['ip', 'iproute2'],
  ['ss', 'iproute2'],
  ['nft', 'nftables'],
  ['strace', 'strace'],
  ['prlimit', 'util-linux'],
  ['setpriv', 'util-linux'],
  ['script', 'bsdutils'],
  ['sysctl', 'procps'],
  ['dnsmasq', 'dnsmasq-base'],
  ['iptables-translate', 'iptables'],
  ['ss-server', 'shadowsocks-libev'],
  ['ss-redir', 'shadowsocks-libev'],
  ['ss-local', 'shadowsocks-libev'],
  ['ss-tunnel', 'shadowsocks-libev'],
  ['systemd-analyze', 'systemd'],
  ['systemd-nspawn', 'systemd-container'],
  ['dbus-daemon', 'dbus'],
  ['mandoc', 'mandoc'],
  ['man', 'man-db'],
  ['groff', 'groff-base'],
  ['faketime', 'faketime'],
  ['zsh', 'zsh'],
  ['fish', 'fish'],
];

export const benchTools: readonly Tool[] = [...testTools, ['iperf3', 'iperf3']];

/** Installs what of `tools` is missing; returns the commands that are missing even then. */
export function installMissing(tools: readonly Tool[], say: (line: string) => void): string[] {
  const missing = tools.filter(([command]) => !findCommand(command));
  if (missing.length === 0) return [];

  const packages = [...new Set(missing.map(([, name]) => name))];
  const install = `apt-get install -y --no-install-recommends ${packages.join(' ')}`;
  const names = missing.map(([command]) => command);
  if (process.getuid?.() !== 0 || !findCommand('apt-get')) {
    say(`missing: ${names.join(', ')}; install them, on Debian as root: ${install}`);
    return names;
  }

  say(`missing: ${names.join(', ')}; running ${install}`);
  aptGet(['update', '-q'], say);
  aptGet(install.split(' ').slice(1), say);
  if (packages.includes('shadowsocks-libev')) stopDebianService();
  return tools.map(([command]) => command).filter((command) => !findCommand(command));
}

export function findCommand(command: string): string | undefined {
  const directories = `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin`.split(':').filter(Boolean);
  return directories.map((directory) => join(directory, command)).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function aptGet(args: string[], say: (line: string) => void): void {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const result = spawnSync('apt-get', args, { env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  if (result.status === 0) return;
  const reason = result.error?.message ?? (result.stderr || result.stdout).trim();
  say(`apt-get ${args.join(' ')} failed (status ${result.status}): ${reason}`);
}

// Debian starts the service it has just installed, with a random password on port 8388. Only a service that came with
// our own installation is stopped: one that was there before belongs to the administrator.
function stopDebianService(): void {
  if (existsSync('/run/systemd/system')) {
    spawnSync('systemctl', ['disable', '--now', 'shadowsocks-libev.service'], { stdio: 'ignore' });
    return;
  }
  if (existsSync('/etc/init.d/shadowsocks-libev')) {
    spawnSync('/etc/init.d/shadowsocks-libev', ['stop'], { stdio: 'ignore' });
  }
}

/**
 * In front of a command: no capability, and no way to get one. The user stays root, so that a clone below /root can be
 * read; the kernel asks for capabilities only.
 */
export const unprivileged = ['setpriv', '--inh-caps=-all', '--bounding-set=-all'];
