// What an end-to-end test stands on: three namespaces with the real rules in the gateway, an agent in the client and one
// in the internet, and between them the programs under test, ours or a peer's (peers.ts), with their configuration files.
//
//   client agent -> gateway: nft -> ss-redir -> internet: ss-server -> origin agent
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import {
  addresses,
  createTestbed,
  type Netns,
  internetAddresses,
  whyNoNetns,
  type Testbed,
} from '../../src/demo/netns.js';
import { readUsage, type Service } from '../../src/demo/service.js';
import { Agent } from './agents.js';
import { findCommand } from './packages.js';
import {
  clientRuns,
  commandLine,
  portsOf,
  serverRun,
  type ClientKind,
  type Config,
  type Kind,
  type PeerKind,
  type Run,
  type Tunnel,
} from './peers.js';
import { loadRules, unloadRules, type Mode } from './rules.js';

export { commandLine, type Config, type Kind, type PeerKind } from './peers.js';
export type { Mode } from './rules.js';
export type Family = 'ipv4' | 'ipv6';

export const methods = [
  'aes-128-gcm',
  'aes-192-gcm',
  'aes-256-gcm',
  'chacha20-ietf-poly1305',
  'xchacha20-ietf-poly1305',
] as const;
export const modes: readonly Mode[] = ['redirect', 'tproxy'];
export const families: readonly Family[] = ['ipv4', 'ipv6'];

/** Where the client's connections go: addresses of the internet's loopback. */
export const origins = { ipv4: internetAddresses.ipv4[2], ipv6: internetAddresses.ipv6[0] } as const;
export const password = 'correct horse';
export const serverPort = 8388;
export const redirPort = 1234;
export const localPort = 1080;
export const tunnelPort = 1081;

/** The origin's ports, one a behaviour of helpers/agent.ts. */
export const originPorts = {
  transfer: 9001,
  closing: 9002, // transfer that closes after its last byte
  slow: 9003, // transfer that reads slowly for the first two seconds
  banner: 25,
  echo: 9005,
  silent: 9006,
  stopped: 9007,
  manual: 9008,
  manual2: 9010,
  udpEcho: 9011,
  closed: 9099, // nobody listens
} as const;

/** Why an end-to-end test cannot run here, in one line, or false. */
export function whySkipped(): string | false {
  const reason = whyNoNetns();
  if (reason !== undefined) return reason;
  return findCommand('ss-server') ? false : 'needs shadowsocks-libev';
}

export interface StartOptions {
  config?: Config;
  /** A configuration file as it is, in the place of one made of `config`. */
  file?: string;
  /** Where to start it. Default: the namespace that the program's part in the testbed asks for. */
  netns?: Netns;
  args?: string[];
  /** Commands in front that become the program, such as prlimit. */
  prefix?: string[];
  env?: Record<string, string>;
  /** Wait for the port. Default true. */
  waitForListen?: boolean;
  /** The Node binary that runs ours. Default: the one that runs this. */
  node?: string;
}

export interface WorldOptions {
  /** Run ours in checked mode. Default true; a bench must not. */
  checked?: boolean;
}

/** What rules hand to a ss-redir of this configuration. */
function protocolsOf({ mode }: { mode?: unknown }): ('tcp' | 'udp')[] {
  if (mode === 'tcp_and_udp') return ['tcp', 'udp'];
  return mode === 'udp_only' ? ['udp'] : ['tcp'];
}

export class World {
  readonly bed: Testbed;
  readonly client: Agent;
  readonly origin: Agent;
  readonly directory: string;
  readonly #services = new Set<Service>();
  readonly #checked: boolean;
  #files = 0;

  private constructor(bed: Testbed, { checked = true }: WorldOptions) {
    this.bed = bed;
    this.#checked = checked;
    this.client = new Agent(bed.client.name);
    this.origin = new Agent(bed.internet.name);
    this.directory = mkdtempSync(join(tmpdir(), 'ss-redir-test-'));
  }

  static async create(label: string, options: WorldOptions = {}): Promise<World> {
    const world = new World(await createTestbed(`ssr-${label}`), options);
    await world.serveOrigin();
    return world;
  }

  async serveOrigin(): Promise<void> {
    const { transfer, closing, slow, banner, echo, silent, stopped, manual, manual2 } = originPorts;
    await this.origin.listen({ port: transfer, behaviour: 'transfer' });
    await this.origin.listen({ port: closing, behaviour: 'transfer', options: { closeAfter: true } });
    await this.origin.listen({ port: slow, behaviour: 'transfer', options: { slowReadMs: 2000 } });
    await this.origin.listen({ port: banner, behaviour: 'banner' });
    await this.origin.listen({ port: echo, behaviour: 'echo' });
    await this.origin.listen({ port: silent, behaviour: 'silent' });
    await this.origin.listen({ port: stopped, behaviour: 'stopped' });
    await this.origin.listen({ port: manual, behaviour: 'manual' });
    await this.origin.listen({ port: manual2, behaviour: 'manual' });
  }

  startServer(kind: PeerKind, options: StartOptions = {}): Promise<Service> {
    const config = { server: '0.0.0.0', server_port: serverPort, ...common, ...options.config };
    return this.#start(serverRun(kind, config, options.node), this.bed.internet, options);
  }

  /** Starts ss-redir and, for its port, the gateway's rules. */
  async startRedir(kind: Kind, mode: Mode, options: StartOptions = {}): Promise<Service> {
    const config = { ...clientCommon, local_address: '::', local_port: redirPort, ...options.config };
    const args = mode === 'tproxy' ? ['-T', ...(options.args ?? [])] : options.args;
    const command = commandLine('ss-redir', kind, options.node);
    const port = Number(config.local_port);
    const run = { label: `${kind} ss-redir`, command, config, ...portsOf(config, port) };
    const service = await this.#start(run, this.bed.gateway, { ...options, ...(args && { args }) });
    await loadRules(this.bed.gateway, mode, port, { protocols: protocolsOf(config) });
    return service;
  }

  /** ss-local in the gateway. */
  startLocal(kind: 'debian', options: StartOptions = {}): Promise<Service> {
    const config = { ...clientCommon, local_address: '0.0.0.0', local_port: localPort, ...options.config };
    const command = commandLine('ss-local', kind, options.node);
    const run = { label: `${kind} ss-local`, command, config, ...portsOf(config, config.local_port) };
    return this.#start(run, this.bed.gateway, options);
  }

  /** The peer's own client in the gateway: SOCKS5 for TCP on `localPort`, and for UDP a tunnel on `tunnelPort`. */
  async startClient(kind: ClientKind, target: Tunnel['target'], options: StartOptions = {}): Promise<void> {
    const config = { ...clientCommon, local_address: '::', local_port: localPort, ...options.config };
    const runs = clientRuns(kind, config, { port: tunnelPort, target });
    for (const run of runs) await this.#start(run, this.bed.gateway, options);
  }

  async #start(run: Run, where: Netns, options: StartOptions): Promise<Service> {
    const { args = [], prefix = [], env = {}, waitForListen = true, netns = where } = options;
    const file = options.file ?? this.writeConfig(run.config);
    const [command, ...words] = [...prefix, ...run.command, '-c', file, ...args];
    const service = await netns.start(command!, words, {
      env: { SS_REDIR_CHECKED: this.#checked ? '1' : '', ...env },
      label: run.label,
      ...(waitForListen && run.tcpPort !== undefined && { listen: run.tcpPort }),
    });
    this.#services.add(service);
    void service.exited.then(({ code, signal }) => {
      const expected = !this.#services.has(service) || code === 0 || signal === 'SIGKILL'; // a test's own doing
      if (!expected)
        console.log(`${service.label} ended (${signal ?? code}):\n${service.output.slice(-2000)}`);
    });
    if (waitForListen && run.udpPort !== undefined) await this.#untilBound(service, netns, run.udpPort);
    return service;
  }

  /** Some programs listen by TCP before they have their UDP socket, and some have nothing else. */
  async #untilBound(service: Service, netns: Netns, port: number): Promise<void> {
    const isBound = () => boundUdpPorts(service.pid, netns).has(port) || !service.running;
    const settled = (await this.settles(isBound, 5000)) && service.running;
    assert.ok(settled, `${service.label} has no UDP socket on port ${port}: ${service.output.trim()}`);
  }

  writeConfig(config: Config | string): string {
    const file = join(this.directory, `${this.#files++}.json`);
    writeFileSync(file, typeof config === 'string' ? config : JSON.stringify(config), { mode: 0o600 });
    return file;
  }

  async stop(service: Service): Promise<void> {
    this.#services.delete(service);
    await service.stop();
  }

  /**
   * The descriptors of a program at rest: a worker may still be opening its own when the port listens, since the main
   * thread made the listener.
   */
  async restingFds(service: Service): Promise<number> {
    await service.waitForOutput(/listening at/); // said when all workers serve, which on a busy machine takes a while
    let fds = service.usage().fds;
    for (let unchanged = 0; unchanged < 10; unchanged++) {
      await delay(20);
      const now = service.usage().fds;
      if (now !== fds) unchanged = 0;
      fds = now;
    }
    return fds;
  }

  /** Waits until `isTrue`, asking again and again; false if it did not become true within `ms`. */
  async settles(isTrue: () => boolean, ms = 1000): Promise<boolean> {
    const deadline = Date.now() + ms;
    while (!isTrue()) {
      if (Date.now() > deadline) return false;
      await delay(20);
    }
    return true;
  }

  assertGrowth(service: Service, before: number, limit: number): void {
    const growth = service.usage().rssBytes - before;
    const [grown, allowed] = [growth, limit].map((bytes) => (bytes / 1_048_576).toFixed(1));
    assert.ok(growth < limit, `${service.label}: RSS grew by ${grown} MiB, allowed ${allowed}`);
  }

  /** After `link set c0 down`, which takes the routes and the IPv6 address along. */
  async restoreClientLink(): Promise<void> {
    const { client } = this.bed;
    await client.ip('link set c0 up');
    await client.ip('route replace default via 192.168.50.1');
    await client.ip('addr replace fd50::2/64 dev c0 nodad');
    await client.ip('route replace default via fd50::1');
  }

  /** Ends the programs and takes the rules away; the namespaces and agents stay for the next test. */
  async reset(): Promise<void> {
    await Promise.all([...this.#services].map((service) => this.stop(service)));
    await unloadRules(this.bed.gateway);
    await this.client.call('clear', undefined);
  }

  async destroy(): Promise<void> {
    await this.reset();
    await Promise.all([this.client.stop(), this.origin.stop()]);
    await this.bed.destroy();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

const common = { password, method: 'aes-256-gcm', timeout: 60, mode: 'tcp_only' };
const clientCommon = { ...common, server: addresses.internet.ipv4, server_port: serverPort };

/** Of all programs in the namespace, once `pid` is in it: between fork and exec, `ip netns exec` is still outside. */
function boundUdpPorts(pid: number, { name }: Netns): Set<number> {
  const lines = ['udp', 'udp6'].flatMap((table) => {
    try {
      const inside = readlinkSync(`/proc/${pid}/ns/net`) === `net:[${statSync(`/run/netns/${name}`).ino}]`;
      return inside ? readFileSync(`/proc/${pid}/net/${table}`, 'utf8').split('\n').slice(1) : [];
    } catch {
      return []; // it has ended, or the kernel has no IPv6
    }
  });
  return new Set(lines.map((line) => parseInt(/^\s*\d+: [0-9A-F]+:([0-9A-F]{4})/.exec(line)?.[1] ?? '', 16)));
}

/** CPU seconds, user and system, of all threads of `pid`, that `work` took. Resolution 10 ms. */
export async function cpuSeconds(pid: number, work: () => Promise<unknown>): Promise<number> {
  const before = readUsage(pid);
  await work();
  const after = readUsage(pid);
  return after.userSeconds + after.systemSeconds - before.userSeconds - before.systemSeconds;
}

/** Milliseconds that `work` took. */
export async function elapsedMs(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}
