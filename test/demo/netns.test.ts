import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createTestbed, internetAddresses, whyNoNetns, type Testbed } from '../../src/demo/netns.js';

const node = process.execPath;
const listener = (port: number) =>
  `require('net').createServer((s) => s.end(s.remoteAddress)).listen(${port}, '::')`;
const visitor = `require('net').connect(25, process.argv[1]).pipe(process.stdout)`;

describe('testbed', { skip: whyNoNetns() }, () => {
  let testbed: Testbed;
  before(async () => {
    testbed = await createTestbed('ssr-bed');
  });
  after(() => testbed.destroy());

  it("the client reaches every address of the internet, which sees the client's own", async () => {
    await testbed.internet.start(node, ['-e', listener(25)], { listen: 25 });
    for (const address of [...internetAddresses.ipv4, ...internetAddresses.ipv6]) {
      const { stdout } = await testbed.client.run(node, ['-e', visitor, address]);
      assert.equal(stdout, address.includes(':') ? 'fd50::2' : '::ffff:192.168.50.2');
    }
  });

  it('there is no way from it to this machine', async () => {
    for (const netns of testbed.all) {
      assert.match(await netns.ip('-o link'), /^(\d+: (lo|c0|l0|w0|i0)[@:].*\n?)+$/);
    }
  });

  it('each namespace uses reno, and bridges do not hand packets to nft', async () => {
    for (const netns of testbed.all) {
      const { stdout } = await netns.run('cat', ['/proc/sys/net/ipv4/tcp_congestion_control']);
      assert.equal(stdout, 'reno');
      if (!existsSync('/proc/sys/net/bridge')) continue;
      assert.equal((await netns.run('cat', ['/proc/sys/net/bridge/bridge-nf-call-iptables'])).stdout, '0');
    }
  });

  it('a program that ends before it listens is reported at once, with its output', async () => {
    const start = Date.now();
    await assert.rejects(
      testbed.client.start(node, ['-e', 'console.log("no port today")'], { listen: 26, label: 'early' }),
      /early ended \(status 0\) before it listens on port 26: no port today/,
    );
    assert.ok(Date.now() - start < 3000);
  });

  it('a listener outside the namespace is not taken for one inside', async () => {
    const service = await testbed.gateway.start(node, ['-e', listener(27)], { listen: 27 });
    await assert.rejects(
      testbed.client.start('sleep', ['10'], { listen: 27, timeoutMs: 300 }),
      /not true after 300 ms: listens on port 27/,
    );
    await service.stop();
  });

  it('usage counts descriptors, memory and CPU of the process inside', async () => {
    const script = `for (let i = 0; i < 50; i++) require('fs').openSync('/dev/null');
      for (;;) { const { user, system } = process.cpuUsage(); if (user + system > 300_000) break; }
      ${listener(28)}`;
    const service = await testbed.client.start(node, ['-e', script], { listen: 28 });
    const usage = service.usage();
    assert.ok(usage.fds >= 50, `${usage.fds} descriptors`);
    assert.ok(usage.rssBytes > 10e6, `${usage.rssBytes} bytes`);
    assert.ok(usage.userSeconds + usage.systemSeconds >= 0.2);
    assert.ok(usage.threads.some(({ tid }) => tid === service.pid));
    assert.deepEqual(await service.stop('SIGKILL'), { code: undefined, signal: 'SIGKILL' });
  });
});

describe("a testbed's end", { skip: whyNoNetns() }, () => {
  it('destroy kills every process inside, a detached one too, and may be called twice', async () => {
    const testbed = await createTestbed('ssr-end');
    await testbed.gateway.run('sh', ['-c', 'setsid sleep 1000 >/dev/null 2>&1 &']);
    const pids = testbed.gateway.pids();
    assert.equal(pids.length, 1);
    await testbed.destroy();
    await testbed.destroy();
    assertGone(testbed.name, pids[0]!);
  });

  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    it(`${signal} to its process leaves nothing and ends the process by that signal`, async () => {
      const owner = await startOwner('ssr-signal');
      owner.process.kill(signal);
      assert.deepEqual(await owner.ended, [null, signal]);
      assertGone(owner.name, owner.inside);
    });
  }

  for (const [end, status] of [
    ['throw', 1],
    ['exit', 0],
  ] as const) {
    it(`a process that ends by ${end} leaves nothing`, async () => {
      const owner = await startOwner('ssr-ending', end);
      assert.deepEqual(await owner.ended, [status, null]);
      assertGone(owner.name, owner.inside);
    });
  }

  it('what a kill -9 leaves is cleared by the next testbed with that prefix; a running one is not', async () => {
    const killed = await startOwner('ssr-left');
    const running = await startOwner('ssr-left');
    killed.process.kill('SIGKILL');
    await killed.ended;
    assert.ok(
      existsSync(`/run/netns/${killed.name}-client`),
      'kill -9 left nothing: this test shows nothing',
    );

    const other = await createTestbed('ssr-lef'); // a prefix of the prefix clears nothing of it
    await other.destroy();
    assert.ok(existsSync(`/run/netns/${killed.name}-client`));

    const next = await createTestbed('ssr-left');
    assertGone(killed.name, killed.inside);
    assert.ok(existsSync(`/run/netns/${running.name}-client`));
    assert.ok(isRunning(running.inside));
    await next.destroy();
    running.process.kill('SIGTERM');
    await running.ended;
    assertGone(running.name, running.inside);
  });
});

async function startOwner(prefix: string, end = 'wait') {
  const program = fileURLToPath(new URL('owner.js', import.meta.url));
  const child = spawn(node, [program, prefix, end], { stdio: ['ignore', 'pipe', 'ignore'] });
  const ended = once(child, 'exit');
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  const { name, inside } = JSON.parse(line) as { name: string; inside: number };
  return { process: child, ended, name, inside };
}

function assertGone(name: string, pid: number): void {
  for (const role of ['client', 'gateway', 'internet']) {
    assert.ok(!existsSync(`/run/netns/${name}-${role}`), `${name}-${role} is still there`);
  }
  assert.ok(!isRunning(pid), `process ${pid} is still there`);
}

/** A zombie is gone: it has no memory, files or namespace left, and only waits for its parent, or init, to look. */
function isRunning(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
