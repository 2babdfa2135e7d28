/*
 * The demo's stage: a testbed with a web server and ss-server in the internet, and in the gateway, one mode at a time,
 * ss-redir with the real rules of nft/. Counters on both sides show which way the packets took.
 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { applyRules, ownMark, removeRules, type RulesMode, type Runner } from '../nft/apply.js';
import { addresses, createTestbed, internetAddresses, type Netns, type Testbed } from './netns.js';
import type { Service } from './service.js';

export const namespacePrefix = 'ss-redir-demo';
export const method = 'aes-256-gcm';
export const redirPort = 1080;
const serverPort = 8388;
const webPort = 80;

export const server = { host: addresses.internet.ipv4, port: serverPort };
export const targets = { ipv4: internetAddresses.ipv4[2], ipv6: internetAddresses.ipv6[0] };

const trafficProgram = fileURLToPath(new URL('traffic.js', import.meta.url));
const binaries = fileURLToPath(new URL('../bin/', import.meta.url));

export interface Sight {
  /** Connections that the gateway's rules gave to ss-redir. */
  toProxy: number;
  /** TCP packets of the client that the gateway forwarded past it. */
  forwarded: number;
  /** Bytes between the gateway and the Shadowsocks server, both ways. */
  serverBytes: number;
  /** TCP packets with a LAN address that reached the internet. */
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

  /** Replaces rules and ss-redir of the mode before, if there was one. */
  async enter(mode: RulesMode): Promise<void> {
    await this.#redir?.stop();
    await removeRules(this.run);
    const flags = mode === 'tproxy' ? ['-T'] : [];
    this.#redir = await this.#startOurs(this.testbed.gateway, 'ss-redir', ['-b', '::', ...flags], redirPort);
    const bypass = [addresses.internet.ipv4, addresses.internet.ipv6];
    await applyRules(mode, { port: redirPort, lan: ['l0'], bypass }, this.run);
  }

  /** A traffic program of the client. */
  startClient(...args: string[]): Promise<Service> {
    return this.testbed.client.start(process.execPath, [trafficProgram, ...args], { label: args.join(' ') });
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
      forwarded: packets(counters, 'forwarded'),
      serverBytes: counters.get('server')?.bytes ?? Number.NaN,
      direct: packets(witness, 'direct'),
    };
  }

  get webCommand(): string[] {
    return [process.execPath, trafficProgram, 'get'];
  }

  async destroy(): Promise<void> {
    await this.testbed.destroy();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #furnishInternet(): Promise<void> {
    const { internet } = this.testbed;
    // ss-server and the web server share this namespace. With its own source address, what comes from ss-server can be
    // told from everything else.
    const local = 'table local proto kernel';
    await internet.ip(`-4 route replace local ${targets.ipv4} dev lo ${local} scope host src ${server.host}`);
    if (this.testbed.ipv6) {
      await internet.ip(`-6 route del local ${targets.ipv6} dev lo table local`);
      await internet.ip(
        `-6 route add local ${targets.ipv6} dev lo ${local} metric 0 src ${addresses.internet.ipv6}`,
      );
    }
    await internet.run('nft', [internetCounters]);
    const web = [trafficProgram, 'origin', String(webPort)];
    await internet.start(process.execPath, web, { listen: webPort, label: 'web server' });
    await this.#startOurs(internet, 'ss-server', [], serverPort);
  }

  async #startOurs(netns: Netns, command: string, flags: string[], listen: number): Promise<Service> {
    const file = this.#writeConfig();
    const onOutput = splitLines((line) => this.#onLog(`${command}: ${line}`));
    const args = [join(binaries, `${command}.js`), '-c', file, ...flags];
    const service = await netns.start(process.execPath, args, { listen, label: command, onOutput });
    await service.waitForOutput(/listening at/); // said when it is ready; the port is open a little earlier
    return service;
  }

  #writeConfig(): string {
    const file = join(this.#directory, 'config.json');
    writeFileSync(file, JSON.stringify(this.#config, null, 2), { mode: 0o600 });
    return file;
  }

  readonly #config = {
    server: server.host,
    server_port: server.port,
    local_port: redirPort,
    method,
    password: randomBytes(18).toString('base64'),
    timeout: 60,
    outbound_fwmark: ownMark,
  };
}

/** A folder for the configuration and its password, which goes with this process; those of killed ones go now. */
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

const gatewayCounters = `
table inet demo {
  counter forwarded { }
  counter server { }
  chain forward {
    type filter hook forward priority 10;
    iifname "l0" meta l4proto tcp counter name forwarded;
  }
  chain output {
    type filter hook output priority 10;
    ip daddr ${server.host} tcp dport ${server.port} counter name server;
  }
  chain input {
    type filter hook input priority 10;
    ip saddr ${server.host} tcp sport ${server.port} counter name server;
  }
}`;

const internetCounters = `
table inet demo {
  counter direct { }
  chain prerouting {
    type filter hook prerouting priority raw;
    ip saddr 192.168.50.0/24 meta l4proto tcp counter name direct;
    ip6 saddr fd50::/64 meta l4proto tcp counter name direct;
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
