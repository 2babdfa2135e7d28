// What the rule tests share: a testbed whose internet greets on port 80 and counts what comes straight from the client,
// and Debian's Shadowsocks programs to hand connections to.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createTestbed, type Netns, type Testbed } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { applyRules, type RulesMode, type RulesValues, type Runner } from '../../src/nft/apply.js';

export const redirPort = 1080;
export const repository = fileURLToPath(new URL('../../..', import.meta.url));
const peer = fileURLToPath(new URL('peer.js', import.meta.url));
const serverPort = 8388;

export const values: RulesValues = { port: redirPort, lan: ['l0'], bypass: ['45.9.9.2', '2a09:9::2'] };

/** Counts, in the internet, TCP packets with an address of the LAN: what went past the proxy. */
const witness = `
table inet witness {
	counter direct {
	}
	chain input {
		type filter hook prerouting priority raw;
		ip saddr 192.168.50.0/24 meta l4proto tcp counter name direct
		ip6 saddr fd50::/64 meta l4proto tcp counter name direct
	}
}`;

export interface Connect {
  /** Default: the client. */
  from?: Netns;
  uid?: number;
  /** One of several that `from` has. */
  address?: string;
}

export class Gateway {
  readonly testbed: Testbed;
  readonly #directory = mkdtempSync(join(tmpdir(), 'ss-redir-nft-'));
  readonly #proxies: Service[] = [];

  static async create(prefix: string): Promise<Gateway> {
    const testbed = await createTestbed(prefix);
    await testbed.internet.start(process.execPath, [peer, 'listen', '80', '7', '1080'], {
      listen: [80, 7, 1080],
    });
    await testbed.internet.run('nft', ['-f', '-'], { input: witness });
    return new Gateway(testbed);
  }

  constructor(testbed: Testbed) {
    this.testbed = testbed;
  }

  readonly run: Runner = (command, args) => this.testbed.gateway.run(command, args);

  apply(mode: RulesMode, changes: Partial<RulesValues> = {}): Promise<void> {
    return applyRules(mode, { ...values, ...changes }, this.run);
  }

  /** Starts Debian's ss-server in the internet and its ss-redir here. */
  async startProxy(mode: RulesMode): Promise<Service> {
    const config = join(this.#directory, 'config.json');
    writeFileSync(
      config,
      JSON.stringify({
        server: ['45.9.9.2'],
        server_port: serverPort,
        local_port: redirPort,
        password: 'rule test',
        method: 'aes-256-gcm',
        timeout: 60,
      }),
      { mode: 0o600 },
    );
    const { internet, gateway } = this.testbed;
    const server = await internet.start('ss-server', ['-c', config, '-s', '45.9.9.2'], {
      listen: serverPort,
    });
    const flags = mode === 'tproxy' ? ['-T'] : [];
    const redir = await gateway.start('ss-redir', ['-c', config, '-b', '::', ...flags], {
      listen: redirPort,
    });
    this.#proxies.push(server, redir);
    return redir;
  }

  async stopProxy(): Promise<void> {
    for (const service of this.#proxies.splice(0)) await service.stop('SIGKILL');
  }

  /** The greeting a TCP connection gets, or the errno it ends with. */
  async connect(host: string, port = 80, options: Connect = {}): Promise<string> {
    const { from = this.testbed.client, uid, address } = options;
    const env = {
      ...(uid === undefined ? {} : { PEER_UID: String(uid) }),
      ...(address === undefined ? {} : { PEER_FROM: address }),
    };
    const { stdout } = await from.run(process.execPath, [peer, 'connect', host, String(port)], { env });
    return stdout;
  }

  startPeer(netns: Netns, ...args: string[]): Promise<Service> {
    return netns.start(process.execPath, [peer, ...args]);
  }

  /** TCP packets of the LAN that the internet has seen since the last call. */
  async directPackets(): Promise<number> {
    return resetCounter(this.testbed.internet, 'witness', 'direct');
  }

  /** One of our named counters since the last call. */
  async counter(name: 'to_proxy' | 'stopped'): Promise<number> {
    return resetCounter(this.testbed.gateway, 'ss_redir_default', name);
  }

  /** All that rules and policy routing could leave behind. */
  async state(): Promise<string> {
    const { gateway } = this.testbed;
    const parts = [inOrder(String((await gateway.run('nft', ['--stateless', 'list', 'ruleset'])).stdout))];
    for (const words of ['rule', '-6 rule', 'route show table all', '-6 route show table all']) {
      parts.push(`# ip ${words}`, await gateway.ip(words));
    }
    return parts.join('\n');
  }

  async destroy(): Promise<void> {
    await this.testbed.destroy();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/** A ruleset with the parts of each table sorted: chains that stay when rules are replaced come first, whatever they are. */
function inOrder(ruleset: string): string {
  const tables = ruleset.split(/^(?=table )/m).map((table) => {
    const [head = '', ...lines] = table.split('\n');
    const parts = lines
      .join('\n')
      .replace(/\n\}\s*$/, '')
      .split('\n\n');
    return [head, parts.toSorted().join('\n\n'), '}'].join('\n');
  });
  return tables.join('\n');
}

/** What the named counter has counted since the last call. */
export async function resetCounter(netns: Netns, table: string, name: string): Promise<number> {
  const { stdout } = await netns.run('nft', ['-j', 'reset', 'counter', 'inet', table, name]);
  const objects = (JSON.parse(stdout) as { nftables: { counter?: { packets: number } }[] }).nftables;
  return objects.find((object) => object.counter)?.counter?.packets ?? Number.NaN;
}

/** Puts the gateway's LAN interface into a bridge, br0, which has the addresses from now on. */
export async function bridgeLan(gateway: Netns): Promise<void> {
  for (const words of [
    'link add br0 type bridge',
    'addr flush dev l0',
    'link set l0 master br0',
    'link set br0 up',
    'addr add 192.168.50.1/24 dev br0',
    'addr add fd50::1/64 dev br0 nodad',
  ]) {
    await gateway.ip(words);
  }
}

export function whyNoBridgeFilter(): string | undefined {
  return existsSync('/proc/sys/net/bridge') ? undefined : 'br_netfilter is not loaded';
}
