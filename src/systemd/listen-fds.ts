/**
 * Sockets that the service manager passes: sd_listen_fds(3). They are descriptors 3, 4, … of the process $LISTEN_PID, in no
 * order that means anything; the kernel says what each is, and its name where it is from: ours in the manager's store, by
 * `storeName`, or else a socket unit's.
 */
import { UsageError } from '../errors.js';
import { describeSocket, takeOver, type SocketDescription } from '../linux/passed-socket.js';
import type { Endpoint } from '../linux/sockaddr.js';

const firstFd = 3; // sd-daemon.h, SD_LISTEN_FDS_START

export interface PassedSocket extends SocketDescription {
  fd: number;
  /** As the manager calls it. */
  name: string;
  /** Kept from our last start, and not made by a socket unit. */
  stored: boolean;
}

/** A name that descriptors of one kind and address share: no colon may be in it. */
export function storeName(kind: 'tcp' | 'udp', endpoint: Endpoint): string {
  return `${storePrefix}${kind}-${Buffer.from(endpoint.address).toString('hex')}-${endpoint.port}`;
}

const storePrefix = 'kept-';

/**
 * Takes the sockets, and what tells of them out of the environment.
 *
 * @throws {UsageError} for one that is no listening TCP socket and no bound UDP socket.
 */
export function takePassedSockets(env: NodeJS.ProcessEnv, pid: number): PassedSocket[] {
  const { LISTEN_PID: whom, LISTEN_FDS: count, LISTEN_FDNAMES: names } = env;
  for (const key of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES', 'LISTEN_PIDFDID']) delete env[key];
  if (whom !== String(pid) || count === undefined || !/^\d+$/.test(count)) return [];
  const named = names?.split(':') ?? [];
  return Array.from({ length: Number(count) }, (_, i) => describe(firstFd + i, named[i] ?? 'unknown'));
}

function describe(fd: number, name: string): PassedSocket {
  const description = describeSocket(fd);
  if (description === undefined) {
    throw new UsageError(
      `descriptor ${fd} ("${name}") from the service manager: expected a listening TCP or a bound UDP socket of IPv4 or IPv6`,
    );
  }
  takeOver(fd);
  return { ...description, fd, name, stored: name.startsWith(storePrefix) };
}
