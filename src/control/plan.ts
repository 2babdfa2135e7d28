/** Config -> what each worker is told at its start. */
import { isDeepStrictEqual } from 'node:util';
import type { Config, Server } from '../config/config.js';
import type { Credentials } from '../crypto/credentials.js';
import { findMethod, type Method } from '../crypto/methods.js';
import { randomBytes } from '../crypto/random.js';
import { createSaltMemory } from '../crypto/replay.js';
import { createSaltPoolMemory } from '../crypto/salt-pool.js';
import type { NewPlan, ServerKeys } from '../relay/plan.js';
import type { ServerSalts } from '../relay/streams.js';
import type { UdpPlan } from '../relay/udp-plane.js';
import { createUdpCounters } from '../relay/udp-counters.js';
import { createUserMemory } from '../relay/user-counters.js';
import type { Budget } from './descriptors.js';
import type { Listeners } from './listeners.js';
import type { ServerName } from './servers.js';

/** shadowsocks-libev's cap on a connect. */
const maxConnectSeconds = 10;

/** @param before of earlier (re)loads, the latest last: their memories of what was seen and counted go on. */
export function planWorkers(
  config: Config,
  mark: number,
  listeners: Listeners,
  budget: Budget,
  before: readonly NewPlan[] = [],
): NewPlan[] {
  const method = findMethod(config.method)!;
  const { credentials } = config;
  const running = before.slice(-listeners.tcp.length);
  const salts = config.command === 'ss-server' ? saltsFor(method, before) : undefined;
  const otherKeys = listOtherKeys(config);
  const udp = config.udp ? planUdp(config, listeners, budget, running[0]?.udp) : undefined;
  return listeners.tcp.map((own, index) => ({
    command: config.command,
    listeners: own,
    tproxy: config.tcpTproxy,
    methodName: method.name,
    credentials,
    ...(otherKeys.length > 0 && { otherKeys }),
    salts,
    userMemory: userMemoryFor(credentials, running[index]),
    timeouts: {
      connectMs: Math.min(maxConnectSeconds, config.timeoutSeconds) * 1000,
      halfOpenMs: config.timeoutSeconds * 1000,
      idleMs: config.idleTimeoutSeconds * 1000,
    },
    udp: index === 0 ? udp : undefined,
    maxConnections: Math.max(1, Math.floor(budget.maxConnections / config.workers)),
    verbose: config.verbose,
    noDelay: config.noDelay,
    fastOpen: config.fastOpen,
    mptcp: config.mptcp && config.command === 'ss-redir',
    mark,
    outgoingSendBuffer: config.tcpOutgoingSndbuf,
    outgoingReceiveBuffer: config.tcpOutgoingRcvbuf,
    bind4: config.bindAddress4,
    bind6: config.bindAddress6,
    interface: config.interface,
  }));
}

/** The servers of ss-redir as the workers know them: how to speak to each, and which protocols it has. */
export function nameServers(config: Config): ServerName[] {
  const others = listOtherKeys(config);
  return config.servers.map((server) => {
    const { host, port, tcp, udp } = server;
    const keys = others.findIndex((other) => isOf(server, other));
    const without = config.tcp && !tcp ? 'tcp' : config.udp && !udp ? 'udp' : undefined;
    return { host, port, ...(keys >= 0 && { keys }), ...(without !== undefined && { without }) };
  });
}

/** Each once, in the order of the servers; what the first has is everybody's who has nothing else. */
function listOtherKeys({ command, method, credentials, servers }: Config): ServerKeys[] {
  if (command !== 'ss-redir') return [];
  const known: ServerKeys[] = [{ methodName: method, credentials }];
  for (const server of servers) {
    if (known.some((other) => isOf(server, other))) continue;
    known.push({ methodName: server.method, credentials: server.credentials });
  }
  return known.slice(1);
}

function isOf({ method, credentials }: Server, other: ServerKeys): boolean {
  return method === other.methodName && isDeepStrictEqual(credentials, other.credentials);
}

function planUdp(config: Config, listeners: Listeners, budget: Budget, before: UdpPlan | undefined): UdpPlan {
  return {
    listeners: listeners.udp,
    timeoutMs: config.udpTimeoutSeconds * 1000,
    maxSessions: budget.maxSessions,
    mtu: config.mtu,
    maxReplySockets: budget.maxReplySockets,
    counters: before?.counters ?? createUdpCounters(),
    salts: config.command === 'ss-server' ? (before?.salts ?? createSaltMemory(randomBytes(8))) : undefined,
  };
}

/** Numbers in it are those of the users: who has gone or come begins another. */
function userMemoryFor({ users }: Credentials, before: NewPlan | undefined): SharedArrayBuffer | undefined {
  if (users.length === 0) return undefined;
  const isSame = isDeepStrictEqual(
    before?.credentials.users.map(({ name }) => name),
    users.map(({ name }) => name),
  );
  return isSame ? before!.userMemory : createUserMemory(users.length);
}

/** Salts are remembered whatever becomes of the keys, those of each kind apart. */
function saltsFor(method: Method, before: readonly NewPlan[]): ServerSalts {
  const same = before.findLast(({ methodName }) => {
    const { edition, saltSize } = findMethod(methodName)!;
    return edition === method.edition && saltSize === method.saltSize;
  });
  return same?.salts ?? createSalts(method);
}

function createSalts(method: Method): ServerSalts {
  const seed = randomBytes(8);
  if (method.edition === 'aead') return { edition: 'aead', memory: createSaltMemory(seed) };
  return { edition: '2022', memory: createSaltPoolMemory(seed, method.saltSize) };
}
