// What tproxy.nft does to datagrams when ss-redir, the policy routing or the mark is missing: nothing gets out in clear.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { whyNoNetns } from '../../src/demo/netns.js';
import { UdpSocket } from '../helpers/udp-sockets.js';
import { families, UdpGateway } from './udp-gateway.js';

describe('UDP through the tproxy rules when something is missing', { skip: whyNoNetns() }, () => {
  let gateway: UdpGateway;

  before(async () => {
    gateway = await UdpGateway.create('ssr-udp-missing');
  });
  afterEach(async () => {
    await gateway.stopRelay();
    await gateway.reset();
  });
  after(() => gateway.destroy());

  /** What the client gets, and the router itself, over IPv4 and IPv6. */
  const askAll = () =>
    Promise.all(
      families.flatMap(({ target }) =>
        [gateway.testbed.client, gateway.testbed.gateway].map((from) => gateway.ask(target, 53, from)),
      ),
    );
  // The router's own IPv4 gets no ICMP: icmp_send() would have to send from the foreign destination.
  const refused = ['ECONNREFUSED', 'ETIMEDOUT', 'ECONNREFUSED', 'ECONNREFUSED'];
  const nothingPassed = async () =>
    assert.deepEqual([await gateway.passed('lan'), await gateway.passed('router')], [0, 0]);

  it('without ss-redir the client is refused at once, all is counted, and nothing gets out', async () => {
    await gateway.apply({ router: 'proxied' });
    for (const { target } of families) await gateway.remote(target, 53);
    assert.deepEqual(await askAll(), refused);
    assert.equal(await gateway.counter('to_proxy_udp'), 4);
    await nothingPassed();
  });

  it("without ss-redir no service of the router answers in the internet's place", async () => {
    await gateway.apply({ router: 'proxied' });
    const everywhere = { host: '::', port: 53, dualStack: true, behaviour: 'mirror' } as const;
    const service = await UdpSocket.open(gateway.router, everywhere);
    assert.deepEqual(await askAll(), refused);
    assert.equal(await service.count(), 0);
    await nothingPassed();
  });

  it('when ss-redir ends in the middle of a flow, the next datagram does not get out', async () => {
    await gateway.startRelay();
    await gateway.apply();
    for (const { target, any } of families) {
      await gateway.remote(target, 53);
      const socket = await UdpSocket.open(gateway.client, { host: any });
      await socket.ask({ host: target, port: 53 }, 'q');
    }
    await gateway.stopRelay();
    assert.equal(await gateway.ask(families[0].target, 53), 'ECONNREFUSED');
    await nothingPassed();
  });

  // A packet that tproxy has given to a socket and that is routed out all the same is dropped by the kernel itself, unseen
  // by the forward chain (traffic.test.ts).
  for (const { relay, client } of [
    { relay: 'running', client: 'ETIMEDOUT' },
    { relay: 'down', client: 'ECONNREFUSED' },
  ]) {
    it(`without the policy routing nothing gets out, of the client or the router (relay ${relay})`, async () => {
      if (relay === 'running') await gateway.startRelay();
      await gateway.apply({ router: 'proxied' });
      for (const { target } of families) await gateway.remote(target, 53);
      for (const family of ['-4', '-6']) await gateway.testbed.gateway.ip(`${family} rule del priority 8388`);
      assert.deepEqual(await askAll(), [client, 'ETIMEDOUT', client, 'ETIMEDOUT']);
      assert.ok((await gateway.counter('stopped')) >= 2); // the router's
      await nothingPassed();
      await gateway.apply({ router: 'proxied' }); // puts it back
      if (relay === 'running') assert.ok((await askAll()).every((word) => / \d+$/.test(word)));
    });
  }

  it('when another program overwrites the mark, nothing of the client gets out', async () => {
    await gateway.apply();
    await gateway.other('chain c {\ntype filter hook prerouting priority -140;\nmeta mark set 0x1\n}');
    for (const { target } of families) {
      await gateway.remote(target, 53);
      assert.equal(await gateway.ask(target, 53), 'ECONNREFUSED');
    }
    await nothingPassed();
  });
});
