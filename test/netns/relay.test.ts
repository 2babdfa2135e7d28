// How ss-redir and ss-server relay: ours at both ends, since Debian's closes both directions at either FIN.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { internetAddresses } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { payloadAt } from '../helpers/payload.js';
import { elapsedMs, families, modes, originPorts, origins, whySkipped, World } from '../helpers/world.js';

const MiB = 1 << 20;
const bannerLimitMs = 1500; // R09
const promptMs = 1000; // R08: from when the proxy knows until the client does
const rssLimit = 64 * MiB; // R10: over idle

describe('relay', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('relay');
  });
  after(() => world?.destroy());

  const connect = (port: number, host: string = origins.ipv4) => world.client.connect({ host, port });

  for (const mode of modes) {
    describe(mode, () => {
      let redir: Service;
      let server: Service;
      before(async () => {
        server = await world.startServer('ours');
        redir = await world.startRedir('ours', mode);
      });
      after(() => world.reset());
      afterEach(() => world.client.call('clear', undefined));

      // R03, R04, R18: the right socket option for the family, the right source of the target for the mode
      for (const family of families) {
        test(`${family}: every connection reaches the address and port it was made to`, async () => {
          for (const host of internetAddresses[family]) {
            for (const port of [originPorts.manual, originPorts.manual2]) {
              const client = await connect(port, host);
              const origin = await world.origin.accept(port);
              const { local } = await origin.snapshot();
              assert.equal(local.replace('::ffff:', ''), `${host} ${port}`);
              await client.destroy();
            }
          }
        });

        test(`${family}: a server that speaks first is heard within ${bannerLimitMs} ms`, async () => {
          const client = await connect(originPorts.banner, origins[family]);
          const { data, lifeMs } = await client.wait({ bytes: 1 });
          assert.match(data.toString(), /^220 /);
          assert.ok(lifeMs < bannerLimitMs, `banner after ${lifeMs} ms`);
        });
      }

      test('the answer to a client that has half-closed arrives whole', async () => {
        const client = await connect(originPorts.manual);
        await client.write(Buffer.alloc(100, 'q'));
        await client.end();
        const origin = await world.origin.accept(originPorts.manual);
        const request = await origin.wait({ ended: true });
        assert.deepEqual([request.bytes, request.ended, request.error], [100, true, undefined]);

        await delay(1000);
        await origin.write(Buffer.alloc(300_000, 'a'));
        await origin.end();
        const answer = await client.wait({ ended: true });
        assert.deepEqual([answer.bytes, answer.ended, answer.error], [300_000, true, undefined]);
      });

      test('a client that only half-closes, without a byte, is answered', async () => {
        const client = await connect(originPorts.manual);
        await client.end();
        const origin = await world.origin.accept(originPorts.manual);
        assert.ok((await origin.wait({ ended: true })).ended);
        await origin.write('late');
        await origin.end();
        assert.equal((await client.wait({ ended: true })).data.toString(), 'late');
      });

      test('a client goes on sending after the server has half-closed', async () => {
        const client = await connect(originPorts.manual);
        const origin = await world.origin.accept(originPorts.manual);
        await origin.write('bye');
        await origin.end();
        const farewell = await client.wait({ ended: true });
        assert.deepEqual([farewell.data.toString(), farewell.ended], ['bye', true]);

        await client.write(Buffer.alloc(MiB, 'u'));
        await client.end();
        const upload = await origin.wait({ ended: true });
        assert.deepEqual([upload.bytes, upload.ended, upload.error], [MiB, true, undefined]);
      });

      test("a client's RST is a RST at the server", async () => {
        const client = await connect(originPorts.manual);
        await client.write('x');
        const origin = await world.origin.accept(originPorts.manual);
        await origin.wait({ bytes: 1 });
        await client.reset();
        const { error, ended } = await origin.wait({ closed: true }, promptMs);
        assert.deepEqual([error, ended], ['ECONNRESET', false]);
      });

      test("a server's RST is a RST at the client", async () => {
        const client = await connect(originPorts.manual);
        await client.write('x');
        const origin = await world.origin.accept(originPorts.manual);
        await origin.write('y');
        await client.wait({ bytes: 1 });
        await origin.reset();
        const { error, ended } = await client.wait({ closed: true }, promptMs);
        assert.deepEqual([error, ended], ['ECONNRESET', false]);
      });

      test('a connection to a closed port ends at once and leaves no descriptor', async () => {
        const fds = (await world.restingFds(redir)) + (await world.restingFds(server));
        const client = await connect(originPorts.closed);
        await client.write('x');
        const { ended, closed, bytes, lifeMs } = await client.wait({ ended: true, closed: true });
        assert.ok(ended || closed, 'still open');
        assert.equal(bytes, 0);
        assert.ok(lifeMs < promptMs, `closed after ${lifeMs} ms`);
        await client.destroy();
        assert.ok(await world.settles(() => redir.usage().fds + server.usage().fds <= fds));
      });

      test('a target of a family that the server lacks fails at once, the other family works', async () => {
        await world.bed.internet.ip('-6 route del default');
        try {
          const client = await connect(80, '2606:4700::2222');
          await client.write('x');
          const { ended, closed, lifeMs } = await client.wait({ ended: true, closed: true });
          assert.ok(ended || closed, 'still open');
          assert.ok(lifeMs < promptMs, `closed after ${lifeMs} ms`);
          const other = await connect(originPorts.banner);
          assert.ok((await other.wait({ bytes: 1 })).bytes > 0);
        } finally {
          await world.bed.internet.ip('-6 route add default via 2a09:9::1');
        }
      });

      test('1,000 connections at once carry 64 KiB each way, equal SHA-256', async () => {
        const size = { down: 65_536, up: 65_536 };
        const target = { host: origins.ipv4, port: originPorts.transfer };
        const { completed, failures } = await world.client.bulk({ ...target, ...size, connections: 1000 });
        assert.deepEqual([completed, failures], [1000, {}]);
      });

      test('servers that stop reading are held back, and others go on', async () => {
        const idle = [redir.usage().rssBytes, server.usage().rssBytes] as const;
        const target = { host: origins.ipv4, port: originPorts.stopped };
        const stuck = world.client.bulk({ ...target, connections: 20, down: 0, up: 100 * MiB });
        await delay(2500);
        const others = { host: origins.ipv4, port: originPorts.transfer, connections: 4 };
        assert.deepEqual((await world.client.bulk({ ...others, down: 4 * MiB, up: 4 * MiB })).failures, {});
        world.assertGrowth(redir, idle[0], rssLimit);
        world.assertGrowth(server, idle[1], rssLimit);
        await world.client.call('clear', undefined);
        assert.equal((await stuck).completed, 0);
      });

      // To the end they would take minutes; that every byte arrives after a pause is the next test's.
      test('20 downloads of 300 MB, unread for 6 s, cost less than 64 MB and then flow at full speed', async () => {
        const idle = [redir.usage().rssBytes, server.usage().rssBytes] as const;
        const target = { host: origins.ipv4, port: originPorts.transfer };
        const clients = await world.client.connectMany(target, 20);
        await Promise.all(clients.map((client) => client.pause()));
        await Promise.all(clients.map((client) => client.write('300000000 0\n')));
        await delay(6000);
        world.assertGrowth(redir, idle[0], rssLimit);
        world.assertGrowth(server, idle[1], rssLimit);

        await Promise.all(clients.map((client) => client.resume()));
        const ends = await Promise.all(clients.map((client) => client.wait({ bytes: 20 * MiB }, 30_000)));
        for (const { bytes, data } of ends) {
          assert.ok(bytes >= 20 * MiB, `only ${bytes} bytes in 30 s`);
          assert.ok(data.subarray(0, 1000).equals(payloadAt(0, 1000)), 'bytes differ');
        }
        world.assertGrowth(redir, idle[0], rssLimit);
        world.assertGrowth(server, idle[1], rssLimit);
      });

      test('20 downloads stalled for a while arrive whole', async () => {
        const target = { host: origins.ipv4, port: originPorts.transfer };
        const size = { down: 12 * MiB, up: 0 };
        const result = await world.client.bulk({ ...target, ...size, connections: 20, readDelayMs: 1500 });
        assert.deepEqual(result.failures, {});
      });
    });
  }

  describe('long transfers', () => {
    before(async () => {
      await world.startServer('ours');
      await world.startRedir('ours', 'redirect');
    });
    after(() => world.reset());

    test('a slow reader gets all 300 MB of a server that closes after its last write', async () => {
      const target = { host: origins.ipv4, port: originPorts.closing };
      const size = { down: 300e6, up: 0 };
      const result = await world.client.bulk({ ...target, ...size, connections: 1, readDelayMs: 3000 });
      assert.deepEqual(result.failures, {});
    });

    test('50 MB to a server that reads slowly at first arrive whole', async () => {
      const target = { host: origins.ipv4, port: originPorts.slow };
      const ms = await elapsedMs(async () => {
        const { failures } = await world.client.bulk({ ...target, connections: 1, down: 0, up: 50e6 });
        assert.deepEqual(failures, {});
      });
      assert.ok(ms > 1500, `${ms} ms: the server did not read slowly, so nothing was tested`);
    });
  });
});
