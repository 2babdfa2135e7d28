// The router's own connections are proxied while no rule knows a server's address: ss-redir's own are told apart by their
// mark alone (R27). So the server may have a name, addresses of both families, and others tomorrow.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { addresses, internetAddresses } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { Agent } from '../helpers/agents.js';
import { loadRules } from '../helpers/rules.js';
import {
  cpuSeconds,
  modes,
  originPorts,
  origins,
  redirPort,
  serverPort,
  whySkipped,
  World,
  type Config,
  type Family,
  type Mode,
} from '../helpers/world.js';

const name = 'proxy.example';
const nameServerPort = 5353;
const shortestRefreshMs = 5000; // of an answer, however short its life is
const late = 5000;
const before_ = addresses.internet;
const afterwards = { ipv4: internetAddresses.ipv4[0], ipv6: internetAddresses.ipv6[1] }; // the same host's
const bytes = 100_000;

describe('own traffic', { skip: whySkipped() }, () => {
  let world: World;
  let router: Agent;
  before(async () => {
    world = await World.create('own');
    router = new Agent(world.bed.gateway.name);
    await world.startServer('ours', { config: { server: '::' } });
  });
  after(async () => {
    await router?.stop();
    await world?.destroy();
  });
  afterEach(() => router.call('clear', undefined));

  const nameIs = ({ ipv4, ipv6 }: Record<Family, string>) =>
    router.call('answerNames', {
      port: nameServerPort,
      answers: { [name]: { a: [ipv4], aaaa: [ipv6], ttl: 1 } },
    });

  /** ss-redir behind rules that send it everything that does not carry its mark. */
  async function startRedir(mode: Mode, config: Config): Promise<Service> {
    const redir = await world.startRedir('ours', mode, { config: { timeout: 5, ...config } });
    await loadRules(world.bed.gateway, mode, redirPort, { router: 'proxied', bypass: [] });
    return redir;
  }

  async function carries(): Promise<void> {
    for (const who of [world.client, router]) {
      const target = { host: origins.ipv4, port: originPorts.transfer };
      const { failures } = await who.bulk({ ...target, connections: 8, down: bytes, up: bytes });
      assert.deepEqual(failures, {});
    }
  }

  /** The servers' addresses to which the gateway has connections. */
  async function serversInUse(): Promise<string[]> {
    const filter = ['-Htn', 'state', 'established', `dport = :${serverPort}`];
    const { stdout } = await world.bed.gateway.run('ss', filter);
    const peers = String(stdout)
      .split('\n')
      .filter(Boolean)
      .map((line) => line.trim().split(/\s+/)[3]!.replace(/:\d+$/, '').replace(/[[\]]/g, ''));
    return [...new Set(peers)];
  }

  /** A connection of the router that stays; where it leads. */
  async function heldConnection() {
    const socket = await router.connect({ host: origins.ipv4, port: originPorts.echo });
    await socket.write('x');
    assert.equal((await socket.wait({ bytes: 1 })).bytes, 1);
    return socket;
  }

  for (const mode of modes) {
    for (const family of ['ipv4', 'ipv6'] as const) {
      test(`${mode}: a server by name, ${family} first, whose addresses change, makes no loop`, async (t) => {
        await nameIs(before_);
        const redir = await startRedir(mode, {
          server: name,
          nameserver: `127.0.0.1:${nameServerPort}`,
          ipv6_first: family === 'ipv6',
        });
        t.after(() => world.stop(redir));
        const fds = await world.restingFds(redir);
        await carries();
        const old = await heldConnection();
        assert.deepEqual(await serversInUse(), [before_[family]]);

        await nameIs(afterwards);
        const deadline = Date.now() + shortestRefreshMs + late;
        const isMoved = async () => {
          const one = await heldConnection();
          const moved = (await serversInUse()).includes(afterwards[family]);
          await one.destroy();
          return moved;
        };
        while (!(await isMoved())) {
          assert.ok(Date.now() < deadline, `still at ${(await serversInUse()).join(', ')}`);
          await delay(250);
        }
        await carries();
        await old.write('y');
        assert.equal((await old.wait({ bytes: 2 })).data.toString(), 'xy', 'an older connection is lost');
        await isQuiet(redir, fds + 2 + 1); // the old connection, and a name query
      });
    }

    test(`${mode}: two servers, one of each family, make no loop`, async (t) => {
      const redir = await startRedir(mode, { server: [before_.ipv4, `[${before_.ipv6}]:${serverPort}`] });
      t.after(() => world.stop(redir));
      const fds = await world.restingFds(redir);
      await carries();
      const held = [await heldConnection(), await heldConnection()];
      assert.deepEqual((await serversInUse()).toSorted(), [before_.ipv6, before_.ipv4].toSorted());
      await isQuiet(redir, fds + 2 * held.length);
    });

    // What the tests above stand on: without the mark these rules do make a loop, which ss-redir then ends by itself.
    test(`${mode}: without the mark our own connections come back and are refused, without a storm`, async (t) => {
      const redir = await startRedir(mode, { outbound_fwmark: 0 });
      t.after(() => world.stop(redir));
      const fds = await world.restingFds(redir);
      const cpu = await cpuSeconds(redir.pid, async () => {
        const client = await world.client.connect({ host: origins.ipv4, port: originPorts.echo });
        await client.write('x');
        const { bytes: received, closed, ended } = await client.wait({ closed: true, ended: true }, 8000);
        assert.ok(received === 0 && (closed || ended), 'the client is left hanging');
      });
      assert.ok(cpu < 0.5, `${cpu} s of CPU`);
      await redir.waitForOutput(/our own connection to the server .* came back/);
      assert.ok(redir.output.split('\n').length < 40, 'the log is flooded');
      assert.ok(await world.settles(() => redir.usage().fds <= fds), 'descriptors kept');
    });
  }
});

async function isQuiet(redir: Service, fds: number): Promise<void> {
  const cpu = await cpuSeconds(redir.pid, () => delay(1000));
  assert.ok(cpu < 0.2, `${cpu} s of CPU in 1 s`);
  assert.ok(redir.usage().fds <= fds, `${redir.usage().fds} descriptors, at most ${fds} expected`);
  assert.doesNotMatch(redir.output, /refused/);
}
