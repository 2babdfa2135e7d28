/**
 * Datagrams that came to a socket of ours and found its buffer full: the kernel counts them (`drops` of /proc/net/udp) and
 * tells nobody. It is asked now and then and at a socket's end, so that this costs nothing for a datagram. A control message
 * with every datagram (SO_RXQ_OVFL) would tell the same, and of no loss while nothing comes after it.
 */
import { lostDatagrams } from '../linux/sockopt.js';
import type { Recency, Used } from './recency.js';
import type { UdpContext } from './udp-context.js';

/** Of the sessions' sockets, those lately used are asked every second: where much comes, it comes there. */
const sessionsAsked = 64;

export interface Receiver {
  /** -1 when it is closed. */
  readonly fd: number;
  /** What the kernel has counted when it was last asked. */
  lostBefore: number;
}

export function countLosses({ counters, log }: UdpContext, receiver: Receiver, whose: string): void {
  if (receiver.fd < 0) return;
  const lost = lostDatagrams(receiver.fd);
  const more = (lost - receiver.lostBefore) >>> 0; // the kernel's count has 32 bits
  if (more === 0) return;
  receiver.lostBefore = lost;
  counters.count('socket-full', more);
  log.limited(
    'udp-socket-full',
    `udp: ${more} datagrams lost: the buffer of ${whose} was full: they come faster than this host can take them`,
  );
}

export function forLatelyUsed<T extends Used>(sessions: Recency<T>, each: (session: T) => void): void {
  let session = sessions.latest;
  for (let i = 0; i < sessionsAsked && session !== undefined; i++) {
    each(session);
    session = session.older as T | undefined;
  }
}
