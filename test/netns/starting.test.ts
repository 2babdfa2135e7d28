// What the programs say and where they listen when they start: modes (R04), lists of addresses, families (R12), and the
// configuration that Debian ships.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { addresses, internetAddresses } from '../../src/demo/netns.js';
import { Agent } from '../helpers/agents.js';
import { loadRules } from '../helpers/rules.js';
import {
  families,
  modes,
  originPorts,
  origins,
  redirPort,
  whySkipped,
  World,
  type Config,
  type Mode,
} from '../helpers/world.js';

const bannerLimitMs = 1500;

describe('starting', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('start');
  });
  after(() => world?.destroy());
  afterEach(() => world.reset());

  async function hearsBanner(host: string, from: Agent = world.client): Promise<void> {
    const client = await from.connect({ host, port: originPorts.banner });
    const { data, lifeMs } = await client.wait({ bytes: 1 });
    assert.match(data.toString(), /^220 /, host);
    assert.ok(lifeMs < bannerLimitMs, `${lifeMs} ms`);
    await client.destroy();
  }

  const asked: [how: string, config: Config, args: string[], mode: Mode][] = [
    ['nothing', {}, [], 'redirect'],
    ['"tcp_tproxy": false', { tcp_tproxy: false }, [], 'redirect'],
    ['"tcp_tproxy": true', { tcp_tproxy: true }, [], 'tproxy'],
    ['-T', {}, ['-T'], 'tproxy'],
    ['-T and "tcp_tproxy": false', { tcp_tproxy: false }, ['-T'], 'tproxy'],
  ];
  for (const [how, config, args, mode] of asked) {
    test(`${how}: ss-redir says that it is in ${mode} mode, and is`, async () => {
      await world.startServer('ours');
      const redir = await world.startRedir('ours', 'redirect', { config, args });
      await redir.waitForOutput(/listening at/);
      const said = redir.output.match(/tcp (redirect|tproxy) mode enabled/g);
      assert.deepEqual(said, [`tcp ${mode} mode enabled`]);

      await loadRules(world.bed.gateway, mode, redirPort);
      for (const host of [...internetAddresses.ipv4.slice(0, 2), internetAddresses.ipv6[0]]) {
        for (const port of [originPorts.manual, originPorts.manual2]) {
          const client = await world.client.connect({ host, port });
          const origin = await world.origin.accept(port);
          assert.equal((await origin.snapshot()).local.replace('::ffff:', ''), `${host} ${port}`);
          await client.destroy();
        }
      }
    });
  }

  test('REDIRECT rules with a ss-redir in tproxy mode: the client is refused at once and the log says why', async () => {
    await world.startServer('ours');
    const redir = await world.startRedir('ours', 'redirect', { args: ['-T'] });
    const client = await world.client.connect({ host: origins.ipv4, port: originPorts.banner });
    const { bytes, ended, closed, error, lifeMs } = await client.wait({ ended: true, closed: true });
    assert.ok(bytes === 0 && (ended || closed || error !== undefined), 'still open');
    assert.ok(lifeMs < 1000, `${lifeMs} ms`);
    await redir.waitForOutput(new RegExp(`refused .*${addresses.client.ipv4}`), 1000);
  });

  for (const listed of [
    ['0.0.0.0', '::'],
    ['::', '0.0.0.0'],
    ['::0', '0.0.0.0'],
    ['[::]', '0.0.0.0'],
  ]) {
    for (const workers of ['1', '2']) {
      test(`ss-server on ${JSON.stringify(listed)} with ${workers} workers serves both families`, async () => {
        await world.startServer('ours', { config: { server: listed }, args: ['--workers', workers] });
        for (const family of families) {
          const redir = await world.startRedir('ours', 'redirect', {
            config: { server: addresses.internet[family] },
          });
          await hearsBanner(origins[family]);
          await world.stop(redir);
        }
      });
    }
  }

  // As /etc/shadowsocks-libev/config.json comes from Debian's package, with another password.
  const debianConfig = `{
    "server":["::1", "127.0.0.1"],
    "mode":"tcp_and_udp",
    "server_port":8388,
    "local_port":1080,
    "password":"barfoo!",
    "timeout":86400,
    "method":"chacha20-ietf-poly1305"
}
`;
  const debianPort = 1080;

  test("Debian's configuration starts ss-server and ss-redir, with UDP, and carries traffic", async (t) => {
    const { gateway } = world.bed;
    const file = world.writeConfig(debianConfig);
    const server = await world.startServer('ours', { file, netns: gateway });
    const redir = await world.startRedir('ours', 'redirect', { file, config: { local_port: debianPort } });
    await redir.waitForOutput(/listening at \[?127\.0\.0\.1\]?:1080/);
    for (const { output } of [server, redir]) assert.match(output, /UDP relay enabled/);
    assert.match(redir.output, /-b ::/, 'that the LAN does not reach 127.0.0.1 is not told');

    // Both on loopback: the gateway's own connections are what can reach them.
    await loadRules(gateway, 'redirect', debianPort, { router: 'proxied', bypass: [] });
    const router = new Agent(gateway.name);
    t.after(() => router.stop());
    await hearsBanner(origins.ipv4, router);
    const target = { host: origins.ipv4, port: originPorts.transfer };
    const { failures } = await router.bulk({ ...target, connections: 10, down: 1e6, up: 1e6 });
    assert.deepEqual(failures, {});
    const { stdout } = await gateway.run('nft', ['list', 'counter', 'inet', 'ss_redir_default', 'to_proxy']);
    assert.match(String(stdout), /packets 11 /, 'the connections went another way');
  });

  for (const mode of modes) {
    test(`${mode}: a family may be left out of the rules, and is then direct`, async () => {
      await world.startServer('ours');
      await world.startRedir('ours', mode);
      await loadRules(world.bed.gateway, mode, redirPort, { bypass: [addresses.internet.ipv4, '::/0'] });
      for (const [family, from] of [
        ['ipv6', addresses.client.ipv6],
        ['ipv4', origins.ipv4], // ss-server speaks to an address of its own host from that address
      ] as const) {
        const client = await world.client.connect({ host: origins[family], port: originPorts.manual });
        await client.write('x');
        const origin = await world.origin.accept(originPorts.manual);
        const { remote } = await origin.wait({ bytes: 1 });
        assert.equal(remote.replace('::ffff:', '').split(' ')[0], from, family);
        await client.destroy();
      }
    });
  }
});
