// What tproxy.nft does to datagrams, with our own ss-redir and ss-server as the proxy.
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { after, afterEach, before, describe, it } from 'node:test';
import { whyNoNetns } from '../../src/demo/netns.js';
import { rulesTable } from '../../src/nft/apply.js';
import { UdpSocket } from '../helpers/udp-sockets.js';
import { redirPort } from './gateway.js';
import { families, type Family, UdpGateway } from './udp-gateway.js';

describe('UDP through the tproxy rules', { skip: whyNoNetns() }, () => {
  let gateway: UdpGateway;

  before(async () => {
    gateway = await UdpGateway.create('ssr-udp-rules');
    await gateway.startRelay();
  });
  afterEach(() => gateway.reset());
  after(() => gateway.destroy());

  for (const one of families) {
    const { family, any, target, stranger, client, lan, wan, server } = one;
    describe(family, () => {
      it('the client is answered by the proxy only, and each datagram is counted', async () => {
        await gateway.remote(target, 53);
        assert.equal(await gateway.seen(target, 53), client); // the testbed itself, without rules
        assert.equal(await gateway.passed(), 1);
        await gateway.apply();
        const socket = await UdpSocket.open(gateway.client, { host: any });
        for (let round = 1; round <= 3; round++) {
          assert.equal((await socket.ask({ host: target, port: 53 }, 'q')).split(' ')[0], target);
        }
        assert.equal(await gateway.counter('to_proxy_udp'), 3);
        assert.equal(await gateway.counter('stopped'), 0);
        assert.equal(await gateway.passed(), 0);
      });

      it('with protocols={ tcp } UDP goes on as before', async () => {
        await gateway.apply({ protocols: ['tcp'], router: 'proxied' });
        await gateway.remote(target, 53);
        assert.equal(await gateway.seen(target, 53), client);
        assert.equal(await gateway.seen(target, 53, gateway.router), wan);
        assert.equal(await gateway.counter('to_proxy_udp'), 0);
        assert.equal(await gateway.passed(), 1);
      });

      it('bypassed, reserved and own addresses stay direct, on the port of the listener too', async () => {
        const reserved = family === 'IPv4' ? '10.9.9.9' : 'fd99::9';
        await gateway.testbed.internet.ip(`addr add ${reserved} dev lo`).catch(() => undefined); // there from the other test
        await gateway.apply();
        for (const host of [server, reserved]) {
          for (const port of [53, redirPort]) {
            await gateway.remote(host, port);
            assert.equal(await gateway.seen(host, port), client, `${host} ${port}`);
          }
        }
        for (const host of [lan, wan]) {
          await UdpSocket.open(gateway.router, { host, port: 53, behaviour: 'mirror' });
          assert.equal(await gateway.seen(host, 53), client, host);
        }
        assert.equal(await gateway.counter('to_proxy_udp'), 0);
        await gateway.remote(target, redirPort); // the listener's port elsewhere is nothing special
        assert.equal(await gateway.seen(target, redirPort), target);
        assert.equal(await gateway.seen(target, redirPort, gateway.router), wan);
      });

      it('only what comes in by a LAN interface is taken', async () => {
        await gateway.apply({ lan: ['l7', 'other*'] });
        await gateway.remote(target, 53);
        assert.equal(await gateway.seen(target, 53), client);
        await gateway.apply({ lan: ['l*'] });
        assert.equal(await gateway.seen(target, 53), target);
        assert.equal(await gateway.counter('to_proxy_udp'), 1);
      });

      it('a port forward to the client, and datagrams routed to it, work both ways', async () => {
        await gateway.other(`chain prerouting {
          type nat hook prerouting priority dstnat;
          iifname "w0" udp dport 2222 dnat ip to 192.168.50.2:5000
          iifname "w0" udp dport 2222 dnat ip6 to [fd50::2]:5000
        }`);
        await gateway.apply({ router: 'proxied' });
        await UdpSocket.open(gateway.client, { host: any, port: 5000, behaviour: 'mirror' });
        for (const [i, to] of [
          { host: wan, port: 2222 },
          { host: client, port: 5000 },
        ].entries()) {
          const outsider = await gateway.remote(stranger, 7000 + i, 'silent');
          for (let round = 1; round <= 2; round++) {
            const answer = await outsider.ask(to, 'q');
            assert.equal(answer, `${stranger} ${7000 + i} from ${to.host} ${to.port}`);
          }
        }
        assert.equal(await gateway.counter('to_proxy_udp'), 0);
        assert.equal(await gateway.counter('stopped'), 0);
      });

      it("the router's services answer on every address, from the LAN and from outside", async () => {
        await gateway.apply({ router: 'proxied' });
        const outsider = await gateway.remote(stranger, 7000, 'silent');
        for (const host of [lan, wan]) {
          await UdpSocket.open(gateway.router, { host, port: 123, behaviour: 'mirror' });
          assert.equal(await gateway.seen(host, 123), client);
        }
        assert.equal(await outsider.ask({ host: wan, port: 123 }, 'q'), `${stranger} 7000 from ${wan} 123`);
        assert.equal(await gateway.counter('to_proxy_udp'), 0);
      });

      for (const bypass of [[], ['45.9.9.2', '2a09:9::2']]) {
        it(`the router's own queries are proxied when asked for (${bypass.length} bypassed)`, async () => {
          await gateway.apply({ router: 'proxied', bypass });
          await gateway.remote(target, 53);
          for (let round = 1; round <= 2; round++) {
            assert.equal(await gateway.seen(target, 53, gateway.router), target);
          }
          assert.equal(await gateway.counter('to_proxy_udp'), 2);
          assert.equal(await gateway.passed('router'), 0);
        });
      }

      it("the router's own queries are direct when not", async () => {
        await gateway.apply({ router: 'direct' });
        await gateway.remote(target, 53);
        assert.equal(await gateway.seen(target, 53, gateway.router), wan);
        assert.equal(await gateway.counter('to_proxy_udp'), 0);
        assert.equal(await gateway.passed('router'), 1);
      });

      it('datagrams sent straight to the listener are refused, from the LAN and from outside', async () => {
        await gateway.apply();
        assert.equal(await gateway.ask(lan, redirPort), 'ECONNREFUSED');
        assert.equal(await gateway.ask(wan, redirPort), 'ECONNREFUSED');
        assert.equal(await gateway.ask(wan, redirPort, gateway.testbed.internet), 'ECONNREFUSED');
      });

      it('a flow that is older than the rules is taken from its next datagram on', async () => {
        // Without any rule conntrack sleeps, and would take the flow for a new one when the rules wake it.
        await gateway.other(
          'chain forward {\ntype filter hook forward priority 5;\nct state established counter\n}',
        );
        const far = { host: target, port: 53 };
        await gateway.remote(target, 53);
        const socket = await UdpSocket.open(gateway.client, { host: any });
        for (let round = 1; round <= 2; round++)
          assert.equal((await socket.ask(far, 'q')).split(' ')[0], client);
        await gateway.passed();
        await gateway.apply();
        for (let round = 1; round <= 2; round++)
          assert.equal((await socket.ask(far, 'q')).split(' ')[0], target);
        assert.equal(await gateway.passed(), 0);
      });

      it('what the client says to a remote that spoke first goes by the proxy', async () => {
        await gateway.apply();
        await meetStranger(gateway, one);
        assert.equal(await gateway.passed(), 0);
      });

      it('and without the chain `untracked` it would go out in clear', async () => {
        await gateway.apply();
        await gateway.run('nft', [`flush chain ${rulesTable} untracked`]);
        assert.match(await meetStranger(gateway, one), new RegExp(`^${client} `));
        assert.equal(await gateway.passed(), 1);
      });
    });
  }

  it('a client that no longer listens does not send an answer back in clear, inside of an ICMP error', async () => {
    await gateway.apply({});
    const { internet } = gateway.testbed;
    await internet.run('nft', [
      'add table inet icmp_witness; ' +
        'add chain inet icmp_witness seen { type filter hook prerouting priority -300; policy accept; }; ' +
        'add rule inet icmp_witness seen icmp type destination-unreachable counter; ' +
        'add rule inet icmp_witness seen icmpv6 type destination-unreachable counter',
    ]);
    try {
      for (const { any, target } of families) {
        const far = await gateway.remote(target, 4000, 'silent');
        const socket = await UdpSocket.open(gateway.client, { host: any });
        await socket.send({ host: target, port: 4000 }, 'question');
        const [host, port] = (await far.next()).from.split(' ') as [string, string];
        await socket.close();
        await far.send({ host, port: Number(port) }, 'SECRET answer');
        let stopped = 0; // reading it sets it back
        for (let i = 0; i < 50 && stopped === 0; i++) {
          await delay(100);
          stopped = await gateway.counter('stopped');
        }
        assert.equal(stopped, 1, 'no such error came');
      }
      const { stdout } = await internet.run('nft', ['list', 'table', 'inet', 'icmp_witness']);
      assert.equal(String(stdout).match(/counter packets 0 /g)?.length, 2, String(stdout));
    } finally {
      await internet.run('nft', ['delete', 'table', 'inet', 'icmp_witness']);
    }
  });

  it('broadcast, multicast and link-local are untouched', async () => {
    await gateway.apply({ router: 'proxied' });
    const { client, gateway: router } = gateway.testbed;
    for (const [port, hosts] of [
      [67, ['255.255.255.255', '192.168.50.255']],
      [5353, ['224.0.0.251']],
    ] as const) {
      const listener = await gateway.start(router, 'listen-udp', String(port));
      await listener.waitForOutput(/ready/);
      for (const host of hosts) {
        const sender = await gateway.start(client, 'send-udp', host, String(port));
        await listener.waitForOutput(new RegExp(`to ${host} from 192\\.168\\.50\\.2`));
        await sender.exited;
      }
      await listener.stop('SIGKILL');
    }
    await UdpSocket.open(gateway.router, { host: '::', port: 546, behaviour: 'mirror' });
    const linkLocal = /fe80::[0-9a-f:]+/.exec(await router.ip('-6 addr show dev l0'))?.[0];
    assert.match(await gateway.ask(`${linkLocal}%c0`, 546), /^fe80::/);
    const everybody = await UdpSocket.open(gateway.client, { host: '::' });
    await everybody.send({ host: 'ff02::1%c0', port: 546 }, 'q');
    assert.match((await everybody.next()).from, /^fe80::/);
    assert.equal(await gateway.counter('to_proxy_udp'), 0);
    assert.equal(await gateway.counter('stopped'), 0);
  });
});

/** The client asks one remote, another one that it has never asked speaks to it, and it answers. */
async function meetStranger(gateway: UdpGateway, { any, target, stranger }: Family): Promise<string> {
  const asked = await gateway.remote(target, 4000, 'silent');
  const other = await gateway.remote(stranger, 9999, 'silent');
  const socket = await UdpSocket.open(gateway.client, { host: any });
  await socket.send({ host: target, port: 4000 }, 'question');
  const [host, port] = (await asked.next()).from.split(' ') as [string, string];
  await other.send({ host, port: Number(port) }, 'who are you');
  assert.equal((await socket.next()).from, `${stranger} 9999`);
  await socket.send({ host: stranger, port: 9999 }, 'me');
  const { from } = await other.next();
  return from;
}
