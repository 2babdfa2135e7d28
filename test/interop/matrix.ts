// Ours against a peer, in every combination that has its own code on the wire: method, TCP and UDP, who is the client, and
// IPv4 or IPv6 both to the server and behind it. Each file matrix-PEER.test.ts runs one peer's rows and prints its table.
//
//   ours -> peer   client agent -> TPROXY -> our ss-redir -> the peer's server -> origin
//   peer -> ours   client agent -> the peer's SOCKS5 (TCP) or tunnel (UDP) -> our ss-server -> origin
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { addresses } from '../../src/demo/netns.js';
import { payloadAt } from '../helpers/payload.js';
import { titleOf, whyNoPeer, type Config, type PeerKind } from '../helpers/peers.js';
import { UdpSocket } from '../helpers/udp-sockets.js';
import {
  families,
  localPort,
  methods as aeadMethods,
  originPorts,
  origins,
  password,
  tunnelPort,
  whySkipped,
  World,
  type Family,
} from '../helpers/world.js';

export { aeadMethods };

export const methods2022 = [
  '2022-blake3-aes-128-gcm',
  '2022-blake3-aes-256-gcm',
  '2022-blake3-chacha20-poly1305',
] as const;

export interface Row {
  method: string;
  /** The server has two users, and the client is one of them (SIP023): the first by IPv4, the second by IPv6. */
  users?: boolean;
}

/** Of datagrams. The last four are sealed to more than 1,500 bytes: they go in fragments. */
export const allDatagrams = [0, 1, 128, 1200, 1472, 4096, 9000, 60_000];

export const rows2022: readonly Row[] = [
  ...methods2022.map((method) => ({ method })),
  // Identity headers exist for the AES methods only.
  { method: methods2022[0], users: true },
  { method: methods2022[1], users: true },
];

export interface Matrix {
  peer: PeerKind;
  rows: readonly Row[];
  /** Sizes of the datagrams that pass through this peer. */
  datagrams: readonly number[];
}

const MiB = 1 << 20;
const bannerLimitMs = 1500; // R09
const replyLimitMs = 1000;
// A server that understands nothing keeps the connection for up to 60 s before it closes it.
const cellLimitMs = 20_000;

const anyAddress = { ipv4: '0.0.0.0', ipv6: '::' } as const;

/** What goes past the proxies must not pass for proxied: from outside the far ends hear nothing. */
const onlyTheServerIsHeard = `
table inet far_ends {
  chain input {
    type filter hook input priority filter;
    iifname "i0" ip daddr { ${origins.ipv4} } drop
    iifname "i0" ip6 daddr { ${origins.ipv6} } drop
  }
}
`;

type Direction = 'ours -> peer' | 'peer -> ours';
type Protocol = 'TCP' | 'UDP';
type Outcome = 'ok' | 'FAIL';

export function describeMatrix({ peer, rows, datagrams }: Matrix): void {
  const directions: Direction[] = peer === 'ours' ? ['ours -> peer'] : ['ours -> peer', 'peer -> ours'];
  const outcomes = new Map<string, Outcome>();
  const cell = (row: Row, direction: Direction, protocol: Protocol, family: Family) =>
    [row.method, row.users, direction, protocol, family].join();

  describe(`matrix: ${titleOf(peer)}`, { skip: whySkipped() || whyNoPeer(peer) }, () => {
    let world: World;
    before(async () => {
      world = await World.create(`mx-${peer}`);
      await world.bed.internet.run('nft', ['-f', '-'], { input: onlyTheServerIsHeard });
      for (const family of families) {
        const echo = { host: origins[family], port: originPorts.udpEcho, behaviour: 'echo' } as const;
        await UdpSocket.open(world.origin, echo);
      }
    });
    after(async () => {
      await world?.destroy();
      printTable();
    });

    for (const row of rows) {
      for (const direction of directions) {
        for (const family of families) {
          const [from, to] = direction.replace('peer', titleOf(peer)).split(' -> ');
          describe(`${nameOf(row)}, ${from} -> ${to}, ${family}`, () => {
            const way = new Way(() => world, direction, family);
            before(() => way.open(peer, row));
            after(() => world.reset());

            const check = (protocol: Protocol, claim: string, work: () => Promise<void>) =>
              test(`${protocol}: ${claim}`, { timeout: cellLimitMs }, async () => {
                const key = cell(row, direction, protocol, family);
                outcomes.set(key, 'FAIL');
                await work();
                outcomes.set(key, 'ok');
              });
            check('TCP', '1 MiB each way at once, equal SHA-256, and a banner within 1.5 s', async () => {
              await way.carriesStream();
              await way.speaksFirst();
            });
            check('UDP', `datagrams of ${datagrams.join(', ')} bytes are answered as they are`, () =>
              way.carriesDatagrams(datagrams),
            );
          });
        }
      }
    }
  });

  function printTable(): void {
    const columns = directions.flatMap((direction) =>
      (['TCP', 'UDP'] as const).flatMap((protocol) =>
        families.map((family) => ({ direction, protocol, family })),
      ),
    );
    const [titleWidth, methodWidth] = [24, 36];
    const width = 6;
    const head = directions.map((direction) => ` ${direction}`.padEnd(4 * width));
    console.log(`${'peer'.padEnd(titleWidth)}${'method'.padEnd(methodWidth)}${head.join('|')}`);
    const labels = columns.map(({ protocol, family }) => `${protocol}${family.slice(-1)}`);
    const line = (title: string, method: string, values: string[]) => {
      const cells = values.map((value) => value.padStart(width));
      const halves = directions.map((_, index) => cells.slice(4 * index, 4 * index + 4).join(''));
      console.log(`${title.padEnd(titleWidth)}${method.padEnd(methodWidth)}${halves.join('|')}`);
    };
    line('', '', labels);
    for (const row of rows) {
      const values = columns.map(({ direction, protocol, family }) => {
        return outcomes.get(cell(row, direction, protocol, family)) ?? 'FAIL'; // not even begun
      });
      line(titleOf(peer), nameOf(row), values);
    }
  }
}

function nameOf({ method, users }: Row): string {
  return users ? `${method}, 2 users` : method;
}

/** One way of getting from the client agent to the origin. */
class Way {
  readonly #world: () => World;
  readonly #direction: Direction;
  readonly #family: Family;

  constructor(world: () => World, direction: Direction, family: Family) {
    this.#world = world;
    this.#direction = direction;
    this.#family = family;
  }

  async open(peer: PeerKind, row: Row): Promise<void> {
    const world = this.#world();
    const { server, client } = credentials(row, this.#family === 'ipv4' ? 0 : 1);
    const common = { method: row.method, mode: 'tcp_and_udp' };
    const clientConfig = { ...common, ...client, server: addresses.internet[this.#family] };
    const ourRedir = this.#direction === 'ours -> peer';
    await world.startServer(ourRedir ? peer : 'ours', {
      config: { ...common, ...server, server: anyAddress[this.#family] },
    });
    if (ourRedir) {
      await world.startRedir('ours', 'tproxy', { config: clientConfig });
      return;
    }
    if (peer === 'ours') throw new TypeError('no client of ours but ss-redir');
    const target = { host: origins[this.#family], port: originPorts.udpEcho };
    await world.startClient(peer, target, {
      config: { ...clientConfig, local_address: anyAddress[this.#family] },
    });
  }

  async carriesStream(): Promise<void> {
    const { failures } = await this.#world().client.bulk({
      ...this.#stream(originPorts.transfer),
      connections: 1,
      down: MiB,
      up: MiB,
    });
    assert.deepEqual(failures, {});
  }

  async speaksFirst(): Promise<void> {
    const client = await this.#world().client.connect(this.#stream(originPorts.banner));
    const { data, lifeMs } = await client.wait({ bytes: 1 });
    assert.match(data.toString(), /^220 /);
    assert.ok(lifeMs < bannerLimitMs, `banner after ${lifeMs} ms`);
    await client.destroy();
  }

  #stream(port: number) {
    const to = { host: origins[this.#family], port };
    if (this.#direction === 'ours -> peer') return to;
    return { ...to, via: { host: addresses.gatewayLan[this.#family], port: localPort } };
  }

  async carriesDatagrams(lengths: readonly number[]): Promise<void> {
    const to =
      this.#direction === 'ours -> peer'
        ? { host: origins[this.#family], port: originPorts.udpEcho }
        : { host: addresses.gatewayLan[this.#family], port: tunnelPort };
    const faults: string[] = [];
    const client = await UdpSocket.open(this.#world().client, { host: anyAddress[this.#family] });
    let position = 0; // every datagram has bytes of its own, so that no late answer passes for another
    for (const length of lengths) {
      const sent = payloadAt(position, length).subarray(0, length);
      position += length;
      await client.send(to, sent);
      const [answer] = await client.take(1, replyLimitMs);
      if (answer === undefined) faults.push(`${length} bytes: no answer in ${replyLimitMs} ms`);
      else if (!sent.equals(answer.data))
        faults.push(`${length} bytes: answered with ${answer.data.length} others`);
      else if (answer.from !== `${to.host} ${to.port}`)
        faults.push(`${length} bytes: answered from ${answer.from}`);
    }
    assert.deepEqual(faults, []);
    assert.equal(await client.count(), lengths.length, 'answers');
  }
}

interface Credentials {
  server: Config;
  client: Config;
}

function credentials({ method, users }: Row, user: 0 | 1): Credentials {
  if (!method.startsWith('2022-')) return { server: { password }, client: { password } };
  const size = method.includes('128') ? 16 : 32;
  const key = (name: string) =>
    createHash('sha256').update(name).digest().subarray(0, size).toString('base64');
  if (!users) return { server: { password: key('server') }, client: { password: key('server') } };

  const names = ['ann', 'bob'] as const;
  return {
    server: {
      password: key('server'),
      users: names.map((name) => ({ name, password: key(name) })),
    },
    client: { password: `${key('server')}:${key(names[user])}` },
  };
}
