// "fast_open": true on kernels that have it off, for clients only, and for both (R53; R05, R07, R09 again under it).
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import type { Service } from '../../src/demo/service.js';
import { originPorts, origins, whySkipped, World, type Kind } from '../helpers/world.js';

const MiB = 1 << 20;

describe('fast open', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('tfo');
  });
  after(() => world?.destroy());

  const connect = (port: number) => world.client.connect({ host: origins.ipv4, port });

  for (const setting of [0, 1, 3]) {
    for (const server of ['ours', 'debian'] as const satisfies Kind[]) {
      describe(`net.ipv4.tcp_fastopen=${setting}, ${server} ss-server`, () => {
        let redir: Service;
        before(async () => {
          for (const netns of world.bed.all) await netns.sysctl({ 'net.ipv4.tcp_fastopen': setting });
          // Debian's ss-server ends itself when the kernel has it off for servers.
          await world.startServer(server, {
            config: { fast_open: server === 'ours' || (setting & 2) !== 0 },
          });
          redir = await world.startRedir('ours', 'redirect', { config: { fast_open: true } });
        });
        after(() => world.reset());
        afterEach(() => world.client.call('clear', undefined));

        test('a server that speaks first is heard within 1.5 s, again and again', async () => {
          for (let count = 0; count < 3; count++) {
            const client = await connect(originPorts.banner);
            const { data, lifeMs } = await client.wait({ bytes: 1 });
            assert.match(data.toString(), /^220 /);
            assert.ok(lifeMs < 1500, `${lifeMs} ms`);
          }
        });

        test('the first payload arrives once and whole, on every connection', async () => {
          const target = { host: origins.ipv4, port: originPorts.transfer };
          const { failures } = await world.client.bulk({
            ...target,
            connections: 50,
            down: 40_000,
            up: 40_000,
          });
          assert.deepEqual(failures, {});
        });

        test('a download arrives whole although the server closes after its last write', async () => {
          const target = { host: origins.ipv4, port: originPorts.closing };
          const size = { down: 16 * MiB, up: 0, readDelayMs: 300 };
          assert.deepEqual((await world.client.bulk({ ...target, ...size, connections: 1 })).failures, {});
        });

        test('the log says once that the kernel has it off, where that is so', async () => {
          const count = redir.output.split('TCP Fast Open is switched off in this kernel').length - 1;
          assert.equal(count, setting === 0 ? 1 : 0, redir.output);
        });

        if (server === 'debian') return; // closes both directions at either FIN

        test('the answer to a client that has half-closed arrives whole', async () => {
          const client = await connect(originPorts.manual);
          await client.write(Buffer.alloc(100, 'q'));
          await client.end();
          const origin = await world.origin.accept(originPorts.manual);
          assert.equal((await origin.wait({ ended: true })).bytes, 100);
          await origin.write(Buffer.alloc(300_000, 'a'));
          await origin.end();
          assert.equal((await client.wait({ ended: true })).bytes, 300_000);
        });
      });
    }
  }
});
