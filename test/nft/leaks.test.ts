// Traffic of a client that goes on without a pause while everything happens to ss-redir and to the rules: nothing of it may
// reach the internet in clear, from the moment `up` has returned to the moment `down` is asked for; with the kill switch also
// after that.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createTestbed, internetAddresses, whyNoNetns, type Testbed } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { NftCommand } from './command.js';

const binaries = fileURLToPath(new URL('../../src/bin/', import.meta.url));
const load = fileURLToPath(new URL('leak-load.js', import.meta.url));
const targets = [internetAddresses.ipv4[2], internetAddresses.ipv6[0]];
const startMs = 20_000; // on a machine that has much else to do
/** Long enough for some hundred attempts. */
const stateMs = 400;

/** Counts, in the internet, what comes with an address of the LAN. */
const witness = `
table inet witness {
	counter tcp_ipv4 {
	}
	counter tcp_ipv6 {
	}
	counter udp_ipv4 {
	}
	counter udp_ipv6 {
	}
	counter icmp_any {
	}
	chain input {
		type filter hook prerouting priority raw;
		iifname != "i0" return
		ip saddr 192.168.50.0/24 meta l4proto tcp counter name tcp_ipv4
		ip saddr 192.168.50.0/24 meta l4proto udp counter name udp_ipv4
		ip6 saddr fd50::/64 meta l4proto tcp counter name tcp_ipv6
		ip6 saddr fd50::/64 meta l4proto udp counter name udp_ipv6
		ip saddr 192.168.50.0/24 meta l4proto icmp counter name icmp_any
		ip6 saddr fd50::/64 icmpv6 type { destination-unreachable, packet-too-big, time-exceeded } counter name icmp_any
	}
}`;

/** A firewall or NAT that was there before has switched conntrack on. */
const tracking = `
table inet tracking {
	chain forward {
		type filter hook forward priority filter;
		ct state established counter accept
	}
}`;

class LeakBed {
  readonly testbed: Testbed;
  readonly nft: NftCommand;
  readonly isHeld: boolean;
  /** The place of a holder's socket is not of the namespace. */
  readonly instance = `leaks-${process.pid}`;
  readonly #directory = mkdtempSync(join(tmpdir(), 'ss-redir-leaks-'));
  readonly #config: string;
  readonly #redirArgs: string[];
  readonly #loads: Service[] = [];
  #redir: Service | undefined;

  static async create(prefix: string, redirArgs: string[], isHeld = false): Promise<LeakBed> {
    const bed = new LeakBed(await createTestbed(prefix), redirArgs, isHeld);
    const { internet } = bed.testbed;
    await internet.run('nft', ['-f', '-'], { input: witness });
    await internet.start(process.execPath, [load, 'serve'], { listen: 80, timeoutMs: startMs });
    const server = [join(binaries, 'ss-server.js'), '-c', bed.#config, '-u'];
    await internet.start(process.execPath, server, { listen: 8388, timeoutMs: startMs });
    return bed;
  }

  private constructor(testbed: Testbed, redirArgs: string[], isHeld: boolean) {
    this.testbed = testbed;
    this.isHeld = isHeld;
    this.nft = new NftCommand(testbed.gateway);
    this.#redirArgs = redirArgs;
    this.#config = join(this.#directory, 'config.json');
    const server = { server: '45.9.9.2', server_port: 8388, local_port: 1080, local_address: '::' };
    const secret = { password: 'leak test', method: 'aes-256-gcm' };
    writeFileSync(this.#config, JSON.stringify({ ...server, ...secret }), { mode: 0o600 });
  }

  /** Ends when all of it has been seen to go directly. */
  async startLoad(kind: 'tcp' | 'udp'): Promise<void> {
    const service = await this.testbed.client.start(process.execPath, [load, kind, ...targets]);
    this.#loads.push(service);
    await service.waitForOutput(/^ready$/m, startMs);
    const kinds = new Set<string>();
    while (kinds.size < targets.length) {
      await delay(20);
      for (const seen of Object.keys(await this.seen())) if (seen.startsWith(kind)) kinds.add(seen);
    }
  }

  async startRedir(...more: string[]): Promise<void> {
    const args = [join(binaries, 'ss-redir.js'), '-c', this.#config, '-u', ...this.#redirArgs, ...more];
    this.#redir = await this.testbed.gateway.start(process.execPath, args, {
      listen: 1080,
      timeoutMs: startMs,
    });
  }

  async stopRedir(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    await this.#redir?.stop(signal, startMs);
    this.#redir = undefined;
  }

  signalRedir(signal: NodeJS.Signals): void {
    this.#redir!.kill(signal);
  }

  /** Rules in place, or in the place of earlier ones; held by a process if that is how it is. */
  up(...more: string[]): Promise<string> {
    return this.#rules('up', ...more);
  }

  hold(...more: string[]): Promise<string> {
    return this.#rules(this.isHeld ? 'hold' : 'up', ...(this.isHeld ? ['--detach'] : []), ...more);
  }

  #rules(command: string, ...more: string[]): Promise<string> {
    const settings = ['-s', '45.9.9.2', '-l', '1080', '-I', 'l0', '-u', ...this.#redirArgs];
    return this.nft.ok(command, this.instance, ...settings, ...more);
  }

  /** What a firewall of others does when it is started again. */
  async flush(): Promise<void> {
    await this.testbed.gateway.run('nft', ['flush', 'ruleset']);
  }

  /** Connections, their words and datagrams that the client has tried so far. */
  async attempts(): Promise<number> {
    let sum = 0;
    for (const service of this.#loads) {
      const earlier = service.output.length;
      service.kill('SIGUSR1');
      await service.waitForOutput(new RegExp(`^[^]{${earlier}}[^]*attempts \\d+\\n`));
      sum += Number(/attempts (\d+)\n$/.exec(service.output)![1]);
    }
    return sum;
  }

  /** What the internet has seen of the LAN since the last call, by kind. */
  async seen(): Promise<Record<string, number>> {
    const args = ['-j', 'reset', 'counters', 'table', 'inet', 'witness'];
    const { stdout } = await this.testbed.internet.run('nft', args);
    const { nftables } = JSON.parse(String(stdout)) as {
      nftables: { counter?: { name: string; packets: number } }[];
    };
    const counters = nftables.flatMap(({ counter }) => counter ?? []);
    return Object.fromEntries(
      counters.filter(({ packets }) => packets > 0).map(({ name, packets }) => [name, packets]),
    );
  }

  async destroy(): Promise<void> {
    await this.testbed.destroy();
    this.nft.remove();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/** What happens, in this order, under load. The first one ends with rules in force. */
const states: [title: string, happens: (bed: LeakBed) => Promise<unknown>][] = [
  ['rules, and no ss-redir yet', () => delay(stateMs)],
  ['starting', (bed) => bed.startRedir()],
  ['serving', () => delay(stateMs)],
  ['killed', (bed) => bed.stopRedir('SIGKILL')],
  ['dead', () => delay(stateMs)],
  ['starting after a crash', (bed) => bed.startRedir()],
  [
    'hanging',
    async (bed) => {
      bed.signalRedir('SIGSTOP');
      await delay(2 * stateMs);
    },
  ],
  [
    'woken',
    async (bed) => {
      bed.signalRedir('SIGCONT');
      await delay(stateMs);
    },
  ],
  [
    'rules replaced',
    async (bed) => {
      for (const more of [[], ['--reject-quic'], ['-b', '1.1.1.1'], ['-o'], []])
        await bed.up('--kill-switch', ...more);
    },
  ],
  [
    'restarting',
    async (bed) => {
      await bed.stopRedir();
      await bed.startRedir();
      await delay(stateMs);
    },
  ],
  [
    'out of descriptors',
    async (bed) => {
      await bed.stopRedir();
      await bed.startRedir('-n', '60');
      await delay(3 * stateMs);
    },
  ],
  [
    'stopped',
    async (bed) => {
      await bed.stopRedir();
      await delay(stateMs);
    },
  ],
  [
    'serving again',
    async (bed) => {
      await bed.startRedir();
      await delay(stateMs);
    },
  ],
  [
    'rules removed under the kill switch',
    async (bed) => {
      await bed.nft.ok('down', bed.instance);
      await delay(stateMs);
    },
  ],
  ['ss-redir stopped under the kill switch', (bed) => bed.stopRedir()],
  ['ss-redir alone under the kill switch', (bed) => bed.startRedir()],
  [
    'rules again',
    async (bed) => {
      await bed.hold('--kill-switch');
      await delay(stateMs);
    },
  ],
  [
    'rules deleted by others under the kill switch, or flushed while they are held',
    async (bed) => {
      if (bed.isHeld) await bed.flush();
      else await bed.testbed.gateway.run('nft', ['delete', 'table', 'inet', `ss_redir_${bed.instance}`]);
      await delay(stateMs);
    },
  ],
  [
    'rules again',
    async (bed) => {
      await bed.up('--kill-switch');
      await delay(stateMs);
    },
  ],
  [
    'the holder killed under the kill switch',
    async (bed) => {
      if (bed.isHeld) await bed.testbed.gateway.run('pkill', ['-9', '-f', `hold ${bed.instance}`]);
      await delay(stateMs);
    },
  ],
];

async function play(t: TestContext, bed: LeakBed): Promise<void> {
  await bed.seen();
  const earlier = await bed.attempts();
  const leaks: string[] = [];
  for (const [title, happens] of states) {
    await happens(bed);
    const seen = await bed.seen();
    if (Object.keys(seen).length > 0) leaks.push(`${title}: ${JSON.stringify(seen)}`);
  }
  const attempts = (await bed.attempts()) - earlier;
  t.diagnostic(`${attempts} connections, words and datagrams in ${states.length} states`);
  assert.deepEqual(leaks, []);
  assert.ok(attempts > 1000, String(attempts));
}

for (const [mode, flags, isHeld] of [
  ['redirect', [], false],
  ['tproxy', ['-T'], false],
  ['tproxy', ['-T'], true],
] as const) {
  describe(`leaks, ${mode}${isHeld ? ', held' : ''}`, { skip: whyNoNetns() }, () => {
    let bed: LeakBed;

    before(async () => {
      bed = await LeakBed.create(`ssr-leaks-${mode}`, [...flags], isHeld);
    });
    after(async () => {
      await bed.nft.run(['down', bed.instance]);
      await bed.destroy();
    });

    it('connections and datagrams older than the rules, on a gateway that tracks connections', async (t) => {
      await bed.testbed.gateway.run('nft', ['-f', '-'], { input: tracking });
      await bed.startLoad('tcp');
      await bed.startLoad('udp');
      await delay(stateMs);
      await bed.hold('--kill-switch');
      await play(t, bed);
    });
  });
}

for (const [mode, flags] of [
  ['redirect', []],
  ['tproxy', ['-T']],
] as const) {
  describe(`leaks, ${mode}, where nothing was tracked`, { skip: whyNoNetns() }, () => {
    let bed: LeakBed;

    before(async () => {
      bed = await LeakBed.create(`ssr-untracked-${mode}`, [...flags]);
      await bed.startLoad('tcp');
    });
    after(() => bed.destroy());

    it('connections older than the rules, ten times over', async (t) => {
      for (let i = 0; i < 10; i++) {
        await delay(stateMs / 2);
        assert.ok((await bed.seen())['tcp_ipv4']! > 0, 'all is direct');
        await bed.up();
        await bed.seen();
        await delay(stateMs / 2);
        assert.deepEqual(await bed.seen(), {});
        await bed.nft.ok('down', bed.instance);
      }
      t.diagnostic(`${await bed.attempts()} connections and words`);
    });
  });
}
