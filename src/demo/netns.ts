/*
 * A testbed of three network namespaces on one machine, without an uplink:
 *
 *   client                       gateway                            internet
 *   c0 192.168.50.2/24  ------   l0 192.168.50.1/24
 *      fd50::2/64                   fd50::1/64
 *                                w0 45.9.9.1/24        ----------   i0 45.9.9.2/24
 *                                   2a09:9::1/64                       2a09:9::2/64
 *                                                                   lo 8.8.8.8 1.1.1.1 ... (internetAddresses)
 *
 * The client's default route is the gateway, the gateway's is the internet; the internet routes back through the gateway.
 * Nothing is translated on the way, so the internet sees who really speaks to it.
 *
 * Every name carries the pid of the process that made it. A testbed goes with its process (end, signal, uncaught error);
 * what a `kill -9` left behind is found by its dead pid and cleared by the next createTestbed() with the same prefix.
 */
import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import { execa, execaSync, type Options, type ResultPromise } from 'execa';
import { Service, type ServiceOptions } from './service.js';

/** Where `ip netns` keeps its names (iproute2, ip/ipnetns.c: NETNS_RUN_DIR). */
const netnsDirectory = '/run/netns';

const roles = ['client', 'gateway', 'internet'] as const;

/** Public-looking addresses on the internet's loopback: rules that bypass reserved networks do not bypass these. */
export const internetAddresses = {
  ipv4: ['8.8.8.8', '1.1.1.1', '93.184.216.34', '93.184.216.35'],
  ipv6: ['2606:2800:220:1::34', '2606:4700::1111'],
} as const;

export const addresses = {
  client: { ipv4: '192.168.50.2', ipv6: 'fd50::2' },
  gatewayLan: { ipv4: '192.168.50.1', ipv6: 'fd50::1' },
  gatewayWan: { ipv4: '45.9.9.1', ipv6: '2a09:9::1' },
  internet: { ipv4: '45.9.9.2', ipv6: '2a09:9::2' },
} as const;

export interface TestbedOptions {
  /** Put the pid into the names, so that several processes can use one prefix at the same time. Default true. */
  unique?: boolean;
  /** Give the namespaces IPv6. Default: whether the kernel has it. */
  ipv6?: boolean;
}

/** What `run` takes of execa's options. */
export type RunOptions = Pick<
  Options,
  'cwd' | 'env' | 'input' | 'maxBuffer' | 'reject' | 'timeout' | 'uid' | 'gid'
>;

/** What `spawn` and `start` take of them. */
export type SpawnOptions = Pick<
  Options,
  'cwd' | 'env' | 'stdin' | 'stdout' | 'stderr' | 'stdio' | 'uid' | 'gid'
>;

type SpawnSettings = SpawnOptions & { all: true; buffer: false; reject: false };
export type Spawned = ResultPromise<SpawnSettings>;

/** Says in one line why namespaces cannot be made here, or undefined if they can. Tests skip with it. */
export function whyNoNetns(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root to make network namespaces';
  for (const tool of ['ip', 'nft']) {
    if (execaSync('sh', ['-c', `command -v ${tool}`], { reject: false }).exitCode !== 0)
      return `needs ${tool}`;
  }
  return undefined;
}

/**
 * Makes and joins the three namespaces.
 *
 * @param prefix lower case letters, digits and dashes; the namespaces are PREFIX-PID-client and so on.
 */
export async function createTestbed(prefix: string, options: TestbedOptions = {}): Promise<Testbed> {
  if (!/^[a-z][a-z0-9-]{0,40}$/.test(prefix)) {
    throw new TypeError(`namespace prefix '${prefix}', expected lower case letters, digits and dashes`);
  }
  clearLeftovers(prefix);
  const name = options.unique === false ? prefix : `${prefix}-${process.pid}`;
  const ipv6 = options.ipv6 ?? existsSync('/proc/sys/net/ipv6');
  const testbed = new Testbed(name, ipv6);
  removeNamespaces(name); // an own earlier one, or with `unique: false` anybody's
  watchProcessEnd();
  live.add(testbed);
  try {
    await build(testbed);
  } catch (error) {
    await testbed.destroy();
    throw error;
  }
  return testbed;
}

export class Testbed {
  /** What stands before `-client`, `-gateway` and `-internet`. */
  readonly name: string;
  readonly ipv6: boolean;
  readonly client: Netns;
  readonly gateway: Netns;
  readonly internet: Netns;

  constructor(name: string, ipv6: boolean) {
    this.name = name;
    this.ipv6 = ipv6;
    this.client = new Netns(`${name}-client`);
    this.gateway = new Netns(`${name}-gateway`);
    this.internet = new Netns(`${name}-internet`);
  }

  get all(): Netns[] {
    return [this.client, this.gateway, this.internet];
  }

  /** Kills every process inside and removes the namespaces. May be called again. */
  async destroy(): Promise<void> {
    this.destroySync();
    // Lets the results of the killed children arrive before the caller goes on.
    await new Promise((resolve) => setImmediate(resolve));
  }

  /** The same for signal and exit handlers, which cannot wait. */
  destroySync(): void {
    removeNamespaces(this.name);
    live.delete(this);
  }
}

export class Netns {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }

  /**
   * Runs a command inside to its end. Rejects, with stderr in the message, when it fails, unless `reject` is false; the
   * result has stdout and stderr as text.
   */
  run(command: string, args: readonly string[] = [], options: RunOptions = {}): ResultPromise<RunOptions> {
    return execa<RunOptions>('ip', ['netns', 'exec', this.name, command, ...args], options);
  }

  /**
   * Starts a command inside that goes on running; its pid is the command's own, since `ip netns exec` becomes it. Never
   * rejects, keeps no output: read `stdout`, `stderr` or `all`, or they fill and the command blocks.
   */
  spawn(command: string, args: readonly string[] = [], options: SpawnOptions = {}): Spawned {
    const settings: SpawnSettings = { ...options, all: true, buffer: false, reject: false };
    return execa('ip', ['netns', 'exec', this.name, command, ...args], settings) as Spawned;
  }

  /** Starts a program inside and waits until it listens on `options.listen`, if given. */
  async start(command: string, args: readonly string[], options: ServiceOptions = {}): Promise<Service> {
    const { listen, timeoutMs, label, onOutput, ...settings } = options;
    const child = this.spawn(command, args, settings);
    const service = new Service(this, label ?? basename(command), child, onOutput);
    if (listen === undefined) return service;
    try {
      for (const port of [listen].flat()) await service.waitForListen(port, timeoutMs);
    } catch (error) {
      await service.stop('SIGKILL');
      throw error;
    }
    return service;
  }

  /** `ip` inside, one argument a word: `ip('-6 route show table all')`; its output. */
  async ip(words: string): Promise<string> {
    const { stdout } = await execa('ip', ['-n', this.name, ...words.split(/\s+/)]);
    return stdout;
  }

  /** Sets kernel parameters inside: `{ 'net.ipv4.ip_forward': 1 }`. */
  async sysctl(values: Record<string, string | number>): Promise<void> {
    const lines = Object.entries(values).map(([key, value]) => {
      const file = `/proc/sys/${key.replaceAll('.', '/')}`;
      return `echo ${value} > ${file} || exit 1`;
    });
    // Not the sysctl command: small systems come without procps.
    await this.run('sh', ['-c', lines.join('\n')]);
  }

  /** The pids of all processes inside. */
  pids(): number[] {
    return processesIn(this.name);
  }
}

async function build(testbed: Testbed): Promise<void> {
  const { client, gateway, internet, ipv6 } = testbed;
  for (const netns of testbed.all) {
    await execa('ip', ['netns', 'add', netns.name]);
    await netns.sysctl(kernelSettings(ipv6));
  }
  await gateway.sysctl({
    'net.ipv4.ip_forward': 1,
    ...(ipv6 ? { 'net.ipv6.conf.all.forwarding': 1 } : {}),
  });
  // Both ends are made inside, so that no name is ever taken on the machine itself.
  await execa('ip', [
    '-n',
    client.name,
    ...`link add c0 type veth peer name l0 netns ${gateway.name}`.split(' '),
  ]);
  await execa('ip', [
    '-n',
    gateway.name,
    ...`link add w0 type veth peer name i0 netns ${internet.name}`.split(' '),
  ]);

  await batch(client, ipv6, [
    'link set lo up',
    'link set c0 up',
    'addr add 192.168.50.2/24 broadcast + dev c0',
    'addr add fd50::2/64 dev c0 nodad',
  ]);
  await batch(gateway, ipv6, [
    'link set lo up',
    'link set l0 up',
    'link set w0 up',
    'addr add 192.168.50.1/24 broadcast + dev l0',
    'addr add 45.9.9.1/24 broadcast + dev w0',
    'addr add fd50::1/64 dev l0 nodad',
    'addr add 2a09:9::1/64 dev w0 nodad',
  ]);
  await batch(internet, ipv6, [
    'link set lo up',
    'link set i0 up',
    'addr add 45.9.9.2/24 broadcast + dev i0',
    'addr add 2a09:9::2/64 dev i0 nodad',
    ...internetAddresses.ipv4.map((address) => `addr add ${address}/32 dev lo`),
    ...internetAddresses.ipv6.map((address) => `addr add ${address}/128 dev lo nodad`),
  ]);
  await batch(client, ipv6, ['route add default via 192.168.50.1', 'route add default via fd50::1']);
  await batch(gateway, ipv6, ['route add default via 45.9.9.2', 'route add default via 2a09:9::2']);
  await batch(internet, ipv6, ['route add default via 45.9.9.1', 'route add default via 2a09:9::1']);
}

function kernelSettings(ipv6: boolean): Record<string, string | number> {
  const settings: Record<string, string | number> = {
    // The host's choice (often bbr) paces, which makes CPU per GB of the same program differ by up to 2 times.
    'net.ipv4.tcp_congestion_control': 'reno',
    // New namespaces copy these from the machine: start from the same values everywhere.
    'net.ipv4.conf.all.rp_filter': 0,
    'net.ipv4.conf.default.rp_filter': 0,
    'net.ipv4.conf.all.src_valid_mark': 0,
  };
  if (existsSync('/proc/sys/net/ipv6')) {
    settings['net.ipv6.conf.all.disable_ipv6'] = ipv6 ? 0 : 1;
    settings['net.ipv6.conf.default.disable_ipv6'] = ipv6 ? 0 : 1;
    // Duplicate address detection holds a new address back for a second or two.
    settings['net.ipv6.conf.all.accept_dad'] = 0;
    settings['net.ipv6.conf.default.accept_dad'] = 0;
  }
  for (const family of ['iptables', 'ip6tables', 'arptables']) {
    // On in every new namespace once br_netfilter is loaded; a bridge then hands packets to nft twice.
    const key = `bridge-nf-call-${family}`;
    if (existsSync(`/proc/sys/net/bridge/${key}`)) settings[`net.bridge.${key}`] = 0;
  }
  return settings;
}

async function batch(netns: Netns, ipv6: boolean, lines: readonly string[]): Promise<void> {
  const input = lines.filter((line) => ipv6 || !line.includes('::')).join('\n');
  await execa('ip', ['-n', netns.name, '-batch', '-'], { input });
}

// Removal. All of it is synchronous: it has to work in an exit handler.

const live = new Set<Testbed>();
let watching = false;

function watchProcessEnd(): void {
  if (watching) return;
  watching = true;
  process.on('exit', destroyAll); // also after an uncaught error
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => {
      destroyAll();
      // Dies of the signal as it would have without us, unless somebody else here handles it.
      if (process.listenerCount(signal) === 0) process.kill(process.pid, signal);
    });
  }
}

function destroyAll(): void {
  for (const testbed of live) testbed.destroySync();
}

function removeNamespaces(name: string): void {
  for (const role of roles) removeNamespace(`${name}-${role}`);
}

/** A namespace that is not there is no error. */
function removeNamespace(name: string): void {
  if (!existsSync(`${netnsDirectory}/${name}`)) return;
  const deadline = Date.now() + 5000;
  // Again until none is left: a process may fork while we look.
  for (let pids = processesIn(name); pids.length > 0 && Date.now() < deadline; pids = processesIn(name)) {
    for (const pid of pids) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // gone already
      }
    }
  }
  execaSync('ip', ['netns', 'delete', name], { reject: false });
}

function processesIn(name: string): number[] {
  const { stdout } = execaSync('ip', ['netns', 'pids', name], { reject: false });
  return stdout.split('\n').filter(Boolean).map(Number);
}

/** Removes what a process that was killed left behind under `prefix`; returns the names of the namespaces it removed. */
export function clearLeftovers(prefix: string): string[] {
  const own = new Set([...live].flatMap((testbed) => testbed.all.map((netns) => netns.name)));
  const pattern = new RegExp(`^${prefix}-(\\d+)-(?:${roles.join('|')})$`);
  const removed: string[] = [];
  for (const name of existsSync(netnsDirectory) ? readdirSync(netnsDirectory) : []) {
    const pid = pattern.exec(name)?.[1];
    if (pid === undefined || own.has(name) || isOtherNode(Number(pid))) continue;
    removeNamespace(name);
    removed.push(name);
  }
  return removed;
}

/** Whether `pid` is a Node process that is not this one. Another program there has merely inherited the number. */
function isOtherNode(pid: number): boolean {
  if (pid === process.pid) return false;
  try {
    return basename(readlinkSync(`/proc/${pid}/exe`)).startsWith('node');
  } catch {
    return false;
  }
}
