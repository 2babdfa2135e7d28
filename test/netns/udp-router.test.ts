// The router's own UDP and TCP, proxied by the same rules as the LAN's (R24), with nothing to tell ss-redir's own packets by but
// their mark.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Service } from '../../src/demo/service.js';
import { describe as text, UdpSocket } from '../helpers/udp-sockets.js';
import { remotes, UdpWorld } from '../helpers/udp-world.js';
import { cpuSeconds, families, originPorts, origins, whySkipped } from '../helpers/world.js';

describe('udp: router', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  let redir: Service;
  before(async () => {
    udp = await UdpWorld.create('router');
    ({ redir } = await udp.startRelay());
    await udp.loadRules({ router: 'proxied', bypass: [] });
  });
  after(() => udp?.destroy());

  for (const family of families) {
    const { asked, stranger } = remotes[family];
    const any = family === 'ipv4' ? '0.0.0.0' : '::';

    test(`${family}: a name server answers the router`, async () => {
      const answers = { 'name.example': { a: ['198.51.100.5'] } };
      await udp.world.origin.call('serveNames', { host: asked, port: 53, answers });
      const server = family === 'ipv4' ? `${asked}:53` : `[${asked}]:53`;
      const query = { server, name: 'name.example', family: 4 } as const;
      assert.deepEqual(await udp.router.call('resolve', query), ['198.51.100.5']);
    });

    test(`${family}: 200 echoes come back, from who was asked and from a stranger`, async () => {
      const far = { host: asked, port: 4000 };
      const remote = await udp.remote(far, 'silent');
      const other = await udp.remote({ host: stranger, port: 9999 }, 'silent');
      const socket = await UdpSocket.open(udp.router, { host: any });
      const cpu = await cpuSeconds(redir.pid, async () => {
        for (let round = 1; round <= 200; round++) {
          await socket.send(far, `question ${round}`);
          const { data, from } = await remote.next();
          assert.equal(data.toString(), `question ${round}`);
          const [host, port] = from.split(' ') as [string, string];
          for (const sender of [remote, other]) await sender.send({ host, port: Number(port) }, 'answer');
          const answers = (await socket.take(2)).map(text).toSorted();
          assert.deepEqual(answers, [`answer from ${asked} 4000`, `answer from ${stranger} 9999`].toSorted());
        }
      });
      assert.ok(cpu < 0.8, `${cpu} s of CPU for 200 echoes: a loop`);
      assert.equal(await remote.count(), 200);
    });

    test(`${family}: TCP of the router and of the LAN works beside it`, async () => {
      for (const who of [udp.router, udp.world.client]) {
        const target = { host: origins[family], port: originPorts.transfer };
        const { failures } = await who.bulk({ ...target, connections: 8, down: 100_000, up: 100_000 });
        assert.deepEqual(failures, {});
      }
    });

    test(`${family}: LAN clients are answered under the same rules`, async () => {
      const far = { host: asked, port: 4001 };
      await udp.remote(far, 'echo');
      const client = await udp.client(family);
      for (let round = 1; round <= 3; round++)
        assert.equal(await client.ask(far, `${round}`), `${round} from ${asked} 4001`);
    });
  }
});
