// A world (world.ts) for UDP: beside the client and the internet there is an agent in the gateway, and relays come in pairs.
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { internetAddresses } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import type { RulesValues } from '../../src/nft/apply.js';
import { Agent } from './agents.js';
import { loadRules } from './rules.js';
import type { OpenUdp, UdpBehaviourName } from './udp-agent.js';
import type { Address } from './udp-bind.js';
import { UdpSocket } from './udp-sockets.js';
import { redirPort, World, type Config, type Family, type StartOptions } from './world.js';

/**
 * SS_REDIR_TEST_LISTEN, beside SS_REDIR_TEST_OURS=debian: libev's ss-redir takes UDP of one family only, so that its tests
 * are run once with 0.0.0.0 and once with ::, and half of them must fail each time.
 */
const listenAddress = process.env['SS_REDIR_TEST_LISTEN'] ?? '::';

export const withUdp = { mode: 'tcp_and_udp' } as const;

/** Far away: a host that is asked, and one that nobody has asked. */
export const remotes = {
  ipv4: { asked: internetAddresses.ipv4[0], stranger: internetAddresses.ipv4[3] },
  ipv6: { asked: internetAddresses.ipv6[1], stranger: internetAddresses.ipv6[0] },
} as const;

/** What has gone past ss-redir must not pass for relayed: far ends do not hear the LAN and the gateway, servers do. */
const onlyServersAreHeard = `
table inet far_ends {
  chain input {
    type filter hook input priority filter;
    ip saddr 192.168.50.0/24 meta l4proto udp drop
    ip6 saddr fd50::/64 meta l4proto udp drop
    ip saddr 45.9.9.0/24 ip saddr != 45.9.9.2 udp dport != 8380-8399 drop
    ip6 saddr 2a09:9::/64 ip6 saddr != 2a09:9::2 udp dport != 8380-8399 drop
  }
}
`;

const anyAddress = { ipv4: '0.0.0.0', ipv6: '::' } as const;

export interface RelayOptions {
  /** For both. */
  config?: Config;
  redir?: StartOptions;
  server?: StartOptions;
}

export interface Relay {
  redir: Service;
  server: Service;
}

export class UdpWorld {
  readonly world: World;
  readonly router: Agent;

  private constructor(world: World) {
    this.world = world;
    this.router = new Agent(world.bed.gateway.name);
  }

  static async create(label: string): Promise<UdpWorld> {
    const udp = new UdpWorld(await World.create(label));
    await udp.allAreHeard(false);
    return udp;
  }

  async allAreHeard(all: boolean): Promise<void> {
    const { internet } = this.world.bed;
    if (all) await internet.run('nft', ['delete', 'table', 'inet', 'far_ends']);
    else await internet.run('nft', ['-f', '-'], { input: onlyServersAreHeard });
  }

  async startRelay({ config, redir, server }: RelayOptions = {}): Promise<Relay> {
    // One after the other: a busy machine may not bring up both within the limit of one.
    const far = await this.startServer({ ...server, config: { ...config, ...server?.config } });
    const near = await this.startRedir({ ...redir, config: { ...config, ...redir?.config } });
    return { server: far, redir: near };
  }

  async startServer(options: StartOptions = {}): Promise<Service> {
    const config = { ...withUdp, ...options.config };
    const server = await this.world.startServer('ours', { ...options, config });
    if (options.waitForListen !== false) await serves(server);
    return server;
  }

  async startRedir(options: StartOptions = {}): Promise<Service> {
    const config = { ...withUdp, local_address: listenAddress, ...options.config };
    const redir = await this.world.startRedir('ours', 'tproxy', { ...options, config });
    await this.loadRules();
    if (options.waitForListen !== false) await serves(redir);
    return redir;
  }

  loadRules(values: Partial<RulesValues> = {}): Promise<void> {
    return loadRules(this.world.bed.gateway, 'tproxy', redirPort, { protocols: ['tcp', 'udp'], ...values });
  }

  /** A socket of the LAN client. */
  client(family: Family, options: Partial<OpenUdp> = {}): Promise<UdpSocket> {
    return UdpSocket.open(this.world.client, { host: anyAddress[family], ...options });
  }

  /** A far end. */
  remote({ host, port }: Address, behaviour: UdpBehaviourName): Promise<UdpSocket> {
    return UdpSocket.open(this.world.origin, { host, port, behaviour });
  }

  /** What it says on SIGUSR1 that it has dropped so far, by kind. */
  async dropped(service: Service): Promise<Record<string, number>> {
    const reports = () => service.output.match(/udp dropped: .*/g) ?? [];
    const before = reports().length;
    service.kill('SIGUSR1');
    await this.world.settles(() => reports().length > before, 500); // it says nothing when there was nothing
    const report = reports().slice(before).at(-1) ?? '';
    return Object.fromEntries(
      [...report.matchAll(/([a-z-]+) (\d+)(?:,|$)/g)].map(([, kind, count]) => [kind, Number(count)]),
    );
  }

  /** In the end, since a datagram that is not answered leaves no other trace. */
  async hasDropped(service: Service, wanted: Record<string, number>): Promise<void> {
    const deadline = Date.now() + 3000;
    let found = await this.dropped(service);
    while (!covers(found, wanted) && Date.now() < deadline) {
      await delay(50);
      found = await this.dropped(service);
    }
    assert.deepEqual(found, wanted, `${service.label}, by kind`);
  }

  /** Ends the programs and closes all UDP sockets of all agents. */
  async reset(): Promise<void> {
    await this.world.reset();
    await this.world.origin.call('udpClear', undefined);
    await this.router.call('clear', undefined);
  }

  async destroy(): Promise<void> {
    await this.router.stop();
    await this.world.destroy();
  }
}

/** Its sockets are there earlier, and what comes to them waits until the workers run. */
function serves(service: Service): Promise<void> {
  return service.waitForOutput(/UDP relay enabled/, 10_000);
}

function covers(found: Record<string, number>, wanted: Record<string, number>): boolean {
  return Object.entries(wanted).every(([kind, count]) => (found[kind] ?? 0) >= count);
}
