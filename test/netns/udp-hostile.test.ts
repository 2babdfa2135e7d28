// Packets that were caught on the way, changed, repeated, reordered or late (R69, R71, R73): dropped, counted by kind, and never
// seen by a target or a client twice.
//
//   client -> gateway: ss-redir -> the wire -> ss-server -> target
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { addresses } from '../../src/demo/netns.js';
import { findMethod } from '../../src/crypto/methods.js';
import { packet2022 } from '../helpers/packet-peer.js';
import { UdpSocket, UdpWire } from '../helpers/udp-sockets.js';
import { remotes, UdpWorld, type Relay } from '../helpers/udp-world.js';
import { serverPort, whySkipped } from '../helpers/world.js';

const far = { host: remotes.ipv4.asked, port: 4000 };
const realPort = serverPort + 1;
const psk = Buffer.alloc(32, 7);
const methods = [
  ['aes-256-gcm', 'correct horse'],
  ['2022-blake3-aes-256-gcm', psk.toString('base64')],
  ['2022-blake3-chacha20-poly1305', psk.toString('base64')],
] as const;

describe('udp: hostile', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  before(async () => {
    udp = await UdpWorld.create('hostile');
  });
  after(() => udp?.destroy());

  for (const [method, password] of methods) {
    const is2022 = method.startsWith('2022');

    describe(method, () => {
      let relay: Relay;
      let wire: UdpWire;
      let target: UdpSocket;
      /** What each end has dropped, all tests together. */
      const known: Record<keyof Relay, Record<string, number>> = { server: {}, redir: {} };

      before(async () => {
        const server = { host: addresses.internet.ipv4, port: realPort };
        wire = await UdpWire.open(udp.world.origin, { ...server, port: serverPort }, server);
        relay = await udp.startRelay({
          config: { method, password },
          server: { config: { server_port: realPort } },
          redir: { config: { mode: 'udp_only' } },
        });
        target = await udp.remote(far, 'echo');
      });
      after(() => udp.reset());
      beforeEach(async () => {
        await wire.forget();
        await target.take(0, 0);
      });

      /** In this test, and nothing of another kind. */
      async function dropped(where: keyof Relay, kinds: Record<string, number>): Promise<void> {
        const all = { ...known[where] };
        for (const [kind, count] of Object.entries(kinds)) all[kind] = (all[kind] ?? 0) + count;
        try {
          await udp.hasDropped(relay[where], all);
        } finally {
          known[where] = await udp.dropped(relay[where]);
        }
      }

      /** The target heard this since it was last asked, whatever the order. */
      async function targetHeard(...texts: string[]): Promise<void> {
        const heard = (await target.take(texts.length + 1, 250)).map(({ data }) => data.toString());
        assert.deepEqual(heard.toSorted(), texts.toSorted());
      }

      test('a repeated request reaches the target once, wherever it comes from', async () => {
        const client = await udp.client('ipv4');
        for (const text of ['one', 'two', 'three']) await client.ask(far, text);
        const packets = await wire.take('up', 3);
        for (const packet of packets) {
          await wire.inject(packet);
          await wire.inject({ ...packet, from: 'stray' });
        }
        await dropped('server', { repeated: 6 });
        await targetHeard('one', 'two', 'three');
        await client.hearsNothing();
      });

      test('a replay from elsewhere does not draw the answers there', async () => {
        const client = await udp.client('ipv4');
        await client.send(far, 'question');
        const { from } = await target.next();
        await client.next();
        const packet = await wire.next('up');
        await wire.take('down', 1);
        await wire.inject({ ...packet, from: 'stray' });
        await dropped('server', { repeated: 1 });
        const [host, port] = from.split(' ') as [string, string];
        await target.send({ host, port: Number(port) }, 'later');
        assert.equal((await client.next()).data.toString(), 'later');
        assert.equal((await wire.next('down')).client, packet.client);
        await wire.take('down', 0, 100);
      });

      test('requests with a flipped bit, anywhere, or cut reach nobody', async () => {
        await wire.hold('up');
        const client = await udp.client('ipv4');
        await client.send(far, 'x'.repeat(100));
        const packet = await wire.next('up');
        await wire.hold('up', false);
        const { data } = packet;
        const places = Array.from({ length: 16 }, (_, i) => Math.floor((i * data.length) / 16));
        for (const place of places) {
          const changed = Buffer.from(data);
          changed[place]! ^= 1 << (place % 8);
          await wire.inject({ ...packet, data: changed });
        }
        await wire.inject({ ...packet, data: data.subarray(0, -1) });
        for (const size of [0, 1, 20]) await wire.inject({ ...packet, data: data.subarray(0, size) });
        await dropped('server', { forged: places.length + 1, short: 3 });
        await targetHeard();

        // The packet itself is none the worse for them.
        await wire.inject(packet);
        await targetHeard('x'.repeat(100));
        await client.next();
      });

      test('answers that were changed or cut do not reach the client', async () => {
        const client = await udp.client('ipv4');
        await wire.hold('down');
        await client.send(far, 'y'.repeat(100));
        const packet = await wire.next('down');
        await wire.hold('down', false);
        const { data } = packet;
        for (let i = 0; i < 8; i++) {
          const changed = Buffer.from(data);
          changed[Math.floor((i * data.length) / 8)]! ^= 0x10;
          await wire.inject({ ...packet, data: changed });
        }
        await wire.inject({ ...packet, data: data.subarray(0, 10) });
        await client.hearsNothing();
        await dropped('redir', { forged: 8, short: 1 });
        await wire.inject(packet);
        assert.equal((await client.next()).data.toString(), 'y'.repeat(100));
      });

      test('an answer that is sent back to the server reaches nobody', async () => {
        const client = await udp.client('ipv4');
        await client.ask(far, 'question');
        await target.take(1);
        const packet = await wire.next('down');
        await wire.inject({ ...packet, direction: 'up' });
        await wire.inject({ ...packet, direction: 'up', from: 'stray' });
        await dropped('server', is2022 ? { malformed: 2 } : { repeated: 2 });
        await targetHeard();
        await client.hearsNothing();
      });

      test('a flood of forged packets is counted to the last and fills no log', async () => {
        const earlier = relay.server.output.split('\n').length;
        const flooder = await UdpSocket.open(udp.world.origin, { host: addresses.internet.ipv4 });
        await flooder.flood({ host: addresses.internet.ipv4, port: realPort }, 5000, 200);
        await dropped('server', { forged: 5000 });
        const lines = relay.server.output.split('\n').length - earlier;
        assert.ok(lines < 20, `${lines} lines`);
        const client = await udp.client('ipv4');
        assert.equal(await client.ask(far, 'still there'), `still there from ${far.host} ${far.port}`);
      });

      test('requests that change their order on the way arrive once each', async () => {
        const client = await udp.client('ipv4');
        await wire.hold('up');
        for (let i = 0; i < 6; i++) await client.send(far, `number ${i}`);
        const packets = await wire.take('up', 6);
        await wire.hold('up', false);
        for (const i of [0, 1, 2, 5, 3, 4, 3]) await wire.inject(packets[i]!);
        await dropped('server', { repeated: 1 });
        await targetHeard(...packets.map((_, i) => `number ${i}`));
        assert.equal((await client.take(6)).length, 6);
      });

      test('a request that is sent back to the client does not reach it', async () => {
        const client = await udp.client('ipv4');
        await client.ask(far, 'question');
        await wire.inject({ ...(await wire.next('up')), direction: 'down' });
        await client.hearsNothing();
        await dropped('redir', is2022 ? { malformed: 1 } : { repeated: 1 });
      });

      test('a repeated answer reaches the client once', async () => {
        const client = await udp.client('ipv4');
        for (const text of ['one', 'two']) await client.ask(far, text);
        const packets = await wire.take('down', 2);
        for (const packet of packets) await wire.inject(packet);
        await client.hearsNothing();
        await dropped('redir', { repeated: 2 });
      });

      if (!is2022) return;

      test("another session's answer does not reach the client", async () => {
        const clients = [await udp.client('ipv4'), await udp.client('ipv4')] as const;
        for (const client of clients) await client.ask(far, 'mine');
        const [mine, others] = await wire.take('down', 2);
        assert.notEqual(mine!.client, others!.client);
        await wire.inject({ ...others!, client: mine!.client });
        await clients[0].hearsNothing();
        await dropped('redir', { 'unknown-session': 1 });
      });

      test('answers follow a client whose address has changed, at the same outside port', async () => {
        const client = await udp.client('ipv4');
        await client.send(far, 'before');
        const outside = (await target.next()).from;
        await client.next();
        await wire.forget();
        await wire.hold('up');
        await client.send(far, 'after');
        const packet = await wire.next('up');
        await wire.hold('up', false);
        await wire.inject({ ...packet, from: 'moved' });
        assert.equal((await client.next()).data.toString(), 'after');
        assert.equal((await target.next()).from, outside);
      });

      test('a packet whose clock differs by more than 30 s is dropped, and the log says by how much and what to do', async () => {
        const peer = await UdpSocket.open(udp.world.origin, { host: addresses.internet.ipv4 });
        const server = { host: addresses.internet.ipv4, port: realPort };
        const address = Buffer.from([1, ...far.host.split('.').map(Number), far.port >> 8, far.port & 0xff]);
        const common = { method: findMethod(method)!, keys: [psk], packetId: 0, address };
        // Not to the second: one may pass on the way.
        for (const [i, seconds] of [-29, 29, -31, 32].entries()) {
          const time = Math.floor(Date.now() / 1000) + seconds;
          const payload = Buffer.from(`${seconds}`);
          await peer.send(
            server,
            Buffer.from(packet2022({ ...common, sessionId: BigInt(i + 1), time, payload })),
          );
        }
        await dropped('server', { stale: 2 });
        await targetHeard('-29', '29');
        assert.match(relay.server.output, /3[12] s behind ours.*check the clocks/);
      });
    });
  }
});
