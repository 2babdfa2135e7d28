/** The UDP side of a worker, from its plan. One worker has it: a client's datagrams must all meet in one session. */
import { isDeepStrictEqual } from 'node:util';
import type { AeadBackend } from '../crypto/aead.js';
import type { Credentials } from '../crypto/credentials.js';
import type { Method } from '../crypto/methods.js';
import { SaltFilter, type SaltMemory } from '../crypto/replay.js';
import type { Reactor } from '../engine/reactor.js';
import type { UdpSocketOptions } from '../linux/datagram.js';
import type { ServerPackets } from '../protocol/packet.js';
import { changeUsers, createServerPackets } from '../protocol/packets.js';
import { ServerPackets2022 } from '../protocol/udp-2022-server.js';
import { type Access, accessOf } from './access.js';
import type { Names } from './names.js';
import { DatagramMemory, type UdpContext, type UdpLimits } from './udp-context.js';
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

/** @param access of the servers that have none of their own; asked for each session. */
export function startUdpRedir(
  plan: UdpPlan,
  parts: UdpParts,
  access: () => Access,
  upstreams: Upstreams,
  tcpUpstreams: Upstreams,
): UdpRedir {
  const { maxReplySockets } = plan;
  const redir = new UdpRedir(createContext(plan, parts), {
    upstreams,
    tcpUpstreams,
    accessOf: (server) => accessOf(server, access()),
    maxReplySockets,
  });
  for (const { fd, port, tos } of plan.listeners) redir.listen(fd, port, tos);
  return redir;
}

/** ss-server's UDP side, and what its keys are. */
export class UdpServerSide {
  private readonly plan: UdpPlan;
  private readonly server: UdpServer;
  private packets: ServerPackets<UdpServerSession>;
  private parts: UdpParts;

  constructor(plan: UdpPlan, parts: UdpParts, names: Names, userCounters: UserCounters | undefined) {
    this.plan = plan;
    this.parts = parts;
    this.packets = this.createPackets();
    this.server = new UdpServer(createContext(plan, parts), { packets: this.packets, names, userCounters });
    for (const { fd, ipv6 } of plan.listeners) this.server.listen(fd, ipv6);
  }

  get size(): number {
    return this.server.size;
  }

  private createPackets(): ServerPackets<UdpServerSession> {
    const { backend, method, credentials } = this.parts;
    return createServerPackets<UdpServerSession>(backend, method, credentials, {
      salts: new SaltFilter(this.plan.salts!), // the same memory, whatever the keys are
      maxSessions: this.plan.maxSessions + remembered,
      clientShare: () => this.server.clientShare(),
    });
  }

  /** Sessions whose key stays go on, with what has been seen of them. */
  reload(limits: UdpLimits, parts: UdpParts, userCounters: UserCounters | undefined): void {
    const { method, credentials: before } = this.parts;
    this.parts = parts;
    this.server.changeLimits(limits);
    this.server.countUsersIn(userCounters);
    const now = parts.credentials;
    if (method === parts.method && isDeepStrictEqual(before, now)) return;
    const isSameRound = method === parts.method && isDeepStrictEqual(before.key, now.key);
    if (isSameRound && before.users.length > 0 && now.users.length > 0) {
      changeUsers(this.packets, parts.backend, method, { before, now }, (session) =>
        this.server.close(session),
      );
      return;
    }
    this.packets = this.createPackets();
    if (this.packets instanceof ServerPackets2022) this.packets.refuseOlder();
    this.server.changeKeys(this.packets);
  }
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
