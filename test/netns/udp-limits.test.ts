// Many flows at once, and the limits on them (R22): descriptors, sessions, CPU, system calls.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test, afterEach } from 'node:test';
import { join } from 'node:path';
import { internetAddresses } from '../../src/demo/netns.js';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import type { Service } from '../../src/demo/service.js';
import { remotes, UdpWorld } from '../helpers/udp-world.js';
import { cpuSeconds, originPorts, origins, whySkipped } from '../helpers/world.js';

const port = 4000;
const to = [{ host: remotes.ipv4.asked, port }];

describe('udp: limits', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  before(async () => {
    udp = await UdpWorld.create('limits');
  });
  after(() => udp?.destroy());
  afterEach(() => udp.reset());

  test('4,000 queries from 4,000 ports are answered under a limit of 1,024 descriptors, and TCP goes on', async () => {
    const options = { prefix: ['prlimit', '--nofile=1024:1024'] };
    const { redir, server } = await udp.startRelay({ redir: options, server: options });
    await udp.remote(to[0]!, 'echo');
    const most = { redir: 0, server: 0 };
    const watch = setInterval(() => {
      most.redir = Math.max(most.redir, redir.usage().fds);
      most.server = Math.max(most.server, server.usage().fds);
    }, 20);
    const queries = udp.world.client.call('openFlows', { to, flows: 4000, ms: 3000 });
    const transfers = udp.world.client.bulk({
      host: origins.ipv4,
      port: originPorts.transfer,
      connections: 100,
      atOnce: 20,
      down: 20_000,
      up: 20_000,
    });
    const { answers, strange } = await queries;
    clearInterval(watch);
    assert.deepEqual((await transfers).failures, {});
    assert.deepEqual(strange, []);
    assert.equal(answers.filter((text, i) => text === `flow ${i}`).length, 4000, 'answered');
    for (const [name, fds] of Object.entries(most)) {
      assert.ok(fds > 200 && fds < 1000, `${name} had ${fds} descriptors`);
    }
  });

  test('5,000 flows are kept apart, each keeps its outside port, and at rest they cost no CPU', async () => {
    const { redir, server } = await udp.startRelay();
    await udp.remote(to[0]!, 'mirror');
    const first = await udp.world.client.call('openFlows', { to, flows: 5000 });
    assert.equal(new Set(first.answers).size, 5000, 'outside ports');
    const turned = Array.from({ length: 1000 }, (_, i) => (i * 1777) % 5000);
    const again = await udp.world.client.call('askFlows', { group: first.group, only: turned });
    assert.deepEqual(
      again.answers,
      turned.map((i) => first.answers[i]),
    );

    for (const { pid, label } of [redir, server]) {
      const cpu = await cpuSeconds(pid, () => delay(1000));
      assert.ok(cpu <= 0.04, `${label}: ${cpu} s of CPU in 1 s`); // a few ticks of 10 ms: other programs run, too
    }
  });

  test('at the cap the session that was silent for longest goes, and the new one is served', async () => {
    const args = ['--udp-max-associations', '100'];
    const { redir } = await udp.startRelay({ redir: { args } });
    const { first, fds } = await fillCap(redir);

    const newest = Array.from({ length: 100 }, (_, i) => 200 + i);
    const oldest = Array.from({ length: 50 }, (_, i) => i);
    const { group } = first;
    const kept = await udp.world.client.call('askFlows', { group, only: newest, atOnce: 1 });
    const wanted = newest.map((i) => first.answers[i]);
    assert.deepEqual(kept.answers, wanted, 'a session within the cap is gone');
    const renewed = await udp.world.client.call('askFlows', { group, only: oldest, atOnce: 1 });
    assertRenewed(renewed.answers, first.answers);
    assert.ok(redir.usage().fds <= fds + 1, `${redir.usage().fds} descriptors`);
  });

  test('the same in ss-server, where a 2022 session outlives its socket', async () => {
    const config = { method: '2022-blake3-aes-256-gcm', password: Buffer.alloc(32, 7).toString('base64') };
    const { server } = await udp.startRelay({ config, server: { args: ['--udp-max-associations', '100'] } });
    const { first, fds } = await fillCap(server);
    const again = await udp.world.client.call('askFlows', { group: first.group, atOnce: 1 });
    assertRenewed(again.answers, first.answers);
    assert.ok(server.usage().fds <= fds + 1, `${server.usage().fds} descriptors`);
  });

  /** 300 flows to one that holds 100. */
  async function fillCap(service: Service) {
    await udp.remote(to[0]!, 'mirror');
    const first = await udp.world.client.call('openFlows', { to, flows: 300, atOnce: 1 });
    assert.equal(first.answers.filter(Boolean).length, 300, 'answered');
    const { fds } = service.usage();
    assert.ok(fds > 100 && fds < 180, `${fds} descriptors for 100 sessions`);
    return { first, fds };
  }

  test('more remotes at once than there are descriptors to answer with are all heard as themselves', async () => {
    const prefix = ['prlimit', '--nofile=512:512'];
    const { redir } = await udp.startRelay({ redir: { prefix } });
    const hosts = internetAddresses.ipv4;
    const far = Array.from({ length: 1000 }, (_, i) => ({
      host: hosts[i % hosts.length]!,
      port: 10_000 + i,
    }));
    await Promise.all(far.map((address) => udp.remote(address, 'echo')));
    const client = await udp.client('ipv4');
    const wanted = far.map(({ host, port: from }) => `${host} ${from}`).toSorted();
    for (let round = 0; round < 2; round++) {
      for (const address of far) await client.send(address, 'hello');
      const sources = (await client.take(far.length)).map(({ from }) => from);
      assert.deepEqual(sources.toSorted(), wanted);
    }
    assert.ok(redir.usage().fds < 500, `${redir.usage().fds} descriptors`);
  });

  test('1,000 echoes make neither end open a socket for each', async () => {
    const { redir, server } = await udp.startRelay();
    await udp.remote(to[0]!, 'echo');
    const { group } = await udp.world.client.call('openFlows', { to, flows: 1 });
    const echoes = Array.from({ length: 1000 }, () => 0);
    for (const { pid, label } of [redir, server]) {
      const calls = await traced(pid, async () => {
        const { answers } = await udp.world.client.call('askFlows', { group, only: echoes, atOnce: 1 });
        assert.equal(answers.filter((text) => text === 'flow 0').length, 1000);
      });
      const opening = calls.filter((call) => /\b(socket|bind|connect)\(/.test(call));
      assert.ok(opening.length < 20, `${label}: ${opening.length} calls, such as ${opening[0]}`);
      const moving = calls.filter((call) => /\b(recvmmsg|recvmsg|recvfrom)\(/.test(call));
      assert.ok(moving.length >= 1000, `${label}: strace saw ${moving.length} reads, so it has not watched`);
    }
  });

  /** What strace sees of these calls while `work` runs. */
  async function traced(pid: number, work: () => Promise<void>): Promise<string[]> {
    const file = join(udp.world.directory, `strace-${pid}`);
    const trace = 'trace=socket,bind,connect,recvmmsg,recvmsg,recvfrom';
    const strace = execa('strace', ['-f', '-e', trace, '-o', file, '-p', String(pid)], { reject: false });
    const attached = new Promise<void>((resolve) => {
      strace.stderr.on('data', (chunk: Buffer) => {
        if (/attached/.test(chunk.toString())) resolve();
      });
    });
    await Promise.race([attached, strace]);
    try {
      await work();
    } finally {
      strace.kill('SIGINT');
      await strace;
    }
    return readFileSync(file, 'utf8').split('\n');
  }
});

/** All are answered, by new sockets: the kernel may give one the port that another had, but not often. */
function assertRenewed(
  answers: readonly (string | undefined)[],
  earlier: readonly (string | undefined)[],
): void {
  assert.equal(answers.filter(Boolean).length, answers.length, 'answered');
  const same = answers.filter((answer, i) => answer === earlier[i]).length;
  assert.ok(same < answers.length / 10, `${same} of ${answers.length} sessions were not evicted`);
}
