// What the rules do to real connections, with Debian's shadowsocks-libev as the proxy.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { addresses, whyNoNetns } from '../../src/demo/netns.js';
import { ownMark, removeRules, type RulesMode } from '../../src/nft/apply.js';
import { bridgeLan, Gateway, redirPort, whyNoBridgeFilter } from './gateway.js';

const target4 = '93.184.216.34';
const target6 = '2606:2800:220:1::34';
const server = addresses.internet.ipv4;
/** They connect from addresses that are not bypassed, as the server's would be: answers to them must pass all the same. */
const outsiders = [
  { wan: '45.9.9.1', lan: '192.168.50.2', address: '8.8.8.8' },
  { wan: '2a09:9::1', lan: 'fd50::2', address: '2606:4700::1111' },
] as const;
const ownUid = 12345; // connections of this user carry the mark of ss-redir's own

for (const mode of ['redirect', 'tproxy'] satisfies RulesMode[]) {
  describe(`traffic through the ${mode} rules`, { skip: whyNoNetns() }, () => {
    let gateway: Gateway;

    before(async () => {
      gateway = await Gateway.create(`ssr-${mode}`);
    });
    afterEach(async () => {
      await gateway.stopProxy();
      await removeRules(gateway.run);
      await gateway.run('nft', ['add table inet other; delete table inet other']);
      await gateway.directPackets();
    });
    after(() => gateway.destroy());

    const other = (rules: string) =>
      gateway.testbed.gateway.run('nft', ['-f', '-'], { input: `table inet other {\n${rules}\n}` });

    it('the client reaches the internet by the proxy only, over IPv4 and IPv6', async () => {
      assert.equal(await gateway.connect(target4), 'peer 192.168.50.2'); // the testbed itself, without rules
      assert.ok((await gateway.directPackets()) > 0);
      await gateway.startProxy(mode);
      await gateway.apply(mode);
      assert.equal(await gateway.connect(target4), `peer ${target4}`); // ss-server connects to its own address
      assert.equal(await gateway.connect(target6), `peer ${target6}`);
      assert.equal(await gateway.counter('to_proxy'), 2);
      assert.equal(await gateway.counter('stopped'), 0);
      assert.equal(await gateway.directPackets(), 0);
    });

    it('without a listener the client is refused at once and no packet gets out', async () => {
      await gateway.apply(mode);
      assert.equal(await gateway.connect(target4), 'ECONNREFUSED');
      assert.equal(await gateway.connect(target6), 'ECONNREFUSED');
      assert.equal(await gateway.counter('to_proxy'), 2);
      assert.equal(await gateway.directPackets(), 0);
    });

    it("without a listener no service of the router answers in the internet's place", async () => {
      await gateway.apply(mode, { router: 'proxied' });
      const web = await gateway.startPeer(gateway.testbed.gateway, 'listen', '80');
      await web.waitForListen(80);
      for (const from of [gateway.testbed.client, gateway.testbed.gateway]) {
        assert.equal(await gateway.connect(target4, 80, { from }), 'ECONNREFUSED');
        assert.equal(await gateway.connect(target6, 80, { from }), 'ECONNREFUSED');
      }
      await web.stop('SIGKILL');
    });

    it('connections older than the rules are reset and no further byte gets out', async () => {
      // Without any rule conntrack sleeps, and would take the connection for a new one when the rules wake it.
      await other(
        'chain forward {\ntype filter hook forward priority filter;\nct state established counter\n}',
      );
      for (const target of [target4, target6]) {
        const client = await gateway.startPeer(gateway.testbed.client, 'hold', target, '7');
        await client.waitForOutput(/peer/);
        await gateway.apply(mode);
        await gateway.directPackets();
        await client.waitForOutput(/ended: (ECONNRESET|EPIPE)/);
        assert.equal(await gateway.directPackets(), 0);
        await client.stop('SIGKILL');
        await removeRules(gateway.run);
      }
    });

    it('a proxied connection stays with the proxy when its target is bypassed from now on', async () => {
      // Early demultiplexing would find the connection's socket by itself; gateways are told to switch it off.
      await gateway.testbed.gateway.sysctl({ 'net.ipv4.tcp_early_demux': 0 });
      await gateway.startProxy(mode);
      await gateway.apply(mode);
      for (const target of [target4, target6]) {
        const client = await gateway.startPeer(gateway.testbed.client, 'hold', target, '7');
        await client.waitForOutput(new RegExp(`peer ${target}`));
        await gateway.apply(mode, { bypass: [server, target] });
        await delay(300); // fifteen more lines of the client
        assert.ok(!client.output.includes('ended'), client.output);
        assert.equal(await gateway.directPackets(), 0);
        assert.match(await gateway.connect(target), /^peer (192\.168\.50\.2|fd50::2)$/); // a new one is direct
        await gateway.directPackets();
        await client.stop('SIGKILL');
        await gateway.apply(mode);
      }
    });

    it('a port forward to the client, and a routed connection to it, work both ways', async () => {
      await gateway.startProxy(mode);
      await other(`chain prerouting {
        type nat hook prerouting priority dstnat;
        iifname "w0" tcp dport 2222 dnat ip to 192.168.50.2:80
        iifname "w0" tcp dport 2222 dnat ip6 to [fd50::2]:80
      }`);
      await gateway.apply(mode, { router: 'proxied' });
      const nas = await gateway.startPeer(gateway.testbed.client, 'listen', '80');
      await nas.waitForListen(80);
      for (const { wan, lan, address } of outsiders) {
        const from = gateway.testbed.internet;
        assert.equal(await gateway.connect(wan, 2222, { from, address }), `peer ${address}`);
        assert.equal(await gateway.connect(lan, 80, { from, address }), `peer ${address}`); // routed, not rewritten
      }
      assert.equal(await gateway.counter('to_proxy'), 0);
      await nas.stop('SIGKILL');
    });

    it("the router's own services are reached on every address, from the LAN and from outside", async () => {
      await gateway.startProxy(mode);
      await gateway.apply(mode, { router: 'proxied' });
      const ssh = await gateway.startPeer(gateway.testbed.gateway, 'listen', '22');
      await ssh.waitForListen(22);
      for (const [host, peer] of [
        ['192.168.50.1', '192.168.50.2'],
        ['45.9.9.1', '192.168.50.2'],
        ['fd50::1', 'fd50::2'],
        ['2a09:9::1', 'fd50::2'],
      ] as const) {
        assert.equal(await gateway.connect(host, 22), `peer ${peer}`);
      }
      for (const { wan, address } of outsiders) {
        const from = gateway.testbed.internet;
        assert.equal(await gateway.connect(wan, 22, { from, address }), `peer ${address}`);
      }
      assert.equal(await gateway.counter('to_proxy'), 0);
      await ssh.stop('SIGKILL');
    });

    it('bypassed and reserved addresses stay direct, on the port of the listener too', async () => {
      await gateway.startProxy(mode);
      await gateway.testbed.internet.ip('addr add 10.9.9.9/32 dev lo');
      await gateway.apply(mode);
      assert.equal(await gateway.connect(server), 'peer 192.168.50.2');
      assert.equal(await gateway.connect('2a09:9::2'), 'peer fd50::2');
      assert.equal(await gateway.connect('10.9.9.9'), 'peer 192.168.50.2');
      assert.equal(await gateway.connect(server, redirPort), 'peer 192.168.50.2');
      assert.equal(await gateway.connect(target4, redirPort), `peer ${target4}`);
      assert.equal(await gateway.counter('to_proxy'), 1);
    });

    it('a connection made straight to the listener is refused and costs the proxy no descriptor', async () => {
      const redir = await gateway.startProxy(mode);
      await gateway.apply(mode);
      const { fds } = redir.usage();
      for (const host of ['192.168.50.1', '45.9.9.1', 'fd50::1']) {
        assert.equal(await gateway.connect(host, redirPort), 'ECONNREFUSED');
      }
      const from = gateway.testbed.internet;
      assert.equal(await gateway.connect('45.9.9.1', redirPort, { from }), 'ECONNREFUSED');
      assert.equal(redir.usage().fds, fds);
    });

    it("the router's own connections are proxied when asked for, and direct when not", async () => {
      await gateway.startProxy(mode);
      const from = gateway.testbed.gateway;
      await gateway.apply(mode, { router: 'proxied' });
      assert.equal(await gateway.connect(target4, 80, { from }), `peer ${target4}`);
      assert.equal(await gateway.connect(target6, 80, { from }), `peer ${target6}`);
      assert.equal(await gateway.counter('to_proxy'), 2);
      await gateway.apply(mode, { router: 'direct' });
      assert.equal(await gateway.connect(target4, 80, { from }), 'peer 45.9.9.1');
      assert.equal(await gateway.connect(target6, 80, { from }), 'peer 2a09:9::1');
    });

    it("the router's own connections are refused when the listener is down", async () => {
      await gateway.apply(mode, { router: 'proxied' });
      const from = gateway.testbed.gateway;
      assert.equal(await gateway.connect(target4, 80, { from }), 'ECONNREFUSED');
      assert.equal(await gateway.connect(target6, 80, { from }), 'ECONNREFUSED');
    });

    it('what carries the own mark passes, wherever it goes', async () => {
      await other(`chain output {
        type filter hook output priority raw;
        meta skuid ${ownUid} meta mark set meta mark | ${ownMark}
      }`);
      await gateway.apply(mode, { router: 'proxied', bypass: [] });
      const from = gateway.testbed.gateway;
      assert.equal(await gateway.connect(target4, 80, { from, uid: ownUid }), 'peer 45.9.9.1');
      assert.equal(await gateway.connect(target6, 80, { from, uid: ownUid }), 'peer 2a09:9::1');
    });

    it('mark bits of other programs and strict rp_filter do not disturb', async () => {
      await gateway.startProxy(mode);
      await gateway.testbed.gateway.sysctl({ 'net.ipv4.conf.all.rp_filter': 1 });
      await other(
        'chain prerouting {\ntype filter hook prerouting priority raw;\nmeta mark set meta mark | 0x5\n}',
      );
      await gateway.apply(mode);
      assert.equal(await gateway.connect(target4), `peer ${target4}`);
      assert.equal(await gateway.connect(target6), `peer ${target6}`);
      await gateway.testbed.gateway.sysctl({ 'net.ipv4.conf.all.rp_filter': 0 });
    });

    it('broadcast, multicast and DHCP are untouched', async () => {
      await gateway.apply(mode, { router: 'proxied' });
      for (const [port, hosts] of [
        [67, ['255.255.255.255', '192.168.50.255']],
        [5353, ['224.0.0.251']],
      ] as const) {
        const listener = await gateway.startPeer(gateway.testbed.gateway, 'listen-udp', String(port));
        await listener.waitForOutput(/ready/);
        for (const host of hosts) {
          const sender = await gateway.startPeer(gateway.testbed.client, 'send-udp', host, String(port));
          await listener.waitForOutput(new RegExp(`to ${host} from 192\\.168\\.50\\.2`));
          await sender.exited;
        }
        await listener.stop('SIGKILL');
      }
      assert.equal(await gateway.counter('to_proxy'), 0);
    });

    it('an IPv6 neighbour is found again, and its link-local address answers', async () => {
      await gateway.startProxy(mode);
      await gateway.apply(mode);
      const ssh = await gateway.startPeer(gateway.testbed.gateway, 'listen', '22');
      await ssh.waitForListen(22);
      const { client } = gateway.testbed;
      await client.ip('-6 neigh flush dev c0');
      const linkLocal = /fe80::[0-9a-f:]+/.exec(await gateway.testbed.gateway.ip('-6 addr show dev l0'))?.[0];
      assert.match(await gateway.connect(`${linkLocal}%c0`, 22), /^peer fe80::/);
      assert.equal(await gateway.connect(target6), `peer ${target6}`);
      await ssh.stop('SIGKILL');
    });
  });
}

describe('tproxy rules when something is missing', { skip: whyNoNetns() }, () => {
  let gateway: Gateway;

  before(async () => {
    gateway = await Gateway.create('ssr-missing');
    await gateway.testbed.internet.run('nft', ['-f', '-'], { input: routerWitness });
  });
  after(() => gateway.destroy());

  /** What the client gets over IPv4 and IPv6, and the router itself over IPv4. */
  const connectAll = () =>
    Promise.all([
      gateway.connect(target4),
      gateway.connect(target6),
      gateway.connect(target4, 80, { from: gateway.testbed.gateway }),
    ]);
  const routerPackets = async () =>
    (await gateway.testbed.internet.run('nft', ['list', 'table', 'inet', 'router'])).stdout;

  // A packet that tproxy has given to a socket and that is routed out all the same is dropped by the kernel itself
  // (ip_forward: "if (unlikely(skb->sk))"), unseen by the forward chain: hence no reset with a proxy running.
  for (const { proxy, client } of [
    { proxy: 'running', client: 'ETIMEDOUT' },
    { proxy: 'down', client: 'ECONNREFUSED' },
  ]) {
    it(`without the policy routing no packet gets out, of the client or the router (proxy ${proxy})`, async () => {
      if (proxy === 'running') await gateway.startProxy('tproxy');
      await gateway.apply('tproxy', { router: 'proxied' });
      for (const family of ['-4', '-6']) await gateway.testbed.gateway.ip(`${family} rule del priority 8388`);
      assert.deepEqual(await connectAll(), [client, client, 'ETIMEDOUT']);
      assert.equal(await gateway.directPackets(), 0);
      assert.match(await routerPackets(), /packets 0 bytes 0/);
      assert.ok((await gateway.counter('stopped')) > 0);
      await gateway.apply('tproxy'); // puts it back
      if (proxy === 'running') assert.equal(await gateway.connect(target4), `peer ${target4}`);
      await gateway.stopProxy();
    });

    it(`when another program overwrites the mark, no packet of the client gets out (proxy ${proxy})`, async () => {
      if (proxy === 'running') await gateway.startProxy('tproxy');
      await gateway.apply('tproxy');
      await gateway.run('nft', [overwriteMark]);
      assert.deepEqual(await Promise.all([gateway.connect(target4), gateway.connect(target6)]), [
        client,
        client,
      ]);
      assert.equal(await gateway.directPackets(), 0);
      await gateway.run('nft', ['delete table inet other']);
      await gateway.stopProxy();
    });
  }
});

// What the header of tproxy.nft and the README say of other programs' settings; nothing leaks meanwhile.
describe('settings that break TPROXY', { skip: whyNoNetns() }, () => {
  let gateway: Gateway;

  before(async () => {
    gateway = await Gateway.create('ssr-settings');
    await gateway.startProxy('tproxy');
  });
  after(() => gateway.destroy());

  const connectBoth = () => Promise.all([gateway.connect(target4), gateway.connect(target6)]);

  it('src_valid_mark=1 drops IPv4, whatever rp_filter says', async () => {
    const { gateway: netns } = gateway.testbed;
    await gateway.apply('tproxy');
    for (const rpFilter of [0, 1]) {
      await netns.sysctl({ 'net.ipv4.conf.all.src_valid_mark': 1, 'net.ipv4.conf.all.rp_filter': rpFilter });
      assert.deepEqual(await connectBoth(), ['ETIMEDOUT', `peer ${target6}`]);
    }
    await netns.sysctl({ 'net.ipv4.conf.all.src_valid_mark': 0, 'net.ipv4.conf.all.rp_filter': 0 });
    assert.deepEqual(await connectBoth(), [`peer ${target4}`, `peer ${target6}`]);
    assert.equal(await gateway.directPackets(), 0);
  });

  it(
    'bridge-nf-call on a bridged LAN refuses, and REDIRECT works on',
    { skip: whyNoBridgeFilter() },
    async () => {
      const { gateway: netns } = gateway.testbed;
      await bridgeLan(netns);
      await gateway.testbed.client.ip('neigh flush dev c0'); // the bridge may have another hardware address
      await gateway.apply('tproxy', { lan: ['br0'] });
      assert.deepEqual(await connectBoth(), [`peer ${target4}`, `peer ${target6}`]);
      await netns.sysctl({
        'net.bridge.bridge-nf-call-iptables': 1,
        'net.bridge.bridge-nf-call-ip6tables': 1,
      });
      assert.deepEqual(await connectBoth(), ['ECONNREFUSED', 'ECONNREFUSED']);

      await gateway.stopProxy();
      await gateway.startProxy('redirect');
      await gateway.apply('redirect', { lan: ['br0'] });
      assert.deepEqual(await connectBoth(), [`peer ${target4}`, `peer ${target6}`]);
      assert.equal(await gateway.directPackets(), 0);
    },
  );
});

const overwriteMark =
  'table inet other { chain c { type filter hook prerouting priority -140; meta mark set 0x1; }; }';

/** Counts, in the internet, what the router itself sends to the target. */
const routerWitness = `
table inet router {
	counter sent {
	}
	chain input {
		type filter hook prerouting priority raw;
		ip saddr 45.9.9.1 ip daddr ${target4} counter name sent
	}
}`;
