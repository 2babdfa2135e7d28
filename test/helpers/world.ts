// What an end-to-end test stands on: three namespaces with the real rules in the gateway, an agent in the client and one
// in the internet, and ss-redir, ss-server and ss-local, ours or Debian's, with their configuration files.
//
//   client agent -> gateway: nft -> ss-redir -> internet: ss-server -> origin agent
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
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
import { loadRules, unloadRules, type Mode } from './rules.js';

export type Kind = 'ours' | 'debian';
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
  closed: 9099, // nobody listens
} as const;

/** Why an end-to-end test cannot run here, in one line, or false. */
export function whySkipped(): string | false {
  const reason = whyNoNetns();
  if (reason !== undefined) return reason;
  return findCommand('ss-server') ? false : 'needs shadowsocks-libev';
}

/** Keys of libev's JSON configuration. */
export type Config = Record<string, unknown>;

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

  startServer(kind: Kind, options: StartOptions = {}): Promise<Service> {
    const config = { server: '0.0.0.0', server_port: serverPort, ...common, ...options.config };
    return this.#start('ss-server', kind, options.netns ?? this.bed.internet, { ...options, config });
  }

  /** Starts ss-redir and, for its port, the gateway's rules. */
  async startRedir(kind: Kind, mode: Mode, options: StartOptions = {}): Promise<Service> {
    const config = { ...clientCommon, local_address: '::', local_port: redirPort, ...options.config };
    const args = mode === 'tproxy' ? ['-T', ...(options.args ?? [])] : options.args;
    const service = await this.#start('ss-redir', kind, this.bed.gateway, {
      ...options,
      config,
      ...(args && { args }),
    });
    await loadRules(this.bed.gateway, mode, Number(config.local_port));
    return service;
  }

  /** ss-local in the gateway. */
  startLocal(kind: Kind, options: StartOptions = {}): Promise<Service> {
    const config = { ...clientCommon, local_address: '0.0.0.0', local_port: localPort, ...options.config };
    return this.#start('ss-local', kind, this.bed.gateway, { ...options, config });
  }

  async #start(program: Program, kind: Kind, netns: Netns, options: StartOptions): Promise<Service> {
    const { config = {}, args = [], prefix = [], env = {}, waitForListen = true, node } = options;
    const file = options.file ?? this.writeConfig(config);
    const run = [...prefix, ...commandLine(program, kind, node)];
    const [command, ...words] = [...run, '-c', file, ...args];
    const port = Number(program === 'ss-server' ? config['server_port'] : config['local_port']);
    const service = await netns.start(command!, words, {
      env: { SS_REDIR_CHECKED: this.#checked ? '1' : '', ...env },
      label: `${kind} ${program}`,
      ...(waitForListen && { listen: port }),
    });
    this.#services.add(service);
    void service.exited.then(({ code, signal }) => {
      const expected = !this.#services.has(service) || code === 0 || signal === 'SIGKILL'; // a test's own doing
      if (!expected)
        console.log(`${service.label} ended (${signal ?? code}):\n${service.output.slice(-2000)}`);
    });
    return service;
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

type Program = 'ss-redir' | 'ss-server' | 'ss-local';

const common = { password, method: 'aes-256-gcm', timeout: 60, mode: 'tcp_only' };
const clientCommon = { ...common, server: addresses.internet.ipv4, server_port: serverPort };

/**
 * SS_REDIR_TEST_OURS=debian puts Debian's programs in the place of ours. That is how the tests themselves are tested:
 * those on which libev is known to be wrong must then fail.
 */
export function commandLine(program: Program, kind: Kind, node = process.execPath): string[] {
  const standIn = process.env['SS_REDIR_TEST_OURS'] === 'debian';
  if (kind === 'debian' || standIn) return [findCommand(program) ?? program];
  return [node, fileURLToPath(new URL(`../../src/bin/${program}.js`, import.meta.url))];
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
