// What tproxy.nft does to datagrams of a bridged LAN while bridge-nf-call loses the socket that tproxy has given them.
import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { whyNoNetns } from '../../src/demo/netns.js';
import { UdpSocket } from '../helpers/udp-sockets.js';
import { bridgeLan, whyNoBridgeFilter } from './gateway.js';
import { families, UdpGateway } from './udp-gateway.js';

describe('UDP of a bridged LAN while bridge-nf-call loses what tproxy decided', { skip: noBridge() }, () => {
  let gateway: UdpGateway;

  before(async () => {
    gateway = await UdpGateway.create('ssr-udp-bridge');
    const { gateway: netns, client } = gateway.testbed;
    await bridgeLan(netns);
    await client.ip('neigh flush dev c0'); // the bridge may have another hardware address
    await gateway.startRelay();
  });
  after(() => gateway.destroy());

  const lose = (value: 0 | 1) =>
    gateway.testbed.gateway.sysctl({
      'net.bridge.bridge-nf-call-iptables': value,
      'net.bridge.bridge-nf-call-ip6tables': value,
    });

  beforeEach(async () => {
    await gateway.apply({ lan: ['br0'] });
    for (const { target } of families) await gateway.remote(target, 53);
    for (const { target } of families) assert.equal(await gateway.seen(target, 53), target);
    await lose(1);
  });
  afterEach(async () => {
    await lose(0);
    await gateway.reset();
  });

  it('they are dropped or refused, and reach no service of the router instead', async () => {
    const everywhere = { host: '::', port: 5300, dualStack: true, behaviour: 'mirror' } as const;
    const service = await UdpSocket.open(gateway.router, everywhere);
    const asked = families.flatMap(({ target }) => [53, 5300].map((port) => gateway.ask(target, port)));
    for (const answer of await Promise.all(asked)) assert.match(answer, /^(ETIMEDOUT|ECONNREFUSED)$/);
    assert.equal(await service.count(), 0);
    assert.equal(await gateway.passed(), 0);
  });

  // Only here does the forward chain see a datagram: it has no socket any more for which the kernel would drop it.
  it('without the policy routing, or when the mark is overwritten, it is stopped in forward', async () => {
    for (const family of ['-4', '-6']) await gateway.testbed.gateway.ip(`${family} rule del priority 8388`);
    for (const { target } of families) assert.equal(await gateway.ask(target, 53), 'ECONNREFUSED');
    assert.equal(await gateway.counter('stopped'), 2);
    await gateway.other('chain c {\ntype filter hook prerouting priority -140;\nmeta mark set 0x1\n}');
    for (const { target } of families) assert.equal(await gateway.ask(target, 53), 'ECONNREFUSED');
    assert.equal(await gateway.counter('stopped'), 2);
    assert.equal(await gateway.passed(), 0);
  });
});

function noBridge(): string | undefined {
  return whyNoNetns() ?? whyNoBridgeFilter();
}
