// Replays against our ss-server as a whole (R69): with two workers, soon and late, and among many honest connections. What
// the memory of salts itself does is in test/crypto/replay.test.ts.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { addresses } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { PeerSealer, targetAddress } from '../helpers/aead-peer.js';
import { originPorts, origins, password, serverPort, whySkipped, World } from '../helpers/world.js';

const method = 'aes-256-gcm';
const server = { host: addresses.internet.ipv4, port: serverPort };
const copies = 40; // the kernel chooses the worker by the port: that one of two gets none of 40 happens once in 2^39
const silenceMs = 1000;
const replayAtSeconds = [1, 50, 70] as const;
const honestConnections = 3000;

describe('replays', { skip: whySkipped(), concurrency: true }, () => {
  let world: World;
  let service: Service;
  before(async () => {
    world = await World.create('replay');
    service = await world.startServer('ours', { args: ['--workers', '2'], config: { timeout: 600 } });
    await world.startRedir('ours', 'redirect');
  });
  after(() => world?.destroy());

  async function isServed(flight: Buffer, port: number): Promise<void> {
    const client = await world.client.connect(server);
    await client.write(flight);
    const origin = await world.origin.accept(port);
    assert.equal((await origin.wait({ bytes: 12 })).data.toString(), 'first flight');
    await client.destroy();
    await origin.destroy();
  }

  async function isRefused(flight: Buffer, port: number): Promise<void> {
    const sockets = await world.client.connectMany(server, copies);
    assert.equal(sockets.length, copies);
    await Promise.all(sockets.map((socket) => socket.write(flight)));
    await assert.rejects(world.origin.accept(port, silenceMs), /nobody connected/, 'the target was reached');
    for (const socket of sockets) {
      const { bytes, ended, closed } = await socket.snapshot();
      assert.deepEqual({ bytes, ended, closed }, { bytes: 0, ended: false, closed: false });
      await socket.destroy();
    }
  }

  test('a first flight that one worker has served reaches no target by any worker, however late it is replayed', async () => {
    const port = originPorts.manual;
    const { stdout } = await world.bed.internet.run('ss', ['-Htln', `sport = :${serverPort}`]);
    assert.equal(String(stdout).trim().split('\n').length, 2, `listeners of two workers: ${String(stdout)}`);
    const flight = firstFlight(port);
    const begun = performance.now();
    await isServed(flight, port);
    for (const seconds of replayAtSeconds) {
      await delay(begun + seconds * 1000 - performance.now());
      await isRefused(flight, port);
    }
  });

  test('copies of one first flight that arrive together reach the target once', async () => {
    const port = originPorts.manual2;
    const flight = firstFlight(port);
    const sockets = await world.client.connectMany(server, copies);
    await Promise.all(sockets.map((socket) => socket.write(flight)));
    const origin = await world.origin.accept(port);
    assert.equal((await origin.wait({ bytes: 12 })).data.toString(), 'first flight');
    await assert.rejects(world.origin.accept(port, silenceMs), /nobody connected/, 'reached more than once');
    await Promise.all(sockets.map((socket) => socket.destroy()));
    await origin.destroy();
  });

  test(`${honestConnections} connections of ss-redir meanwhile are none of them taken for replays`, async () => {
    const { completed, failures } = await world.client.bulk({
      host: origins.ipv4,
      port: originPorts.transfer,
      connections: honestConnections,
      atOnce: 20,
      down: 100,
      up: 100,
    });
    assert.deepEqual([completed, failures], [honestConnections, {}]);
    const refused = service.output.split('\n').filter((line) => line.includes(addresses.gatewayWan.ipv4));
    assert.deepEqual(refused, [], 'ss-server complains about connections of ss-redir');
  });
});

function firstFlight(port: number): Buffer {
  const sealer = new PeerSealer(method, password);
  const payload = Buffer.from('first flight');
  return Buffer.concat([
    sealer.salt,
    sealer.chunk(Buffer.concat([targetAddress(origins.ipv4, port), payload])),
  ]);
}
