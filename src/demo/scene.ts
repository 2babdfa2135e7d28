/*
 * The demo's stage: a testbed with a web server, a name server and ss-server in the internet, and in the gateway, one act at
 * a time, ss-redir with the real rules of nft/. Counters on both sides show which way the packets took.
 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Edition } from '../crypto/methods.js';
import { applyRules, ownMark, removeRules, type RulesMode, type Runner } from '../nft/apply.js';
import { addresses, createTestbed, internetAddresses, type Netns, type Testbed } from './netns.js';
import type { Service } from './service.js';

export const namespacePrefix = 'ss-redir-demo';
export const redirPort = 1080;
const webPort = 80;
/** A start, on a machine that is slow or has much else to do. */
const timeoutMs = 20_000;

interface Server {
  method: string;
  host: string;
  port: number;
}

/** One ss-server for each edition of the protocol. */
export const servers: Readonly<Record<Edition, Server>> = {
  aead: { method: 'aes-256-gcm', host: addresses.internet.ipv4, port: 8388 },
  '2022': { method: '2022-blake3-aes-256-gcm', host: addresses.internet.ipv4, port: 8389 },
};

export const targets = { ipv4: internetAddresses.ipv4[2], ipv6: internetAddresses.ipv6[0] };

/** What ss-redir and the rules are set to. */
export interface Act {
  mode: RulesMode;
  edition: Edition;
}

export const acts: readonly Act[] = [
  { mode: 'redirect', edition: 'aead' },
  { mode: 'tproxy', edition: 'aead' },
  { mode: 'tproxy', edition: '2022' },
];

export function actTitle({ mode, edition }: Act): string {
  return edition === '2022' ? `${mode.toUpperCase()} 2022` : mode.toUpperCase();
}

const trafficProgram = fileURLToPath(new URL('traffic.js', import.meta.url));
const datagramProgram = fileURLToPath(new URL('datagrams.js', import.meta.url));
const binaries = fileURLToPath(new URL('../bin/', import.meta.url));

export interface Sight {
  /** Connections that the gateway's rules gave to ss-redir. */
  toProxy: number;
  /** Datagrams that they gave to it. */
  toProxyUdp: number;
  /** TCP and UDP packets of the client that the gateway forwarded past it. */
  forwarded: number;
  /** Bytes between the gateway and the Shadowsocks servers, both ways. */
  serverBytes: number;
  /** TCP and UDP packets with a LAN address that reached the internet. */
  direct: number;
}

export class Scene {
  readonly testbed: Testbed;
  readonly #directory: string;
  readonly #onLog: (line: string) => void;
  #redir: Service | undefined;

  /** @param onLog gets the lines that ss-redir and ss-server write. */
  static async create(onLog: (line: string) => void): Promise<Scene> {
    const directory = makeDirectory();
    const scene = new Scene(await createTestbed(namespacePrefix), directory, onLog);
    await scene.#furnishInternet();
    await scene.run('nft', [gatewayCounters]);
    return scene;
  }

  private constructor(testbed: Testbed, directory: string, onLog: (line: string) => void) {
    this.testbed = testbed;
    this.#directory = directory;
    this.#onLog = onLog;
  }

  readonly run: Runner = (command, args) => this.testbed.gateway.run(command, args);

  /** Replaces rules and ss-redir of the act before, if there was one. UDP needs TPROXY. */
  async enter({ mode, edition }: Act): Promise<void> {
    await this.#redir?.stop();
    await removeRules(this.run);
    const flags = ['-b', '::', ...(mode === 'tproxy' ? ['-T', '-u'] : [])];
    const { gateway } = this.testbed;
    this.#redir = await this.#startOurs(gateway, 'ss-redir', servers[edition], flags, redirPort);
    const bypass = [addresses.internet.ipv4, addresses.internet.ipv6];
    await applyRules(mode, { port: redirPort, lan: ['l0'], protocols: ['tcp', 'udp'], bypass }, this.run);
  }

  /** A traffic program of the client, TCP. */
  startClient(...args: string[]): Promise<Service> {
    return this.testbed.client.start(process.execPath, [trafficProgram, ...args], { label: args.join(' ') });
  }

  /** What a UDP program of the client prints. */
  async runDatagrams(...args: string[]): Promise<string> {
    const { stdout } = await this.testbed.client.run(process.execPath, [datagramProgram, ...args]);
    return stdout.trim();
  }

  /** What gateway and internet have seen since the last look. */
  async look(): Promise<Sight> {
    const { gateway, internet } = this.testbed;
    const [rules, counters, witness] = await Promise.all([
      resetCounters(gateway, 'ss_redir_default'),
      resetCounters(gateway, 'demo'),
      resetCounters(internet, 'demo'),
    ]);
    return {
      toProxy: packets(rules, 'to_proxy'),
      toProxyUdp: rules.get('to_proxy_udp')?.packets ?? 0, // not there in redirect.nft
      forwarded: packets(counters, 'forwarded'),
      serverBytes: counters.get('server')?.bytes ?? Number.NaN,
      direct: packets(witness, 'direct'),
    };
  }

  get webCommand(): string[] {
    return [process.execPath, trafficProgram, 'get'];
  }

  get whoamiCommand(): string[] {
    return [process.execPath, datagramProgram, 'whoami'];
  }

  async destroy(): Promise<void> {
    await this.testbed.destroy();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #furnishInternet(): Promise<void> {
    const { internet } = this.testbed;
    // ss-server and those it talks to share this namespace. With its own source address, what comes from ss-server can be
    // told from everything else.
    const local = 'table local proto kernel';
    const { ipv4, ipv6 } = addresses.internet;
    await internet.ip(`-4 route replace local ${targets.ipv4} dev lo ${local} scope host src ${ipv4}`);
    if (this.testbed.ipv6) {
      await internet.ip(`-6 route del local ${targets.ipv6} dev lo table local`);
      await internet.ip(`-6 route add local ${targets.ipv6} dev lo ${local} metric 0 src ${ipv6}`);
    }
    await internet.run('nft', [internetCounters]);
    const web = [trafficProgram, 'origin', String(webPort)];
    await internet.start(process.execPath, web, { listen: webPort, timeoutMs, label: 'web server' });
    const far = this.testbed.ipv6 ? [targets.ipv4, targets.ipv6] : [targets.ipv4];
    const names = [datagramProgram, 'origin', ...far];
    await (
      await internet.start(process.execPath, names, { label: 'name server' })
    ).waitForOutput(/ready/, timeoutMs);
    for (const server of Object.values(servers)) {
      await this.#startOurs(internet, 'ss-server', server, ['-u'], server.port);
    }
  }

  async #startOurs(
    netns: Netns,
    command: string,
    server: Server,
    flags: string[],
    listen: number,
  ): Promise<Service> {
    const file = this.#writeConfig(server);
    const onOutput = splitLines((line) => this.#onLog(`${command}: ${line}`));
    const args = [join(binaries, `${command}.js`), '-c', file, ...flags];
    const service = await netns.start(process.execPath, args, {
      listen,
      timeoutMs,
      label: command,
      onOutput,
    });
    await service.waitForOutput(/listening at/, timeoutMs); // said when it is ready; the port is open a little earlier
    return service;
  }

  #writeConfig({ method, host, port }: Server): string {
    const file = join(this.#directory, `${method}.json`);
    const config = {
      server: host,
      server_port: port,
      local_port: redirPort,
      method,
      password: this.#password,
      timeout: 60,
      outbound_fwmark: ownMark,
    };
    writeFileSync(file, JSON.stringify(config, null, 2), { mode: 0o600 });
    return file;
  }

  /** What the 2022 edition takes for a key passes for a password, too. */
  readonly #password = randomBytes(32).toString('base64');
}

/** A folder for the configurations and their password, which goes with this process; those of killed ones go now. */
function makeDirectory(): string {
  const prefix = `${namespacePrefix}-`;
  for (const name of readdirSync(tmpdir())) {
    const pid = new RegExp(`^${prefix}(\\d+)-`).exec(name)?.[1];
    if (pid === undefined || isAlive(Number(pid))) continue;
    rmSync(join(tmpdir(), name), { recursive: true, force: true });
  }
  const directory = mkdtempSync(join(tmpdir(), `${prefix}${process.pid}-`));
  process.on('exit', () => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const serverPorts = Object.values(servers)
  .map(({ port }) => port)
  .join(', ');

const gatewayCounters = `
table inet demo {
  counter forwarded { }
  counter server { }
  chain forward {
    type filter hook forward priority 10;
    iifname "l0" meta l4proto { tcp, udp } counter name forwarded;
  }
  chain output {
    type filter hook output priority 10;
    ip daddr ${servers.aead.host} meta l4proto { tcp, udp } th dport { ${serverPorts} } counter name server;
  }
  chain input {
    type filter hook input priority 10;
    ip saddr ${servers.aead.host} meta l4proto { tcp, udp } th sport { ${serverPorts} } counter name server;
  }
}`;

const internetCounters = `
table inet demo {
  counter direct { }
  chain prerouting {
    type filter hook prerouting priority raw;
    ip saddr 192.168.50.0/24 meta l4proto { tcp, udp } counter name direct;
    ip6 saddr fd50::/64 meta l4proto { tcp, udp } counter name direct;
  }
}`;

interface Counter {
  name: string;
  packets: number;
  bytes: number;
}

async function resetCounters(netns: Netns, table: string): Promise<Map<string, Counter>> {
  const { stdout } = await netns.run('nft', ['-j', 'reset', 'counters', 'table', 'inet', table]);
  const { nftables } = JSON.parse(stdout) as { nftables: { counter?: Counter }[] };
  return new Map(nftables.flatMap(({ counter }) => (counter ? [[counter.name, counter]] : [])));
}

function packets(counters: Map<string, Counter>, name: string): number {
  return counters.get(name)?.packets ?? Number.NaN;
}

function splitLines(onLine: (line: string) => void): (text: string) => void {
  let rest = '';
  return (text) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) onLine(line);
  };
}
