/** Config -> what each worker is told at its start. */
import type { Config } from '../config/config.js';
import { findMethod, type Method } from '../crypto/methods.js';
import { randomBytes } from '../crypto/random.js';
import { createSaltMemory } from '../crypto/replay.js';
import { createSaltPoolMemory } from '../crypto/salt-pool.js';
import type { Plan } from '../relay/plan.js';
import type { ServerSalts } from '../relay/streams.js';
import type { UdpPlan } from '../relay/udp-plane.js';
import { createUdpCounters } from '../relay/udp-counters.js';
import { createUserMemory } from '../relay/user-counters.js';
import type { Budget } from './descriptors.js';
import type { Listeners } from './listeners.js';

/** shadowsocks-libev's cap on a connect. */
const maxConnectSeconds = 10;

export function planWorkers(
  config: Config,
  mark: number,
  listeners: Listeners,
  budget: Budget,
): Omit<Plan, 'control'>[] {
  const method = findMethod(config.method)!;
  const { credentials } = config;
  const salts = config.command === 'ss-server' ? createSalts(method) : undefined;
  const udp = config.udp ? planUdp(config, listeners, budget) : undefined;
  return listeners.tcp.map((own, index) => ({
    command: config.command,
    listeners: own,
    tproxy: config.tcpTproxy,
    methodName: method.name,
    credentials,
    salts,
    userMemory: credentials.users.length > 0 ? createUserMemory(credentials.users.length) : undefined,
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

function planUdp(config: Config, listeners: Listeners, budget: Budget): UdpPlan {
  return {
    listeners: listeners.udp,
    timeoutMs: config.udpTimeoutSeconds * 1000,
    maxSessions: budget.maxSessions,
    mtu: config.mtu,
    maxReplySockets: budget.maxReplySockets,
    counters: createUdpCounters(),
    salts: config.command === 'ss-server' ? createSaltMemory(randomBytes(8)) : undefined,
  };
}

function createSalts(method: Method): ServerSalts {
  const seed = randomBytes(8);
  if (method.edition === 'aead') return { edition: 'aead', memory: createSaltMemory(seed) };
  return { edition: '2022', memory: createSaltPoolMemory(seed, method.saltSize) };
}
