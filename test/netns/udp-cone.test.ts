// Whom a LAN client hears over UDP, and as whom it is seen (R13, R15, R23): full cone.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { internetAddresses } from '../../src/demo/netns.js';
import { describe as text } from '../helpers/udp-sockets.js';
import { remotes, UdpWorld } from '../helpers/udp-world.js';
import { families, whySkipped } from '../helpers/world.js';

const dns = 53;
const secondClient = { ipv4: '192.168.50.3', ipv6: 'fd50::3' };
const firstClient = { ipv4: '192.168.50.2', ipv6: 'fd50::2' };

describe('udp: full cone', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  before(async () => {
    udp = await UdpWorld.create('cone');
    const { client } = udp.world.bed;
    await client.ip(`addr add ${secondClient.ipv4}/24 dev c0`);
    await client.ip(`addr add ${secondClient.ipv6}/64 dev c0 nodad`);
    await udp.startRelay();
  });
  after(() => udp?.destroy());

  for (const family of families) {
    const { asked, stranger } = remotes[family];

    test(`${family}: a name server is asked through the gateway and answers`, async () => {
      const { world } = udp;
      const records = { 'name.example': { a: ['198.51.100.5'], aaaa: ['2001:db8::5'] } };
      await world.origin.call('serveNames', { host: asked, port: dns, answers: records });
      const server = family === 'ipv4' ? `${asked}:${dns}` : `[${asked}]:${dns}`;
      const query = { server, name: 'name.example' };
      assert.deepEqual(await world.client.call('resolve', { ...query, family: 4 }), ['198.51.100.5']);
      assert.deepEqual(await world.client.call('resolve', { ...query, family: 6 }), ['2001:db8::5']);
    });

    test(`${family}: who was asked, another port and another host are heard as themselves, 20 times in one flow`, async () => {
      const senders = await Promise.all([
        udp.remote({ host: asked, port: 4000 }, 'silent'),
        udp.remote({ host: asked, port: 5454 }, 'silent'),
        udp.remote({ host: stranger, port: 9999 }, 'silent'),
      ]);
      const client = await udp.client(family);
      let outside: string | undefined;
      for (let round = 1; round <= 20; round++) {
        await client.send({ host: asked, port: 4000 }, `question ${round}`);
        const question = await senders[0]!.next();
        assert.equal(question.data.toString(), `question ${round}`);
        outside ??= question.from;
        assert.equal(question.from, outside, 'the mapping has changed');
        const [host, port] = outside.split(' ') as [string, string];
        for (const sender of senders) {
          await sender.send({ host, port: Number(port) }, `${sender.port} says ${round}`);
        }
        const answers = (await client.take(3)).map(text).toSorted();
        assert.deepEqual(answers, [
          `4000 says ${round} from ${asked} 4000`,
          `5454 says ${round} from ${asked} 5454`,
          `9999 says ${round} from ${stranger} 9999`,
        ]);
      }
    });

    test(`${family}: 100 remotes see one client socket at one port, and each answers as itself`, async () => {
      const hosts = internetAddresses[family];
      const far = Array.from({ length: 100 }, (_, i) => ({ host: hosts[i % hosts.length]!, port: 6000 + i }));
      await Promise.all(far.map((address) => udp.remote(address, 'mirror')));
      const client = await udp.client(family);
      for (const to of far) await client.send(to, 'who am I');
      const answers = await client.take(far.length);
      const sources = answers.map(({ from }) => from);
      assert.deepEqual(sources.toSorted(), far.map(({ host, port }) => `${host} ${port}`).toSorted());
      const ports = new Set(answers.map(({ data }) => data.toString().split(' ')[1]));
      assert.equal(ports.size, 1, `seen at ports ${[...ports].join(', ')}`);
    });

    test(`${family}: two clients with the same port talk to the same host, each hears its own answers`, async () => {
      const far = { host: asked, port: 3478 };
      await udp.remote(far, 'mirror');
      const echo = { host: asked, port: 3479 };
      await udp.remote(echo, 'echo');
      const clients = await Promise.all(
        [firstClient, secondClient].map((address) =>
          udp.client(family, { host: address[family], port: 5000 }),
        ),
      );
      const seen = await Promise.all(clients.map((client) => client.ask(far, 'who am I')));
      assert.notEqual(seen[0], seen[1], 'both are seen at one port');
      // The reply sockets are there now, and must not take what the clients send.
      for (let round = 1; round <= 5; round++) {
        for (const [i, client] of clients.entries()) await client.send(echo, `${i} says ${round}`);
        for (const [i, client] of clients.entries()) {
          assert.equal(text(await client.next()), `${i} says ${round} from ${asked} 3479`);
          assert.equal(await client.ask(far, 'who am I'), seen[i]);
        }
      }
    });
  }
});
