// ss-redir and ss-server beside a service manager of the test's own: what they tell it, and sockets that it passes.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { describeSocket } from '../../src/linux/passed-socket.js';
import { readUsage } from '../../src/demo/service.js';
import { FakeManager } from '../helpers/manager.js';
import { unprivileged } from '../helpers/packages.js';
import { HungThread, workersOf } from '../helpers/threads.js';
import {
  families,
  originPorts,
  origins,
  redirPort,
  serverPort,
  whySkipped,
  World,
} from '../helpers/world.js';

const activator = fileURLToPath(new URL('../helpers/activator.js', import.meta.url));
const watchdogMs = 2000;

describe('beside a service manager', { skip: whySkipped() }, () => {
  let world: World;
  let directory: string;
  let manager: FakeManager;
  before(async () => {
    world = await World.create('s1-act');
    directory = mkdtempSync(join(tmpdir(), 'ss-redir-test-'));
  });
  after(async () => {
    rmSync(directory, { recursive: true });
    await world?.destroy();
  });
  afterEach(async () => {
    await world.reset();
    manager?.close();
  });

  function listen(extra: Record<string, string> = {}): Record<string, string> {
    manager = new FakeManager(join(directory, 'notify'));
    return { NOTIFY_SOCKET: manager.address, ...extra };
  }

  async function carries(connections = 10): Promise<void> {
    for (const family of families) {
      const target = { host: origins[family], port: originPorts.transfer };
      const { failures } = await world.client.bulk({ ...target, connections, down: 2e5, up: 2e5 });
      assert.deepEqual(failures, {}, family);
    }
  }

  test('ready is said once and when clients are served; then reloading and ready, then stopping', async () => {
    await world.startServer('ours');
    const env = listen();
    const redir = await world.startRedir('ours', 'tproxy', { env, waitForListen: false });
    const ready = await manager.next('READY');
    assert.equal(ready.fields['STATUS'], 'serving 0 TCP connections with 1 worker');
    const client = await world.client.connect({ host: origins.ipv4, port: originPorts.banner });
    assert.match((await client.wait({ bytes: 1 })).data.toString(), /^220 /);

    redir.kill('SIGHUP');
    const reloading = await manager.next('RELOADING', ready);
    assert.match(reloading.fields['MONOTONIC_USEC']!, /^\d+$/);
    const again = await manager.next('READY', reloading);
    assert.equal(again.fields['STATUS'], 'serving 1 TCP connection with 1 worker');
    assert.equal((await client.snapshot()).closed, false, 'the connection goes on');

    assert.deepEqual(await redir.stop(), { code: 0, signal: undefined });
    await manager.next('STOPPING');
    assert.equal(manager.notices.filter(({ fields }) => 'READY' in fields).length, 2);
  });

  test('refused at the start, nothing is said to be ready', async () => {
    const env = listen();
    await world.bed.gateway.start(
      process.execPath,
      ['-e', `require('node:net').createServer().listen(${redirPort})`],
      { listen: redirPort },
    );
    const redir = await world.startRedir('ours', 'redirect', { env, waitForListen: false });
    assert.equal((await redir.exited).code, 1);
    while (manager.receive() !== undefined);
    assert.deepEqual(
      manager.notices.filter(({ fields }) => 'READY' in fields),
      [],
    );
    for (const pid of world.bed.gateway.pids()) process.kill(pid, 'SIGKILL');
  });

  test('every listener that it opened is given into the store, TCP and UDP, under a name of its own', async () => {
    await world.startServer('ours');
    const config = { mode: 'tcp_and_udp' };
    await world.startRedir('ours', 'tproxy', { env: listen(), config, args: ['--workers', '2'] });
    await manager.next('READY');
    const stored = manager.notices.filter(({ fields }) => 'FDSTORE' in fields);
    const what = stored.map(({ fields, descriptors }) => {
      const { kind, endpoint } = describeSocket(descriptors[0]!)!;
      return `${fields['FDNAME']} ${kind} ${endpoint}`;
    });
    const any = '0'.repeat(32);
    assert.deepEqual(what.toSorted(), [
      `kept-tcp-${any}-${redirPort} tcp [::]:${redirPort}`,
      `kept-tcp-${any}-${redirPort} tcp [::]:${redirPort}`, // one a worker
      `kept-udp-${any}-${redirPort} udp [::]:${redirPort}`,
    ]);
  });

  test('the watchdog is fed while all workers turn, not while one hangs, and again when it goes on', async () => {
    await world.startServer('ours');
    const env = listen({ WATCHDOG_USEC: String(watchdogMs * 1000) });
    const redir = await world.startRedir('ours', 'redirect', { env, args: ['--workers', '2'] });
    await manager.next('READY');
    const fed = () => {
      while (manager.receive() !== undefined);
      return manager.notices.filter(({ fields }) => 'WATCHDOG' in fields).length;
    };
    await delay(watchdogMs);
    assert.ok(fed() >= 2, `fed ${fed()} times in one period`);
    const [, worker] = await workersOf(redir.pid, 2);
    const hung = new HungThread(worker!);
    try {
      await delay(watchdogMs / 2); // what was on its way
      const feeds = fed();
      await delay(watchdogMs);
      assert.equal(fed(), feeds, 'fed while a worker hangs');
      assert.match(
        redir.output,
        /ERROR: worker [12] has stood still for \d s: the watchdog is not fed any more/,
      );
      assert.ok(manager.notices.some(({ text }) => /^STATUS=hanging: worker [12]$/.test(text)));
    } finally {
      await hung.release();
    }
    await manager.next('WATCHDOG', manager.notices.at(-1), watchdogMs);
    await redir.waitForOutput(/INFO: worker [12] goes on/);
    await carries();
  });

  for (const workers of ['1', '3']) {
    test(`a transparent socket of a socket unit serves TPROXY without any privilege, with ${workers} workers`, async () => {
      await world.startServer('ours');
      const prefix = [
        process.execPath,
        activator,
        `ss-redir@x.socket=tcp+/::/${redirPort}`,
        '--',
        ...unprivileged,
      ];
      const args = ['--outbound-fwmark', '0', '--workers', workers];
      const redir = await world.startRedir('ours', 'tproxy', { prefix, args });
      await redir.waitForOutput(/listening at/);
      await carries(40);
      assert.doesNotMatch(redir.output, /ERROR/);
    });
  }

  test('sockets are found by their address: UDP and a second port come first, and the unit decides the address', async () => {
    const prefix = [
      process.execPath,
      activator,
      `a=udp/0.0.0.0/${serverPort}`,
      'b=tcp/127.0.0.1/9700',
      `c=tcp/::/${serverPort}`,
      '--',
    ];
    const config = { mode: 'tcp_and_udp', server: [`[::]:${serverPort}`, '127.0.0.1:9700'] };
    const server = await world.startServer('ours', { prefix, config, waitForListen: false });
    await server.waitForOutput(/listening at/);
    assert.match(server.output, new RegExp(`listening at 0.0.0.0:${serverPort}, as the socket unit has it`));
    await world.startRedir('ours', 'redirect');
    await carries();
  });

  test("a socket at another port than the configuration's refuses the start and says so", async () => {
    const prefix = [process.execPath, activator, 'x.socket=tcp/::/5555', '--'];
    const redir = await world.startRedir('ours', 'redirect', { prefix, waitForListen: false });
    assert.equal((await redir.exited).code, 1);
    assert.match(
      redir.output,
      /passes a TCP socket at \[::\]:5555 \("x\.socket"\), where the configuration does not listen/,
    );
  });

  test('workers that share a socket use no CPU while nobody comes, and rest at the connection limit', async () => {
    await world.startServer('ours');
    const prefix = [process.execPath, activator, `x.socket=tcp/::/${redirPort}`, '--'];
    const args = ['--workers', '2', '--max-connections', '2'];
    const redir = await world.startRedir('ours', 'redirect', { prefix, args });
    await redir.waitForOutput(/listening at/);
    const target = { host: origins.ipv4, port: originPorts.silent };
    const held = await world.client.connectMany(target, 8);
    await delay(500);
    const [pid] = childrenOf(redir.pid);
    const cpu = () => readUsage(pid!).userSeconds + readUsage(pid!).systemSeconds;
    const usedBefore = cpu();
    await delay(1000);
    assert.ok(cpu() - usedBefore <= 0.1, `${cpu() - usedBefore} s of CPU in a second at the limit`);
    await Promise.all(held.map((socket) => socket.reset()));
    await carries();
  });
});

function childrenOf(pid: number): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
}
