/**
 * SIGHUP: the configuration is read again, and what of it can change while we serve is given to the workers. Connections and UDP
 * sessions go on with what they were begun with.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Config } from '../config/config.js';
import { ConfigError } from '../errors.js';
import type { NewPlan, ServerAddress } from '../relay/plan.js';
import type { Budget } from './descriptors.js';
import { Dns } from './dns.js';
import type { Listeners } from './listeners.js';
import { nameServers, planWorkers } from './plan.js';
import { Servers } from './servers.js';
import type { Supervisor } from './supervisor.js';

/** What is bound to sockets, threads or the process. By what an administrator calls it. */
const fixed: readonly (readonly [name: string, of: (config: Config) => unknown])[] = [
  ['mode', ({ tcp, udp }) => [tcp, udp]],
  ['local_address', ({ command, localAddress }) => command === 'ss-redir' && localAddress],
  ['local_port', ({ localPort }) => localPort],
  ['dscp', ({ dscp }) => dscp],
  ['server and server_port', ({ command, servers }) => command === 'ss-server' && addressesOf(servers)],
  ['tcp_tproxy', ({ tcpTproxy }) => tcpTproxy],
  ['workers', ({ workers }) => workers],
  ['outbound_fwmark', ({ outboundFwmark }) => outboundFwmark],
  ['nofile', ({ nofile }) => nofile],
  ['user', ({ user }) => user],
  ['reuse_port', ({ reusePort }) => reusePort],
  ['use_syslog', ({ useSyslog }) => useSyslog],
  ['tcp_incoming_sndbuf', ({ tcpIncomingSndbuf }) => tcpIncomingSndbuf],
  ['tcp_incoming_rcvbuf', ({ tcpIncomingRcvbuf }) => tcpIncomingRcvbuf],
];

function addressesOf(servers: Config['servers']): unknown {
  return servers.map(({ host, port }) => [host, port]);
}

export interface Serving {
  readonly supervisor: Supervisor;
  readonly mark: number;
  readonly listeners: Listeners;
  /** That of the start: buffers and tables have room for so many. */
  readonly budget: Budget;
  readonly onServerFailure: (text: string) => void;
}

/** The configuration that is in force, and what follows from it. */
export class Reloader {
  /** Those that run come last. Before them are earlier ones with memories, of what was counted and seen, that these lack. */
  plans: readonly NewPlan[];
  private readonly started: Config;
  private readonly serving: Serving;
  private servers: Servers | undefined;

  constructor(config: Config, plans: readonly NewPlan[], serving: Serving) {
    this.started = config;
    this.plans = plans;
    this.serving = serving;
  }

  /** ss-redir: resolves when an address is known, or after a while without. */
  async follow(dns: Dns): Promise<void> {
    const { supervisor, onServerFailure } = this.serving;
    const tell = (addresses: ServerAddress[]): void => supervisor.setServers(addresses);
    this.servers = new Servers(nameServers(this.started), dns, tell, onServerFailure);
    await this.servers.start();
  }

  /**
   * Puts the configuration in force, all of it or nothing.
   *
   * @param warn is told what needs a restart.
   * @param before is done when nothing else can fail any more, and may: then nothing has changed. It gets the configuration
   *   without what counts from the next start on.
   * @throws {ConfigError} where none of the servers has an address.
   */
  async reload(
    config: Config,
    warn: (text: string) => void,
    before: (config: Config) => Promise<void>,
  ): Promise<void> {
    const { supervisor, mark, listeners } = this.serving;
    const dns = createDns(config);
    const budget = this.budgetOf(config);
    const present = this.keepFixed(config);
    const plans = planWorkers(present, mark, listeners, budget, this.plans);
    let addresses: ServerAddress[] = [];
    let servers: Servers | undefined;
    let isInForce = false;
    if (config.command === 'ss-redir') {
      const learn = (learned: ServerAddress[]): void => {
        addresses = learned;
        if (isInForce) supervisor.setServers(learned);
      };
      servers = new Servers(nameServers(config), dns, learn, this.serving.onServerFailure);
      await servers.start();
    }
    try {
      if (servers !== undefined && addresses.length === 0) throw new ConfigError('no server has an address');
      await before(present);
    } catch (error) {
      servers?.close();
      throw error;
    }
    isInForce = true;
    this.servers?.close();
    this.servers = servers;
    supervisor.reload(plans, addresses, dns);
    for (const text of this.needsRestart(config)) warn(text);
    this.plans = [...this.plans.filter((plan) => hasMemories(plan, plans)), ...plans];
  }

  /** What the file says of the process itself counts from the next start on. */
  private keepFixed(config: Config): Config {
    const { tcp, udp, tcpTproxy, workers, localPort, outboundFwmark } = this.started;
    const { credentials } = config; // not enumerable: a spread has it not
    return { ...config, credentials, tcp, udp, tcpTproxy, workers, localPort, outboundFwmark };
  }

  private budgetOf(config: Config): Budget {
    const { maxConnections, maxSessions, maxReplySockets } = this.serving.budget;
    return {
      maxConnections: Math.min(config.maxConnections, maxConnections),
      maxSessions: Math.min(config.udpMaxAssociations ?? maxSessions, maxSessions),
      maxReplySockets,
    };
  }

  private needsRestart(config: Config): string[] {
    const changed = fixed
      .filter(([, of]) => !isDeepStrictEqual(of(this.started), of(config)))
      .map(([name]) => name);
    const { maxConnections, maxSessions } = this.serving.budget;
    const more = [
      ...(config.maxConnections > maxConnections ? [`max_connections above ${maxConnections}`] : []),
      ...((config.udpMaxAssociations ?? 0) > maxSessions
        ? [`udp_max_associations above ${maxSessions}`]
        : []),
    ];
    const all = [...changed, ...more];
    return all.length === 0 ? [] : [`a restart is needed for: ${all.join(', ')}; all else is in force`];
  }
}

function hasMemories({ salts, userMemory }: NewPlan, later: readonly NewPlan[]): boolean {
  const isKnown = (memory: unknown) =>
    later.some((plan) => plan.salts === memory || plan.userMemory === memory);
  return [salts, userMemory].some((memory) => memory !== undefined && !isKnown(memory));
}

export function createDns({ nameservers, ipv6First, maxDnsQueries }: Config): Dns {
  return new Dns({ nameservers, ipv6First, maxQueries: maxDnsQueries });
}
