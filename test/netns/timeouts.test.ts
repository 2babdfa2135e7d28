// Idle limits: of half-open pairs (R06) and of open connections (R11).
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Service } from '../../src/demo/service.js';
import { modes, originPorts, origins, whySkipped, World } from '../helpers/world.js';

const limitMs = 3000;
const late = 4000; // a limit may be noticed this much later: timers are coarse and so is a loaded machine

describe('timeouts', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('timeouts');
  });
  after(() => world?.destroy());

  for (const mode of modes) {
    describe(mode, () => {
      let redir: Service;
      let server: Service;
      before(async () => {
        // Only ss-redir's limits are short: whatever ends here is ended by them.
        server = await world.startServer('ours', { config: { timeout: 60 } });
        redir = await world.startRedir('ours', mode, {
          config: { timeout: limitMs / 1000, idle_timeout: limitMs / 1000 },
        });
      });
      after(() => world.reset());
      afterEach(() => world.client.call('clear', undefined));

      test('half-closed pairs without traffic are closed on both sides', async () => {
        const fds = [await world.restingFds(redir), await world.restingFds(server)] as const;
        const clients = await world.client.connectMany({ host: origins.ipv4, port: originPorts.silent }, 50);
        await Promise.all(clients.map((client) => client.end()));
        const ends = await Promise.all(clients.map((client) => client.wait({ ended: true }, limitMs + late)));
        for (const { ended, closed, lifeMs } of ends) {
          assert.ok(ended || closed, 'still open');
          assert.ok(lifeMs > limitMs - 500, `closed after only ${lifeMs} ms`);
        }
        assert.ok(await world.settles(() => redir.usage().fds <= fds[0]), 'ss-redir keeps descriptors');
        assert.ok(await world.settles(() => server.usage().fds <= fds[1]), 'ss-server keeps descriptors');
      });

      test('data keeps a half-closed pair alive past its limit', async () => {
        const client = await world.client.connect({ host: origins.ipv4, port: originPorts.manual });
        await client.end();
        const origin = await world.origin.accept(originPorts.manual);
        for (let sent = 0; sent < 6; sent++) {
          await delay(limitMs / 3);
          await origin.write('.');
        }
        await origin.end();
        const { data, ended, error } = await client.wait({ ended: true });
        assert.deepEqual([data.toString(), ended, error], ['......', true, undefined]);
      });

      test('bytes in one direction alone keep an open connection alive', async () => {
        const client = await world.client.connect({ host: origins.ipv4, port: originPorts.silent });
        for (let sent = 0; sent < 8; sent++) {
          await client.write('.');
          await delay(limitMs / 3);
        }
        const { ended, closed } = await client.snapshot();
        assert.deepEqual([ended, closed], [false, false]);
      });

      test('an open connection without any byte is closed after its idle limit', async () => {
        const client = await world.client.connect({ host: origins.ipv4, port: originPorts.echo });
        await client.write('x');
        await client.wait({ bytes: 1 });
        const { ended, closed, lifeMs } = await client.wait({ ended: true, closed: true }, limitMs + late);
        assert.ok(ended || closed, 'still open');
        assert.ok(lifeMs > limitMs - 500, `closed after only ${lifeMs} ms`);
      });

      test('a client that vanished is given up after the idle limit', async (t) => {
        const fds = await world.restingFds(redir);
        const client = await world.client.connect({ host: origins.ipv4, port: originPorts.echo });
        await client.write('x');
        await client.wait({ bytes: 1 });
        await world.bed.client.ip('link set c0 down');
        t.after(() => world.restoreClientLink());
        assert.ok(redir.usage().fds > fds);
        assert.ok(await world.settles(() => redir.usage().fds <= fds, limitMs + late), 'descriptors kept');
      });
    });
  }

  test('a timeout may be a string', async (t) => {
    t.after(() => world.reset());
    const redir = await world.startRedir('ours', 'redirect', { config: { timeout: '60' } });
    assert.ok(redir.running);
  });
});
