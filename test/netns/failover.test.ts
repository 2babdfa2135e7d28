// Servers that are down, die, or are only some of several (R08, R80).
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { addresses } from '../../src/demo/netns.js';
import { originPorts, origins, serverPort, whySkipped, World } from '../helpers/world.js';

const deadPort = 7;
const promptMs = 3000;
const fewSecondsMs = 5000;
const alive = `${addresses.internet.ipv4}:${serverPort}`;
const dead = `${addresses.internet.ipv4}:${deadPort}`;

describe('failover', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('failover');
  });
  after(() => world?.destroy());
  afterEach(() => world.reset());

  const connect = (port: number) => world.client.connect({ host: origins.ipv4, port });

  async function answered(): Promise<string> {
    const client = await connect(originPorts.echo);
    await client.write('hello');
    return (await client.wait({ bytes: 5 }, fewSecondsMs)).data.toString();
  }

  /** SYNs to the port vanish. */
  async function blackHole(port: number): Promise<() => Promise<unknown>> {
    const { internet } = world.bed;
    const table = `table inet hole {
      chain input {
        type filter hook input priority 0;
        tcp dport ${port} drop
      }
    }`;
    await internet.run('nft', ['-f', '-'], { input: table });
    return () =>
      internet.run('nft', ['delete', 'table', 'inet', 'hole'], { reject: false }) as Promise<unknown>;
  }

  test('a server that refuses: the client is reset at once', async () => {
    await world.startRedir('ours', 'redirect');
    const client = await connect(originPorts.banner);
    await client.write('x');
    const { error, ended, lifeMs } = await client.wait({ closed: true });
    assert.deepEqual([error, ended], ['ECONNRESET', false]);
    assert.ok(lifeMs < promptMs, `${lifeMs} ms`);
  });

  test('a server that does not answer: the client is reset when the connect limit is over', async (t) => {
    t.after(await blackHole(serverPort));
    await world.startRedir('ours', 'redirect', { config: { timeout: 3 } });
    const client = await connect(originPorts.banner);
    const { error, ended, lifeMs } = await client.wait({ closed: true }, 8000);
    assert.deepEqual([error, ended], ['ECONNRESET', false]);
    assert.ok(lifeMs > 2500 && lifeMs < 5000, `${lifeMs} ms`);
  });

  test('kill -9 of ss-server during 10 downloads ends them at once and frees their descriptors', async () => {
    const server = await world.startServer('debian');
    const redir = await world.startRedir('ours', 'redirect');
    const fds = await world.restingFds(redir);
    const target = { host: origins.ipv4, port: originPorts.transfer };
    const clients = await world.client.connectMany(target, 10);
    for (const client of clients) await client.write('3000000000 0\n');
    for (const client of clients) await client.wait({ bytes: 100_000 });

    server.kill('SIGKILL');
    await server.exited;
    const ends = await Promise.all(
      clients.map((client) => client.wait({ closed: true, ended: true }, promptMs)),
    );
    for (const { closed, ended } of ends) assert.ok(closed || ended, 'still open');
    for (const client of clients) await client.destroy();
    assert.ok(
      await world.settles(() => redir.usage().fds <= fds),
      `${redir.usage().fds - fds} descriptors kept`,
    );
  });

  for (const [order, server] of [
    ['first', [dead, alive]],
    ['second', [alive, dead]],
  ] as const) {
    for (const kind of ['refuses', 'does not answer'] as const) {
      test(`the ${order} of two servers ${kind}: no connection fails, and its first bytes arrive`, async (t) => {
        if (kind === 'does not answer') t.after(await blackHole(deadPort));
        await world.startServer('debian');
        await world.startRedir('ours', 'redirect', { config: { server } });
        for (const round of [1, 2]) {
          const clients = await world.client.connectMany({ host: origins.ipv4, port: originPorts.echo }, 8);
          for (const client of clients) await client.write('first bytes');
          // In the second round the bad server is known.
          const limit = kind === 'refuses' || round === 2 ? promptMs : fewSecondsMs;
          const answers = await Promise.all(clients.map((client) => client.wait({ bytes: 11 }, limit)));
          for (const { data } of answers) assert.equal(data.toString(), 'first bytes', `round ${round}`);
        }
      });
    }
  }

  test('when the other of two servers is the one alive, connections go there', async () => {
    const config = { server: [dead, alive] };
    const first = await world.startServer('debian');
    await world.startRedir('ours', 'redirect', { config });
    assert.equal(await answered(), 'hello');
    await world.stop(first);
    await world.startServer('debian', { config: { server: '0.0.0.0', server_port: deadPort } });
    for (let count = 0; count < 4; count++) assert.equal(await answered(), 'hello');
  });
});
