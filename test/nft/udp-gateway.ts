// A gateway (gateway.ts) for UDP: agents hold datagram sockets in the three namespaces, ss-redir and ss-server are ours, and
// the internet counts the datagrams that come without them.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  addresses,
  createTestbed,
  internetAddresses,
  type Netns,
  type Testbed,
} from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { applyRules, removeRules, type RulesValues, type Runner } from '../../src/nft/apply.js';
import { Agent } from '../helpers/agents.js';
import type { UdpBehaviourName } from '../helpers/udp-agent.js';
import { UdpSocket } from '../helpers/udp-sockets.js';
import { redirPort, resetCounter, values } from './gateway.js';

/** Who is who, in each family. */
export const families = [
  {
    family: 'IPv4',
    any: '0.0.0.0',
    target: internetAddresses.ipv4[2],
    stranger: internetAddresses.ipv4[0],
    client: '192.168.50.2',
    lan: '192.168.50.1',
    wan: '45.9.9.1',
    server: '45.9.9.2',
  },
  {
    family: 'IPv6',
    any: '::',
    target: internetAddresses.ipv6[0],
    stranger: internetAddresses.ipv6[1],
    client: 'fd50::2',
    lan: 'fd50::1',
    wan: '2a09:9::1',
    server: '2a09:9::2',
  },
] as const;

export type Family = (typeof families)[number];

const binaries = fileURLToPath(new URL('../../src/bin/', import.meta.url));
const peer = fileURLToPath(new URL('peer.js', import.meta.url));
const serverPort = 8388;
/** A start, on a machine that has much else to do. */
const timeoutMs = 20_000;

/** Counts, in the internet, UDP with an address of the LAN, and of the router itself beside ss-redir's packets. */
const witness = `
table inet witness {
	counter lan {
	}
	counter router {
	}
	chain input {
		type filter hook prerouting priority raw;
		ip saddr 192.168.50.0/24 meta l4proto udp counter name lan
		ip6 saddr fd50::/64 meta l4proto udp counter name lan
		ip saddr 45.9.9.1 udp dport != ${serverPort} counter name router
		ip6 saddr 2a09:9::1 meta l4proto udp counter name router
	}
}`;

export class UdpGateway {
  readonly testbed: Testbed;
  readonly client: Agent;
  readonly router: Agent;
  readonly internet: Agent;
  readonly #directory = mkdtempSync(join(tmpdir(), 'ss-redir-nft-'));
  #relay: Service[] = [];

  static async create(prefix: string): Promise<UdpGateway> {
    const testbed = await createTestbed(prefix);
    await testbed.internet.run('nft', ['-f', '-'], { input: witness });
    return new UdpGateway(testbed);
  }

  private constructor(testbed: Testbed) {
    this.testbed = testbed;
    this.client = new Agent(testbed.client.name);
    this.router = new Agent(testbed.gateway.name);
    this.internet = new Agent(testbed.internet.name);
  }

  readonly run: Runner = (command, args) => this.testbed.gateway.run(command, args);

  apply(changes: Partial<RulesValues> = {}): Promise<void> {
    return applyRules('tproxy', { ...values, protocols: ['tcp', 'udp'], ...changes }, this.run);
  }

  /** Rules of somebody else, in the gateway. */
  async other(rules: string): Promise<void> {
    await this.testbed.gateway.run('nft', ['-f', '-'], { input: `table inet other {\n${rules}\n}` });
  }

  async startRelay(): Promise<void> {
    const file = join(this.#directory, 'config.json');
    const server = addresses.internet.ipv4;
    const config = {
      server,
      server_port: serverPort,
      local_port: redirPort,
      password: 'rule test',
      method: 'aes-256-gcm',
    };
    writeFileSync(file, JSON.stringify(config), { mode: 0o600 });
    const { internet, gateway } = this.testbed;
    this.#relay = await Promise.all([
      this.#startOurs(internet, 'ss-server', file, ['-u'], serverPort),
      this.#startOurs(gateway, 'ss-redir', file, ['-b', '::', '-T', '-u'], redirPort),
    ]);
  }

  async #startOurs(netns: Netns, command: string, file: string, flags: string[], listen: number) {
    const args = [join(binaries, `${command}.js`), '-c', file, ...flags];
    const service = await netns.start(process.execPath, args, { listen, timeoutMs, label: command });
    await service.waitForOutput(/listening at/, timeoutMs);
    return service;
  }

  async stopRelay(): Promise<void> {
    await Promise.all(this.#relay.splice(0).map((service) => service.stop('SIGKILL')));
  }

  /** A far end; `mirror` answers with whom it was asked by. */
  remote(host: string, port: number, behaviour: UdpBehaviourName = 'mirror'): Promise<UdpSocket> {
    return UdpSocket.open(this.internet, { host, port, behaviour });
  }

  /** Whom a far end sees: of the relay it is the far end's own address, since both are in one namespace. */
  async seen(host: string, port: number, by: Agent = this.client): Promise<string | undefined> {
    const socket = await UdpSocket.open(by, { host: host.includes(':') ? '::' : '0.0.0.0' });
    const answer = await socket.ask({ host, port }, 'question');
    return answer.split(' ')[0];
  }

  /** From a connected socket, which hears of ICMP errors: `ANSWER`, the errno, or ETIMEDOUT. */
  async ask(host: string, port: number, from: Netns = this.testbed.client): Promise<string> {
    return (await from.run(process.execPath, [peer, 'ask-udp', host, String(port)])).stdout;
  }

  start(netns: Netns, ...args: string[]): Promise<Service> {
    return netns.start(process.execPath, [peer, ...args]);
  }

  /** Datagrams that came to the internet past the proxy since the last call. */
  passed(who: 'lan' | 'router' = 'lan'): Promise<number> {
    return resetCounter(this.testbed.internet, 'witness', who);
  }

  /** One of our named counters since the last call. */
  counter(name: 'to_proxy_udp' | 'stopped'): Promise<number> {
    return resetCounter(this.testbed.gateway, 'ss_redir_default', name);
  }

  /** Takes rules away and closes all sockets; the relay stays. */
  async reset(): Promise<void> {
    await removeRules(this.run);
    await this.run('nft', ['add table inet other; delete table inet other']);
    for (const agent of [this.client, this.router, this.internet]) await agent.call('udpClear', undefined);
    await this.passed('lan');
    await this.passed('router');
  }

  async destroy(): Promise<void> {
    await Promise.all([this.client, this.router, this.internet].map((agent) => agent.stop()));
    await this.testbed.destroy();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
