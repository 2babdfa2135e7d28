// What ss-nft up leaves in the kernel, and that down takes exactly that away.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { whyNoNetns } from '../../src/demo/netns.js';
import { NftCommand, plainArgs } from './command.js';
import { Gateway } from './gateway.js';

/** As docker and firewalld have them. */
const foreignTables = `
table ip nat {
	chain PREROUTING { type nat hook prerouting priority dstnat; policy accept
		fib daddr type local jump DOCKER
	}
	chain POSTROUTING { type nat hook postrouting priority srcnat; policy accept
		ip saddr 172.17.0.0/16 oifname != "docker0" masquerade
	}
	chain DOCKER {
		iifname != "docker0" tcp dport 8080 dnat to 172.17.0.2:80
	}
}
table ip filter {
	chain FORWARD { type filter hook forward priority filter; policy accept
		ct state established,related accept
	}
}
table inet firewalld {
	chain mangle_PREROUTING { type filter hook prerouting priority mangle + 10; policy accept
		meta mark set meta mark & 0xffffff00 | 0x64
	}
	chain filter_FORWARD { type filter hook forward priority filter + 10; policy accept
		ct status dnat accept
	}
}
`;

const tproxyArgs = ['-T', '-u'];
const everything = [
  ...tproxyArgs,
  '-o',
  '--kill-switch',
  '--reject-quic',
  '--dns-hijack',
  '192.168.50.1',
  '--tcp-ports',
  '1-65535',
];

describe('ss-nft up and down', { skip: whyNoNetns() }, () => {
  let gateway: Gateway;
  let nft: NftCommand;
  let clean: string;

  before(async () => {
    gateway = await Gateway.create('ssr-life');
    nft = new NftCommand(gateway.testbed.gateway);
    await gateway.testbed.gateway.run('nft', ['-f', '-'], { input: foreignTables });
    await gateway.testbed.gateway.ip('rule add fwmark 0x51820 lookup 51820 priority 7000');
    clean = await gateway.state();
  });
  afterEach(async () => {
    if ((await gateway.state()) !== clean) await nft.ok('down', '--all');
    assert.equal(await gateway.state(), clean);
  });
  after(async () => {
    nft.remove();
    await gateway.destroy();
  });

  for (const [title, args] of [
    ['REDIRECT', []],
    ['TPROXY', tproxyArgs],
    ['REDIRECT with UDP by TPROXY', ['-u']],
    ['everything', everything],
  ] as const) {
    it(`${title}: up twice is up once; down leaves what was there before, also twice`, async () => {
      await nft.ok('up', ...plainArgs, ...args);
      const once = await gateway.state();
      assert.notEqual(once, clean);
      await nft.ok('up', ...plainArgs, ...args);
      assert.equal(await gateway.state(), once);
      await nft.ok('down', '--kill-switch');
      assert.equal(await gateway.state(), clean);
      assert.match(await nft.ok('down', '--kill-switch'), /^nothing to remove$/m);
    });
  }

  it('one mode replaces the other, and other numbers the earlier ones, without a rest', async () => {
    await nft.ok('up', ...plainArgs);
    const redirect = await gateway.state();
    await nft.ok('up', ...plainArgs, ...tproxyArgs, '--route-table', '900', '--rule-priority', '901');
    assert.match(await gateway.testbed.gateway.ip('-6 rule'), /^901:.*lookup 900 proto 83/m);
    await nft.ok('up', ...plainArgs, ...tproxyArgs, '--to-proxy-mark', '0x10000000');
    const state = await gateway.state();
    assert.match(state, /^8388:\s+from all fwmark 0x10000000\/0x10000000/m);
    assert.doesNotMatch(state, /lookup 900|table 900/);
    await nft.ok('up', ...plainArgs);
    assert.equal(await gateway.state(), redirect);
  });

  it("one of two instances goes without taking the other's routing", async () => {
    await nft.ok('up', 'home', ...plainArgs, ...tproxyArgs);
    await nft.ok('up', 'guests', ...plainArgs, '-I', 'l9', ...tproxyArgs);
    await nft.ok('down', 'home');
    assert.match(await gateway.state(), /table inet ss_redir_guests/);
    const status = JSON.parse((await nft.run(['status', 'guests', '--json'])).stdout);
    assert.deepEqual(status.routing, [
      { family: 'IPv4', rule: true, route: true },
      { family: 'IPv6', rule: true, route: true },
    ]);
    await nft.ok('down', 'guests');
    assert.equal(await gateway.state(), clean);
  });

  it("an administrator's own routing with the same numbers is used and stays", async () => {
    const { gateway: netns } = gateway.testbed;
    const rule = 'fwmark 0x01000000/0x01000000 priority 8388 lookup 8388';
    await netns.ip(`rule add ${rule}`);
    await netns.ip('route add local default dev lo table 8388');
    const earlier = await gateway.state();
    await nft.ok('up', ...plainArgs, ...tproxyArgs);
    assert.equal((await netns.ip('rule')).match(/lookup 8388/g)?.length, 1);
    await nft.ok('down');
    assert.equal(await gateway.state(), earlier);
    await netns.ip(`rule del ${rule}`);
    await netns.ip('route del local default dev lo table 8388');
  });

  it('what a kill -9 in the middle of up leaves, the next down takes, and the next up completes', async () => {
    for (const moment of ['before', 'after']) {
      const strike = `kill -9 $PPID`;
      const script = `case "$*" in
        *-c*) exec "$real" "$@" ;;
        "-f -") ${moment === 'after' ? '"$real" "$@"' : ':'}; ${strike}; exit 1 ;;
      esac
      exec "$real" "$@"`;
      const tools = nft.replaceTool('nft', script);
      const { status } = await nft.run(['up', ...plainArgs, ...tproxyArgs], tools);
      assert.equal(status, undefined); // ended by the signal
      assert.match(await gateway.testbed.gateway.ip('rule'), /lookup 8388/);
      await nft.ok('down');
      assert.equal(await gateway.state(), clean, moment);
    }
  });

  it('a refusal of nft is one line that names what is missing, and leaves nothing', async () => {
    const source = '\t\tmeta l4proto tcp tproxy ip to 127.0.0.1:1080 accept';
    for (const pattern of ['*', '"-f -"']) {
      const script = `case "$*" in
        *-c*|"-f -") case "$*" in ${pattern}) cat >/dev/null; printf '%s\\n' "/dev/stdin:7:3-9: Error: Could not process rule: No such file or directory" "${source}" "		^^^^^^" >&2; exit 1 ;; esac ;;
      esac
      exec "$real" "$@"`;
      const { status, stderr } = await nft.run(
        ['up', ...plainArgs, ...tproxyArgs],
        nft.replaceTool('nft', script),
      );
      assert.equal(status, 1);
      assert.match(
        stderr,
        /^ss-nft: nft: Could not process rule: No such file.*is the kernel without nft_tproxy\?\)$/,
      );
      assert.equal(await gateway.state(), clean, pattern);
    }
  });

  it('when the IPv6 routing fails, that of IPv4 is taken back and no rule is loaded', async () => {
    const script = `case "$*" in
      "-6 route add"*) echo "RTNETLINK answers: Operation not supported here" >&2; exit 2 ;;
    esac
    exec "$real" "$@"`;
    const { status, stderr } = await nft.run(
      ['up', ...plainArgs, ...tproxyArgs],
      nft.replaceTool('ip', script),
    );
    assert.equal(status, 1);
    assert.match(stderr, /ip: RTNETLINK answers: Operation not supported here/);
    assert.equal(await gateway.state(), clean);
  });

  it('a missing tool is named with its package', async () => {
    const { status, stderr } = await nft.run(['status'], nft.replaceTool('true', ''), { alone: true });
    assert.equal(status, 1);
    assert.match(stderr, /nft: not found \(on Debian: apt-get install nftables\)/);
  });

  it('after a flush of the whole ruleset by others status says so, up repairs, and down finds the routing', async () => {
    await nft.ok('up', ...plainArgs, ...tproxyArgs);
    const there = await gateway.state();
    const flush = () =>
      gateway.testbed.gateway.run('nft', ['-f', '-'], { input: `flush ruleset${foreignTables}` });
    await flush();
    const { status, stdout } = await nft.run(['status']);
    assert.equal(status, 3);
    assert.match(stdout, /! table inet ss_redir_default is missing/);
    await nft.ok('up', ...plainArgs, ...tproxyArgs);
    assert.equal(sorted(await gateway.state()), sorted(there));
    await flush();
    await nft.ok('down');
    assert.equal(await gateway.state(), clean);
  });

  it('a routing rule that another program has removed is missed by status and put back by up', async () => {
    await nft.ok('up', ...plainArgs, ...tproxyArgs);
    await gateway.testbed.gateway.ip('-6 rule del priority 8388');
    const { status, stdout } = await nft.run(['status']);
    assert.equal(status, 3);
    assert.match(stdout, /! IPv6 policy routing: rule missing/);
    await nft.ok('up', ...plainArgs, ...tproxyArgs);
    assert.match(await gateway.testbed.gateway.ip('-6 rule'), /lookup 8388/);
  });

  it('with IPv6 switched off IPv4 is served alone', async () => {
    const { gateway: netns } = gateway.testbed;
    await netns.sysctl({ 'net.ipv6.conf.all.disable_ipv6': 1 });
    const earlier = await gateway.state();
    const { status, stderr } = await nft.run(['up', ...plainArgs, ...tproxyArgs]);
    assert.equal(status, 0);
    assert.match(stderr, /IPv6 is switched off/);
    assert.doesNotMatch(await netns.ip('-6 rule'), /8388/);
    await nft.ok('down');
    assert.equal(await gateway.state(), earlier);
    await netns.sysctl({ 'net.ipv6.conf.all.disable_ipv6': 0 });
    await netns.ip('addr add fd50::1/64 dev l0 nodad');
    await netns.ip('addr add 2a09:9::1/64 dev w0 nodad');
    await netns.ip('-6 route add default via 2a09:9::2');
    clean = await gateway.state();
  });

  it('a table that another process owns is left alone and named', async () => {
    const holder = gateway.testbed.gateway.spawn('nft', ['-i']);
    holder.stdin!.write(
      'table inet ss_redir_default { flags owner; chain c { type filter hook input priority 0; }; }\n',
    );
    while (!(await gateway.state()).includes('ss_redir_default')) await delay(20);
    for (const args of [['up', ...plainArgs], ['down'], ['down', '--all']]) {
      const { status, stderr } = await nft.run(args);
      assert.equal(status, 1);
      assert.match(stderr, /table inet ss_redir_default is held by another process/);
    }
    assert.match((await nft.run(['status'])).stdout, /owned by another process/);
    holder.stdin!.end();
    await holder;
    while ((await gateway.state()).includes('ss_redir_default')) await delay(20);
  });
});

/** A flush and a new load change the order of tables. */
function sorted(state: string): string {
  return state.split('\n').toSorted().join('\n');
}
