// Datagrams of every size, both ways, over links of 1,500 and of 1,280 bytes (R20): whole, or counted.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { payloadAt } from '../helpers/payload.js';
import { remotes, UdpWorld, type Relay } from '../helpers/udp-world.js';
import { families, whySkipped, type Family } from '../helpers/world.js';

const sizes = [0, 1, 128, 512, 1200, 1372, 1400, 1452, 1472, 1473, 2000, 4096, 9000, 40_000, 65_000];
const echoPort = 4000;
const sizedPort = 4001;
const largestIpv4 = 65_535 - 20 - 8; // the server is reached by IPv4
const overhead = { ipv4: 32 + 7 + 16, ipv6: 32 + 19 + 16 }; // salt, address, tag

describe('udp: sizes', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  let relay: Relay;
  before(async () => {
    udp = await UdpWorld.create('sizes');
    relay = await udp.startRelay();
    for (const family of families) {
      const host = remotes[family].asked;
      await udp.remote({ host, port: echoPort }, 'echo');
      await udp.remote({ host, port: sizedPort }, 'sized');
    }
  });
  after(() => udp?.destroy());

  async function passesEverySize(family: Family): Promise<void> {
    const far = { host: remotes[family].asked, port: echoPort };
    const client = await udp.client(family);
    for (const size of sizes) {
      const sent = size === 0 ? Buffer.alloc(0) : payloadAt(size, size);
      await client.send(far, sent);
      const { data, from } = await client.next();
      assert.deepEqual([data.length, from], [size, `${far.host} ${echoPort}`]);
      assert.ok(data.equals(sent), `${size} bytes differ`);
    }
  }

  async function withMtu(mtu: number, links: 'all' | 'outside', work: () => Promise<void>): Promise<void> {
    const { client, gateway, internet } = udp.world.bed;
    const ends = [
      [gateway, 'w0'],
      [internet, 'i0'],
      ...(links === 'all'
        ? ([
            [client, 'c0'],
            [gateway, 'l0'],
          ] as const)
        : []),
    ] as const;
    for (const [netns, link] of ends) await netns.ip(`link set ${link} mtu ${mtu}`);
    try {
      await work();
    } finally {
      for (const [netns, link] of ends) await netns.ip(`link set ${link} mtu 1500`);
    }
  }

  for (const family of families) {
    test(`${family}: ${sizes[0]} to ${sizes.at(-1)} bytes pass both ways`, () => passesEverySize(family));

    test(`${family}: the same over links of 1,280 bytes`, () =>
      withMtu(1280, 'all', () => passesEverySize(family)));

    test(`${family}: the same where the way to the server is narrower than the LAN`, () =>
      withMtu(1280, 'outside', () => passesEverySize(family)));

    test(`${family}: the largest that fits passes, and one byte more is dropped and counted`, async () => {
      const host = remotes[family].asked;
      const largest = largestIpv4 - overhead[family];
      const client = await udp.client(family);
      const earlier = [await udp.dropped(relay.redir), await udp.dropped(relay.server)].map(tooLarge);

      for (const size of [largest + 1, largest])
        await client.send({ host, port: echoPort }, payloadAt(0, size));
      const echo = await client.next();
      assert.deepEqual([echo.data.length, echo.data.equals(payloadAt(0, largest))], [largest, true]);
      for (const size of [largest + 1, largest]) await client.send({ host, port: sizedPort }, String(size));
      const answer = await client.next();
      assert.deepEqual([answer.data.length, answer.data.equals(payloadAt(0, largest))], [largest, true]);
      await client.hearsNothing();

      const later = [await udp.dropped(relay.redir), await udp.dropped(relay.server)].map(tooLarge);
      assert.deepEqual(
        later,
        earlier.map((count) => count + 1),
      );
      for (const { output } of [relay.redir, relay.server]) assert.match(output, /EMSGSIZE/, 'not logged');
    });
  }
});

function tooLarge(dropped: Record<string, number>): number {
  return dropped['too-large'] ?? 0;
}
