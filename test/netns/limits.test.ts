// What ss-redir does at its limits, and what connections cost that carry nothing.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { idleBytes } from '../bench/idle.js';
import { unprivileged } from '../helpers/packages.js';
import { cpuSeconds, originPorts, origins, whySkipped, World } from '../helpers/world.js';

const MiB = 1 << 20;
const KiB = 1024;

describe('limits', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('limits');
  });
  after(() => world?.destroy());

  test('at the descriptor limit it neither spins nor floods the log, and recovers', async (t) => {
    t.after(() => world.reset());
    await world.startServer('debian');
    const redir = await world.startRedir('ours', 'redirect', { prefix: ['prlimit', '--nofile=128:128'] });
    const target = { host: origins.ipv4, port: originPorts.echo };
    const early = await world.client.connect(target);
    await early.write('early');
    await early.wait({ bytes: 5 });

    const seconds = 4;
    const linesBefore = redir.output.split('\n').length;
    const cpu = await cpuSeconds(redir.pid, async () => {
      const clients = await world.client.connectMany(target, 200);
      await delay(seconds * 1000);
      await early.write(' still');
      assert.equal((await early.wait({ bytes: 11 }, 1000)).data.toString(), 'early still');
      assert.ok(redir.usage().fds > 100, `${redir.usage().fds} descriptors: the limit was not reached`);
      await Promise.all(clients.map((client) => client.destroy()));
    });
    assert.ok(cpu < 0.1 * seconds, `${cpu} s of CPU in ${seconds} s`);
    const lines = redir.output.split('\n').length - linesBefore;
    assert.ok(lines <= 5 * seconds, `${lines} log lines`);

    const later = await world.client.connect(target);
    await later.write('later');
    assert.equal((await later.wait({ bytes: 5 }, 2000)).data.toString(), 'later');
  });

  describe('nofile', () => {
    for (const [form, options] of [
      ['-n 4096', { args: ['-n', '4096'] }],
      ['"nofile": 4096', { config: { nofile: 4096 } }],
    ] as const) {
      test(`${form} is in force under a soft limit of 1024, and -v says so`, async (t) => {
        t.after(() => world.reset());
        const prefix = ['prlimit', '--nofile=1024:8192'];
        const redir = await world.startRedir('ours', 'redirect', {
          ...options,
          args: ['-v', ...('args' in options ? options.args : [])],
          prefix,
        });
        assert.equal(softLimit(redir.pid), 4096);
        await redir.waitForOutput(/\b4096 descriptors/, 1000);
      });
    }

    test('without privilege the hard limit stays, and the log says which value is in force', async (t) => {
      t.after(() => world.reset());
      const redir = await world.startRedir('ours', 'redirect', {
        config: { nofile: 4096, outbound_fwmark: 0 }, // a mark would need the capability too
        prefix: ['prlimit', '--nofile=1024:2048', ...unprivileged],
      });
      assert.equal(softLimit(redir.pid), 2048);
      await redir.waitForOutput(/2048/, 1000);
    });
  });

  describe('connections that carry nothing cost no CPU', () => {
    const watchedMs = 4000;
    const noise = 0.08; // seconds, 2 % of that: ticks of 10 ms, and interrupts that hit us; a spin takes all of it

    test('idle, stalled, half-closed, ended behind a full client, and dead', async (t) => {
      t.after(() => world.reset());
      await world.startServer('ours');
      const redir = await world.startRedir('ours', 'redirect');
      const host = origins.ipv4;
      await delay(500);
      const alone = await cpuSeconds(redir.pid, () => delay(watchedMs));

      await world.client.bulk({
        host,
        port: originPorts.transfer,
        connections: 100,
        down: 4 * KiB,
        up: 4 * KiB,
        keep: true,
      });
      const halfClosed = await world.client.connectMany({ host, port: originPorts.silent }, 20);
      await Promise.all(halfClosed.map((client) => client.end()));
      const never = { connections: 1, up: 0, readDelayMs: 600_000 };
      const stalled = [
        world.client.bulk({ ...never, host, port: originPorts.transfer, connections: 20, down: 100 * MiB }),
        world.client.bulk({ host, port: originPorts.stopped, connections: 20, down: 0, up: 100 * MiB }),
      ];
      // Ended at the origin while the client is full: by size, the FIN waits in each of the buffers on the way.
      for (let size = 1; size <= 32; size++) {
        stalled.push(
          world.client.bulk({ ...never, host, port: originPorts.closing, down: (size * MiB) / 4 }),
        );
      }
      await delay(4000);
      const cpu = await cpuSeconds(redir.pid, () => delay(watchedMs));
      assert.ok(cpu <= alone + noise, `${cpu} s of CPU in ${watchedMs} ms, ${alone} s without connections`);

      await world.bed.client.ip('link set c0 down');
      t.after(() => world.restoreClientLink());
      await delay(500);
      const dead = await cpuSeconds(redir.pid, () => delay(watchedMs));
      assert.ok(dead <= alone + noise, `client gone: ${dead} s of CPU in ${watchedMs} ms`);
      await world.restoreClientLink();
      await world.client.call('clear', undefined);
      await Promise.all(stalled);
    });

    test('reset at the origin while the client is full', async (t) => {
      t.after(() => world.reset());
      await world.startServer('ours');
      const redir = await world.startRedir('ours', 'redirect');
      for (let count = 0; count < 10; count++) {
        const client = await world.client.connect({ host: origins.ipv4, port: originPorts.manual });
        await client.write('x');
        await client.pause();
        const origin = await world.origin.accept(originPorts.manual);
        await origin.write(Buffer.alloc(8 * MiB));
        await delay(50);
        await origin.reset();
      }
      await delay(500);
      const cpu = await cpuSeconds(redir.pid, () => delay(2000));
      assert.ok(cpu <= 0.05, `${cpu} s of CPU in 2 s`);
    });
  });

  // 2,000 connections after 128 KiB each way; a first 200 that stay open warm the program up and are not counted: code
  // compiled, heap grown, pools filled. Two settled readings of VmRSS are compared.
  test('an idle connection costs at most 8 KiB', async (t) => {
    t.after(() => world.reset());
    await world.startServer('debian');
    const redir = await world.startRedir('ours', 'redirect');
    const bytes = await idleBytes(world, redir, 2000);
    t.diagnostic(`${(bytes / KiB).toFixed(1)} KiB each`);
    assert.ok(bytes <= 8 * KiB, `${(bytes / KiB).toFixed(1)} KiB each`);
  });
});

function softLimit(pid: number): number {
  return Number(/^Max open files\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/limits`, 'utf8'))?.[1]);
}
