// Answers in the name of the router's own addresses: refused, as these come and go, and no socket of ours keeps the datagrams
// of the router's services.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { addresses } from '../../src/demo/netns.js';
import { UdpSocket } from '../helpers/udp-sockets.js';
import { remotes, UdpWorld, type Relay } from '../helpers/udp-world.js';
import { families, whySkipped } from '../helpers/world.js';

const bits = { ipv4: 32, ipv6: 128 } as const;
const port = 7000;
/** Within which a change of the router's addresses is noticed. */
const noticedMs = 4000;

describe("udp: the router's own addresses", { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  let relay: Relay;
  let refused = 0;
  before(async () => {
    udp = await UdpWorld.create('own');
    await udp.allAreHeard(true);
    relay = await udp.startRelay();
  });
  after(() => udp?.destroy());

  for (const family of families) {
    const { asked, stranger } = remotes[family];
    const own = addresses.gatewayWan[family];

    test(`${family}: who talks to a session from the router itself is not heard, and that is told`, async () => {
      const far = await udp.remote({ host: asked, port }, 'silent');
      const client = await udp.client(family);
      await client.send({ host: asked, port }, 'question');
      const [host, outside] = (await far.next()).from.split(' ') as [string, string];
      const to = { host, port: Number(outside) };
      for (const from of [53, port + 1]) {
        const router = await UdpSocket.open(udp.router, { host: own, port: from });
        await router.send(to, 'from the router');
        await udp.hasDropped(relay.redir, { misaddressed: ++refused });
        await router.close();
      }
      await client.hearsNothing();
      assert.match(relay.redir.output, /answers as \S+, which is this host's or nobody's address: dropped/);
      await far.send(to, 'answer');
      assert.equal((await client.next()).data.toString(), 'answer');
      await far.close();
    });

    test(`${family}: a remote whose address the router gets is heard no more, and again when that has gone`, async (t) => {
      const { gateway } = udp.world.bed;
      const address = `${stranger}/${bits[family]} dev lo`;
      const asker = await udp.remote({ host: asked, port }, 'silent');
      const far = await udp.remote({ host: stranger, port }, 'silent');
      const client = await udp.client(family);
      await client.send({ host: asked, port }, 'question');
      const [host, outside] = (await asker.next()).from.split(' ') as [string, string];
      const says = (text: string) => far.send({ host, port: Number(outside) }, text);
      await says('before');
      assert.equal((await client.next()).from, `${stranger} ${port}`);

      await gateway.ip(`addr add ${address}`);
      let isAdded = true;
      t.after(() => isAdded && gateway.ip(`addr del ${address}`));
      await delay(noticedMs);
      const service = await UdpSocket.open(udp.router, { host: stranger, port }); // nobody has it any more
      await says('meanwhile');
      await udp.hasDropped(relay.redir, { misaddressed: ++refused });
      await client.hearsNothing();
      await client.send({ host: stranger, port }, 'to the service');
      assert.equal((await service.next()).data.toString(), 'to the service');
      await service.close();

      await gateway.ip(`addr del ${address}`);
      isAdded = false;
      await delay(noticedMs);
      await says('after');
      assert.equal((await client.next()).data.toString(), 'after');
      await asker.close();
      await far.close();
    });
  }
});
