/** The UDP side of a worker, from its plan. One worker has it: a client's datagrams must all meet in one session. */
import type { AeadBackend } from '../crypto/aead.js';
import type { Credentials } from '../crypto/credentials.js';
import type { Method } from '../crypto/methods.js';
import { SaltFilter, type SaltMemory } from '../crypto/replay.js';
import type { Reactor } from '../engine/reactor.js';
import type { UdpSocketOptions } from '../linux/datagram.js';
import { createServerPackets } from '../protocol/packets.js';
import { type Access, accessOf } from './access.js';
import type { Names } from './names.js';
import { DatagramMemory, type UdpContext } from './udp-context.js';
import { UdpCounters } from './udp-counters.js';
import { UdpRedir } from './udp-redir.js';
import { UdpServer } from './udp-server.js';
import type { UdpServerSession } from './udp-server-session.js';
import type { Upstreams } from './upstream.js';
import type { UserCounters } from './user-counters.js';
import type { WorkerLog } from './worker-log.js';

export interface UdpListenerPlan {
  /** A bound socket of this process. */
  fd: number;
  port: number;
  /** Type of service of the packets sent on behalf of this listener's clients, 0 for none. */
  tos: number;
  ipv6: boolean;
}

export interface UdpPlan {
  listeners: readonly UdpListenerPlan[];
  timeoutMs: number;
  maxSessions: number;
  mtu: number;
  /** ss-redir. */
  maxReplySockets: number;
  /** createUdpCounters(). */
  counters: SharedArrayBuffer;
  /** ss-server, 2017 methods: the salts seen in packets. */
  salts: SaltMemory | undefined;
}

export interface UdpParts {
  reactor: Reactor;
  log: WorkerLog;
  backend: AeadBackend;
  method: Method;
  credentials: Credentials;
  socketOptions: UdpSocketOptions;
}

/** 2022: sessions remembered after their sockets are gone, so that nothing can be replayed; 1.3 KiB each. */
const remembered = 65_536;

export function startUdpRedir(
  plan: UdpPlan,
  parts: UdpParts,
  access: Access,
  upstreams: Upstreams,
  tcpUpstreams: Upstreams,
): UdpRedir {
  const { maxReplySockets } = plan;
  const redir = new UdpRedir(createContext(plan, parts), {
    upstreams,
    tcpUpstreams,
    createPackets: (server) => accessOf(server, access).createPackets(),
    maxReplySockets,
  });
  for (const { fd, port, tos } of plan.listeners) redir.listen(fd, port, tos);
  return redir;
}

export function startUdpServer(
  plan: UdpPlan,
  parts: UdpParts,
  names: Names,
  userCounters: UserCounters | undefined,
): void {
  const { backend, method, credentials } = parts;
  const salts = new SaltFilter(plan.salts!);
  const maxSessions = plan.maxSessions + remembered;
  const packets = createServerPackets<UdpServerSession>(backend, method, credentials, {
    salts,
    maxSessions,
    clientShare: () => server.clientShare(),
  });
  const server: UdpServer = new UdpServer(createContext(plan, parts), { packets, names, userCounters });
  for (const { fd, ipv6 } of plan.listeners) server.listen(fd, ipv6);
}

function createContext(plan: UdpPlan, { reactor, log, socketOptions }: UdpParts): UdpContext {
  return {
    reactor,
    log,
    counters: new UdpCounters(plan.counters),
    datagrams: new DatagramMemory(reactor),
    socketOptions,
    timeoutMs: plan.timeoutMs,
    maxSessions: plan.maxSessions,
    mtu: plan.mtu,
  };
}
