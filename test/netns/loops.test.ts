// Connections that would make the proxy dial itself (R01, R02, R27).
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { addresses } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { Agent } from '../helpers/agents.js';
import { loadRules, unguardListener } from '../helpers/rules.js';
import {
  cpuSeconds,
  families,
  modes,
  originPorts,
  origins,
  redirPort,
  whySkipped,
  World,
} from '../helpers/world.js';

const promptMs = 1000;

describe('loops', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('loops');
  });
  after(() => world?.destroy());

  for (const mode of modes) {
    describe(mode, () => {
      let redir: Service;
      let fds: number;
      before(async () => {
        await world.startServer('debian');
        redir = await world.startRedir('ours', mode);
        await unguardListener(world.bed.gateway);
        fds = await world.restingFds(redir);
      });
      after(() => world.reset());
      afterEach(() => world.client.call('clear', undefined));

      for (const family of families) {
        for (const side of ['gatewayLan', 'gatewayWan'] as const) {
          test(`${family}: a connection to the listening port of ${side} is closed at once`, async () => {
            const logged = redir.output.length;
            const target = { host: addresses[side][family], port: redirPort };
            const client = await world.client.connect(target).catch(acceptReset);
            if (client) {
              await client.write('hello').catch(() => {});
              const { ended, closed, bytes, lifeMs } = await client.wait({ ended: true, closed: true });
              assert.ok(ended || closed, 'still open');
              assert.equal(bytes, 0);
              assert.ok(lifeMs < promptMs, `closed after ${lifeMs} ms`);
              await client.destroy();
            }

            await delay(200); // what a loop would need to grow
            assert.equal(redir.usage().fds, fds);
            assert.ok(redir.output.length - logged < 1000, redir.output.slice(logged, logged + 1000));
          });
        }

        test(`${family}: fifty direct connections give their descriptors back within a second`, async () => {
          const logged = redir.output.length;
          const target = { host: addresses.gatewayLan[family], port: redirPort };
          const clients = await world.client.connectMany(target, 50);
          await Promise.all(clients.map((client) => client.write('ab').catch(() => {})));
          assert.ok(
            await world.settles(() => redir.usage().fds <= fds, promptMs),
            `${redir.usage().fds} fds`,
          );
          const lines = redir.output.slice(logged).trim().split('\n');
          assert.ok(lines.length <= 10, `${lines.length} log lines for 50 connections of one kind`);
        });
      }

      test('a proxied connection still works afterwards', async () => {
        const client = await world.client.connect({ host: origins.ipv4, port: originPorts.banner });
        assert.match((await client.wait({ bytes: 1 })).data.toString(), /^220 /);
      });

      test('our own rules refuse a direct connection before it reaches the listener', async () => {
        await loadRules(world.bed.gateway, mode, redirPort);
        const logged = redir.output.length;
        for (const family of families) {
          const host = addresses.gatewayLan[family];
          await assert.rejects(world.client.connect({ host, port: redirPort }), /ECONNREFUSED/);
        }
        assert.equal(redir.output.slice(logged), '');
      });
    });

    // The mark alone tells our own connections apart: the server is in no bypass list here.
    test(`${mode}: the router's own connections are proxied, ss-redir's are not`, async (t) => {
      t.after(() => world.reset());
      await world.startServer('debian');
      const redir = await world.startRedir('ours', mode);
      await loadRules(world.bed.gateway, mode, redirPort, { router: 'proxied', bypass: [] });
      const router = new Agent(world.bed.gateway.name);
      t.after(() => router.stop());

      const fds = await world.restingFds(redir);
      const client = await router.connect({ host: origins.ipv4, port: originPorts.manual });
      await client.write('x');
      const origin = await world.origin.accept(originPorts.manual);
      const { remote } = await origin.wait({ bytes: 1 });
      assert.doesNotMatch(remote, new RegExp(addresses.gatewayWan.ipv4), 'the router spoke directly');
      await delay(200);
      assert.ok(redir.usage().fds <= fds + 2, `${redir.usage().fds - fds} descriptors for one connection`);
      await client.destroy();
    });
  }

  // The rule that must not be: all that the gateway sends goes to the proxy, what the proxy itself sends as well.
  test('rules that capture our own traffic to the server make no storm', async (t) => {
    await world.startServer('debian');
    const redir = await world.startRedir('ours', 'redirect', { config: { timeout: 5 } });
    t.after(() => world.reset());
    const loop = `table inet loop {
      chain output {
        type nat hook output priority -100; policy accept;
        ip daddr ${addresses.internet.ipv4} tcp dport 8388 redirect to :${redirPort}
      }
    }`;
    await world.bed.gateway.run('nft', ['-f', '-'], { input: loop });
    t.after(() => world.bed.gateway.run('nft', ['delete', 'table', 'inet', 'loop'], { reject: false }));

    const fds = await world.restingFds(redir);
    const client = await world.client.connect({ host: origins.ipv4, port: originPorts.banner });
    const cpu = await cpuSeconds(redir.pid, () => delay(2000));
    assert.ok(redir.usage().fds <= fds + 20, `${redir.usage().fds - fds} more descriptors`);
    assert.ok(cpu < 0.3, `${cpu} s of CPU in 2 s`);
    assert.ok(redir.output.split('\n').length < 40, 'the log is flooded');
    await client.destroy();
  });
});

/** The reset may be there before Node has looked at the connection that the kernel made. */
function acceptReset(error: Error): undefined {
  assert.match(error.message, /^ECONNRESET/);
}
