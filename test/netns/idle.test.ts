// Idle limits of five seconds, as the reports have them (R06, R11), with clients that vanish: nft drops what they send, so
// that neither FIN nor RST ever comes.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Service } from '../../src/demo/service.js';
import type { RemoteSocket } from '../helpers/agents.js';
import { originPorts, origins, whySkipped, World } from '../helpers/world.js';

const limitMs = 5000;
const late = 5000; // R11: closed between 5 and about 10 s
const many = 50;
const MiB = 1 << 20;

describe('idle for five seconds', { skip: whySkipped() }, () => {
  let world: World;
  let redir: Service;
  let server: Service;
  before(async () => {
    world = await World.create('idle');
    // Only ss-redir's limits are short: whatever ends here is ended by them.
    server = await world.startServer('ours', { config: { timeout: 600 } });
    redir = await world.startRedir('ours', 'redirect', {
      config: { timeout: limitMs / 1000, idle_timeout: limitMs / 1000 },
    });
  });
  after(() => world?.destroy());

  const connect = (port: number) => world.client.connect({ host: origins.ipv4, port });

  /** From now on the gateway gets nothing of these clients. */
  async function vanish(clients: RemoteSocket[]): Promise<() => Promise<unknown>> {
    const snapshots = await Promise.all(clients.map((client) => client.snapshot()));
    const ports = snapshots.map(({ local }) => local.split(' ')[1]);
    const { gateway } = world.bed;
    const table = `table inet vanished {
      chain prerouting {
        type filter hook prerouting priority raw;
        iifname "l0" tcp sport { ${ports.join(', ')} } drop
      }
    }`;
    await gateway.run('nft', ['-f', '-'], { input: table });
    return () =>
      gateway.run('nft', ['delete', 'table', 'inet', 'vanished'], { reject: false }) as Promise<unknown>;
  }

  async function freesDescriptors(fds: readonly [number, number], sinceMs: number): Promise<void> {
    const used = () => [redir.usage().fds - fds[0], server.usage().fds - fds[1]] as const;
    const isFree = () => used().every((more) => more <= 0);
    assert.ok(await world.settles(isFree, limitMs + late), `descriptors kept: ${used().join(' and ')}`);
    const tookMs = performance.now() - sinceMs;
    assert.ok(tookMs > limitMs - 1500, `given up after only ${tookMs} ms`);
  }

  // All at the same time: they wait most of the time, and none of them looks at descriptors.
  describe('connections', { concurrency: true }, () => {
    test('a byte of the client every 2 s keeps a connection to a silent server for 15 s', async () => {
      const client = await connect(originPorts.silent);
      for (let second = 0; second < 15; second += 2) {
        await client.write('.');
        await delay(2000);
      }
      const { ended, closed } = await client.snapshot();
      assert.deepEqual([ended, closed], [false, false]);
      await client.destroy();
    });

    test('a byte of the server every 2 s keeps a connection of a silent client for 15 s', async () => {
      const client = await connect(originPorts.manual);
      await client.write('x');
      const origin = await world.origin.accept(originPorts.manual);
      for (let second = 0; second < 15; second += 2) {
        await origin.write('.');
        await delay(2000);
      }
      const { ended, closed, bytes } = await client.snapshot();
      assert.deepEqual([ended, closed, bytes], [false, false, 8]);
      await client.destroy();
    });

    test('without any byte a connection is closed between 5 and 10 s, on both sides', async () => {
      const client = await connect(originPorts.manual2);
      await client.write('x');
      const origin = await world.origin.accept(originPorts.manual2);
      for (const side of [client, origin]) {
        const { ended, closed, error, lifeMs } = await side.wait(
          { ended: true, closed: true },
          limitMs + late,
        );
        assert.ok(ended || closed || error !== undefined, 'still open');
        assert.ok(lifeMs > limitMs - 500, `closed after only ${lifeMs} ms`);
      }
    });
  });

  const vanishing: [what: string, port: number, prepare: (client: RemoteSocket) => Promise<unknown>][] = [
    [
      'half-closed clients of a silent server',
      originPorts.silent,
      async (client) => {
        await client.write('x');
        await client.end();
      },
    ],
    ['clients with nothing under way', originPorts.silent, (client) => client.write('x')],
    [
      'clients in the middle of a download', // their acknowledgements do not come, so the bytes stay
      originPorts.transfer,
      async (client) => {
        await client.pause();
        await client.write(`${100 * MiB} 0\n`);
      },
    ],
  ];
  for (const [what, port, prepare] of vanishing) {
    test(`${many} vanished clients are given up: ${what}`, async (t) => {
      t.after(() => world.client.call('clear', undefined));
      const fds = [await world.restingFds(redir), await world.restingFds(server)] as const;
      const clients = await world.client.connectMany({ host: origins.ipv4, port }, many);
      assert.equal(clients.length, many);
      await Promise.all(clients.map(prepare));
      await delay(500);
      const sinceMs = performance.now();
      t.after(await vanish(clients));
      assert.ok(redir.usage().fds >= fds[0] + 2 * many, 'the connections were not there');
      await freesDescriptors(fds, sinceMs);
    });
  }

  test('a server that half-closed, and a client that vanished instead of doing so', async (t) => {
    t.after(() => world.client.call('clear', undefined));
    const fds = [await world.restingFds(redir), await world.restingFds(server)] as const;
    const clients: RemoteSocket[] = [];
    for (let count = 0; count < 10; count++) {
      const client = await connect(originPorts.manual);
      await client.write('x');
      const origin = await world.origin.accept(originPorts.manual);
      await origin.end();
      assert.ok((await client.wait({ ended: true })).ended, 'the FIN was not passed on');
      clients.push(client);
    }
    const sinceMs = performance.now();
    t.after(await vanish(clients));
    await freesDescriptors(fds, sinceMs);
  });
});
