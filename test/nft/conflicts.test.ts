// What of others is in the way of the rules is found and named before anything is changed.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { whyNoNetns } from '../../src/demo/netns.js';
import { NftCommand, plainArgs } from './command.js';
import { Gateway } from './gateway.js';

const args = [...plainArgs, '-T', '-u'];

describe('ss-nft names and does not touch', { skip: whyNoNetns() }, () => {
  let gateway: Gateway;
  let nft: NftCommand;
  const shell = (script: string) => gateway.testbed.gateway.run('sh', ['-ec', script]);

  before(async () => {
    gateway = await Gateway.create('ssr-conflicts');
    nft = new NftCommand(gateway.testbed.gateway);
  });
  after(async () => {
    nft.remove();
    await gateway.destroy();
  });

  for (const [title, make, undo, message] of [
    [
      'a rule with our priority',
      'ip rule add from 1.2.3.4 lookup 99 priority 8388',
      'ip rule del priority 8388',
      /rule priority 8388 is taken by ip -4 rule "8388: from 1\.2\.3\.4 .*--rule-priority/,
    ],
    [
      'an IPv6 rule with our table',
      'ip -6 rule add from 2001:db8::1 lookup 8388 priority 9',
      'ip -6 rule del priority 9',
      /routing table 8388 is used by ip -6 rule "9: .*--route-table/,
    ],
    [
      'a route in our table',
      'ip route add 10.0.0.0/8 dev l0 table 8388',
      'ip route del 10.0.0.0/8 table 8388',
      /routing table 8388 has a route of others.*10\.0\.0\.0\/8 dev l0/,
    ],
    [
      'a rule with our mark bit',
      'ip rule add fwmark 0x01000000/0xff000000 lookup 99 priority 9',
      'ip rule del priority 9',
      /mark bits 0x01000000 are used by ip -4 rule "9: /,
    ],
    [
      'a table that sets our bit',
      "nft 'table ip other { chain c { type filter hook prerouting priority 5; meta mark set 0x02000001; }; }'",
      'nft delete table ip other',
      /mark bits 0x02000000 are set by table ip other, chain c/,
    ],
    [
      'a table with our name',
      'nft add table inet ss_redir_default',
      'nft delete table inet ss_redir_default',
      /table inet ss_redir_default is there and not of ss-nft/,
    ],
    [
      'a bridge port as the LAN',
      'ip link add br9 type bridge; ip link add l8 type veth peer name l7; ip link set l8 master br9',
      'ip link del br9; ip link del l8',
      /interface l8 is a port of bridge br9: name br9/,
    ],
  ] as const) {
    it(title, async () => {
      await shell(make);
      const earlier = await gateway.state();
      const own = title.includes('bridge') ? [...args, '-I', 'l8'] : args;
      const { status, stderr } = await nft.run(['up', ...own]);
      assert.equal(status, 1, stderr);
      assert.match(stderr, message);
      assert.equal(stderr.trim().split('\n').length, 1, stderr);
      assert.equal(await gateway.state(), earlier);
      await shell(undo);
    });
  }

  it('a listener that is not transparent on the port of TPROXY', async () => {
    const peer = await gateway.startPeer(gateway.testbed.gateway, 'listen', '1080');
    await peer.waitForListen(1080);
    const { status, stderr } = await nft.run(['up', ...args]);
    assert.equal(status, 1);
    assert.match(stderr, /tcp port 1080 is in use by .* at .*:1080, which is not transparent/);
    await nft.ok('up', ...plainArgs); // REDIRECT can
    await peer.stop('SIGKILL');
  });

  it('not: marks of WireGuard and Tailscale, firewalld and docker', async () => {
    await shell(
      'ip rule add not fwmark 0xca6c lookup 51820 priority 32764; ip rule add fwmark 0x80000/0xff0000 lookup 52 priority 5270',
    );
    await nft.ok('up', ...args);
    await shell('ip rule del priority 32764; ip rule del priority 5270');
  });

  it('check finds the same, with status 3, and 0 without a conflict', async () => {
    await shell('ip rule add from 1.2.3.4 lookup 99 priority 8388');
    const earlier = await gateway.state();
    const { status, stderr } = await nft.run(['check', ...args]);
    assert.equal(status, 3);
    assert.match(stderr, /rule priority 8388 is taken/);
    await nft.ok('check', ...args, '--rule-priority', '8389');
    assert.equal(await gateway.state(), earlier);
    await shell('ip rule del priority 8388');
  });
});
