/**
 * Which of the sockets that the service manager passed serves which place to listen at. The kernel's own word counts, not
 * their order or name:
 *
 * 1. A socket at the very address serves it.
 * 2. A socket unit's at the same port serves it, too: where to listen is said there. Sockets of the manager's store were made
 *    by our last start, perhaps for another configuration; with another address they are of no use.
 */
import { UsageError } from '../errors.js';
import { close } from '../linux/libc.js';
import type { Endpoint } from '../linux/sockaddr.js';
import type { PassedSocket } from '../systemd/listen-fds.js';

export interface Wanted {
  kind: 'tcp' | 'udp';
  endpoint: Endpoint;
  ipv6Only: boolean;
}

export class PassedSockets {
  private readonly sockets: readonly PassedSocket[];
  private readonly used = new Set<PassedSocket>();

  constructor(sockets: readonly PassedSocket[]) {
    this.sockets = sockets;
  }

  /** The sockets that serve a place; an empty list when another place has them already; undefined when there are none. */
  take(wanted: Wanted): PassedSocket[] | undefined {
    const exact = this.sockets.filter((socket) => isExactly(socket, wanted));
    const serving = exact.length > 0 ? exact : this.sockets.filter((socket) => isAtSamePort(socket, wanted));
    if (serving.length === 0) return undefined;
    const fresh = serving.filter((socket) => !this.used.has(socket));
    for (const socket of fresh) this.used.add(socket);
    return fresh;
  }

  /** What the store kept for nobody: the names to remove from it. Our own descriptors of them are closed. */
  dropStored(): string[] {
    const stale = this.unused().filter(({ stored }) => stored);
    for (const { fd } of stale) close(fd);
    return [...new Set(stale.map(({ name }) => name))];
  }

  /**
   * A socket unit's that nobody asked for: clients there would wait for ever. One whose protocol is not relayed at all may be
   * part of a unit that serves both.
   *
   * @throws {UsageError} for another port than the configuration's.
   */
  refuseStrange(relayed: { tcp: boolean; udp: boolean }, warn: (text: string) => void): void {
    for (const { fd, kind, endpoint, name, stored } of this.unused()) {
      if (stored) continue;
      const what = `the service manager passes a ${kind.toUpperCase()} socket at ${endpoint} ("${name}")`;
      if (relayed[kind])
        throw new UsageError(`${what}, where the configuration does not listen: make the ports agree`);
      warn(`${what}, but ${kind.toUpperCase()} is not relayed ("mode", -u, -U)`);
      close(fd);
    }
  }

  private unused(): PassedSocket[] {
    return this.sockets.filter((socket) => !this.used.has(socket));
  }
}

function isExactly(socket: PassedSocket, { kind, endpoint, ipv6Only }: Wanted): boolean {
  if (socket.kind !== kind || !socket.endpoint.equals(endpoint)) return false;
  return !socket.stored || !socket.ipv6 || socket.ipv6Only === ipv6Only;
}

function isAtSamePort(socket: PassedSocket, { kind, endpoint }: Wanted): boolean {
  return !socket.stored && socket.kind === kind && socket.endpoint.port === endpoint.port;
}

/** Sockets shared out: several each where there are enough, else one that they accept from together. */
export function shareOut(sockets: readonly PassedSocket[], workers: number): PassedSocket[][] {
  return Array.from({ length: workers }, (_, worker) =>
    sockets.length < workers
      ? sockets.slice(worker % sockets.length, (worker % sockets.length) + 1)
      : sockets.filter((_socket, i) => i % workers === worker),
  );
}
