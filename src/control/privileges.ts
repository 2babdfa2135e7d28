/**
 * Whom the program runs as, and what it may. In the order of events:
 *
 * 1. As root: listeners, which may need ports below 1024, and the PID file.
 * 2. `-a USER`: all threads become USER, and this one keeps CAP_NET_RAW, which workers started later inherit. Marking needs
 *    CAP_NET_ADMIN before Linux 5.17: whether this kernel is one of those is tried, since distributions carry changes back.
 * 3. What the relay will need is tried, so that a start without it is refused, and not found out by the first client.
 */
import { accessSync, constants } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Config } from '../config/config.js';
import { SyscallError, UsageError } from '../errors.js';
import {
  CAP_NET_ADMIN,
  CAP_NET_RAW,
  hasCapability,
  keepOnly,
  limitBounding,
  makeAllEffective,
  makeEffective,
} from '../linux/capabilities.js';
import { mayBeTransparent } from '../linux/datagram.js';
import { becomeUser, findUser, type User } from '../linux/process.js';
import { mayMark } from '../linux/socket.js';
import { oneLine } from '../text.js';

/**
 * Does what `-a` says. Before the first worker starts: a thread that runs already would lose every capability.
 *
 * @throws {UsageError} for a user that is not there, that this process may not become, or that cannot read the program.
 */
export function dropPrivileges(config: Config, mark: number, warn: (text: string) => void): void {
  if (config.user === undefined) return;
  const user = findUser(config.user);
  if (user === undefined)
    throw new UsageError(`user "${oneLine(config.user)}" (-a): this system has none of that name`);
  const kept = neededCapabilities(mark).filter((capability) => hasCapability('permitted', capability));
  limitBounding(kept);
  become(user);
  keepOnly(kept);
  warnOfUnreadable(config, user, warn);
}

/** CAP_NET_RAW alone where marking is content with it. */
function neededCapabilities(mark: number): number[] {
  if (mark === 0 || !hasCapability('permitted', CAP_NET_ADMIN)) return [CAP_NET_RAW];
  if (!hasCapability('permitted', CAP_NET_RAW)) return [CAP_NET_ADMIN];
  makeEffective([CAP_NET_RAW]);
  try {
    return mayMark(mark) ? [CAP_NET_RAW] : [CAP_NET_RAW, CAP_NET_ADMIN];
  } finally {
    makeAllEffective();
  }
}

function become(user: User): void {
  if (process.getuid!() === user.uid && process.geteuid!() === user.uid) return;
  try {
    becomeUser(user);
  } catch (error) {
    if (!(error instanceof SyscallError)) throw error;
    throw new UsageError(
      `user "${user.name}" (-a): ${error.message}: to become another user takes root, or CAP_SETUID and CAP_SETGID`,
      { cause: error },
    );
  }
}

/** Workers read the program's files when they start, and a reload reads the configuration. */
function warnOfUnreadable({ configFile }: Config, { name }: User, warn: (text: string) => void): void {
  const program = fileURLToPath(new URL('../relay/data-plane.js', import.meta.url));
  if (!isReadable(program))
    throw new UsageError(`user "${name}" (-a) cannot read the program itself, ${oneLine(program)}`);
  if (configFile !== undefined && !isReadable(configFile)) {
    warn(
      `user "${name}" (-a) cannot read ${oneLine(configFile)}: a reload will not be possible, only a restart (chgrp and chmod 640 mend it)`,
    );
  }
}

function isReadable(path: string): boolean {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * Tries what a client would be the first to need: the mark, and for UDP the answers in another's name.
 *
 * @throws {UsageError} that names the capability and the ways to give it.
 */
export function checkPrivileges(config: Config, mark: number): void {
  if (mark !== 0 && !mayMark(mark)) throw new UsageError(lackingMark(config));
  if (config.command === 'ss-redir' && config.udp && !mayBeTransparent()) {
    throw new UsageError(lacking(config, 'answering UDP clients in the name of their targets'));
  }
}

/** `what` names the deed, as in "listening for TPROXY". */
export function lacking({ command }: Pick<Config, 'command'>, what: string): string {
  return `${what} needs CAP_NET_RAW: ${waysToGive(command, 'CAP_NET_RAW')}`;
}

export function lackingMark({ command }: Pick<Config, 'command'>): string {
  const ways = waysToGive(command, 'CAP_NET_RAW');
  return `marking our own traffic needs CAP_NET_RAW for SO_MARK (before Linux 5.17 CAP_NET_ADMIN): ${ways}; or go without by --outbound-fwmark 0`;
}

function waysToGive(command: string, capability: string): string {
  const lower = capability.toLowerCase().replace('cap_', '+');
  return [
    'start it as root, and with -a USER it keeps just that',
    `grant it in the unit (AmbientCapabilities=${capability})`,
    `or start it by "setpriv --reuid USER --regid GROUP --init-groups --inh-caps ${lower} --ambient-caps ${lower} ${command} …"`,
  ].join('; ');
}
