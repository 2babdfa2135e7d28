// What rules.ts makes: in the plain case what the files of nft/ make, and otherwise what nft takes.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { execa } from 'execa';
import { whyNoNetns } from '../../src/demo/netns.js';
import { Setting } from '../../src/config/setting.js';
import { collectAddresses } from '../../src/nft/addresses.js';
import { nftArguments, type RulesMode, type RulesValues } from '../../src/nft/apply.js';
import { contentsOf, renderRules, type Contents } from '../../src/nft/rules.js';
import { describeRules } from '../../src/nft/ruleset.js';
import { readGatewaySettings, type GatewaySettings } from '../../src/nft/settings.js';

type Given = Record<string, string | boolean | number | string[]>;

const plain: Given = { local_port: 1080, ifnames: 'l0', server: ['45.9.9.2', '2a09:9::2'] };

function settingsOf(given: Given): GatewaySettings {
  const entries = Object.entries(given).map(([key, value]): [string, Setting] => [
    key,
    Setting.fromFile('test.conf', key, value, String(value)),
  ]);
  return readGatewaySettings(new Map(entries));
}

function renderOf(given: Given): string {
  const settings = settingsOf({ ...plain, ...given });
  return renderRules(settings, collectAddresses(settings, settings.servers));
}

/** Of `nft -j`: the parts that matter for what a packet meets. */
interface Listed {
  chain?: { name: string; hook?: string; prio?: number; type?: string };
  rule?: { chain: string; expr: Expression[] };
  set?: { name: string; elem?: unknown[] };
  counter?: { name: string };
}
type Expression = Record<string, unknown>;

/** Chains as lists of rules without what is no part of a decision: handles, comments, and anonymous counters. */
function chainsOf(objects: Listed[]): Map<string, string[]> {
  const chains = new Map<string, string[]>();
  for (const { chain, rule } of objects) {
    if (chain !== undefined && chain.name !== 'about')
      chains.set(chain.name, [[chain.type, chain.hook, chain.prio].join(' ')]);
    if (rule === undefined) continue;
    if (rule.chain === 'about') continue;
    const expr = rule.expr.filter(({ counter }) => counter === undefined || typeof counter === 'string');
    chains.get(rule.chain)!.push(JSON.stringify(expr));
  }
  return chains;
}

const sets = (objects: Listed[]) =>
  objects.flatMap(({ set }) => (set ? [`${set.name} ${JSON.stringify(set.elem ?? [])}`] : [])).toSorted();

const jump = (target: string) => JSON.stringify([{ jump: { target } }]);

/** A file does not know when it is loaded whether TCP is proxied, and asks for it packet by packet. */
const otherProtocol = '[{"match":{"op":"!=","left":{"meta":{"key":"l4proto"}}';

/** What `$router` decides when the file is loaded is decided by rules.ts when it renders: the same in fewer chains. */
function withRouterDecided(chains: Map<string, string[]>): Map<string, string[]> {
  const decided = new Map<string, string[]>();
  for (const [name, rules] of chains) {
    if (name === 'direct' || name === 'proxied') continue;
    if (rules.includes(jump('direct'))) continue; // it leaves all alone from there on, and marked or answered nothing before
    decided.set(
      name,
      rules.filter(
        (rule) => rule !== jump('proxied') && !(name === 'strays' && rule.startsWith(otherProtocol)),
      ),
    );
  }
  return decided;
}

/** A file for both protocols has rules that never match when one alone is relayed. */
function withoutProtocol(
  chains: Map<string, string[]>,
  absent: 'tcp' | 'udp' | undefined,
): Map<string, string[]> {
  if (absent === undefined) return chains;
  const kept = [...chains].map(([name, rules]): [string, string[]] => {
    const alive = rules.filter(
      (rule) => !rule.includes(`"right":"${absent}"`) && !rule.includes(`"protocol":"${absent}"`),
    );
    const last = absent === 'tcp' ? alive.findIndex((rule) => endsUdp.test(rule)) : -1;
    return [name, last < 0 ? alive : alive.slice(0, last + 1)];
  });
  const called = kept.filter(
    ([name, [hook]]) => hook!.trim() !== '' || kept.some(([, all]) => all.some(calls(name))),
  );
  return new Map(called.filter(([, rules]) => rules.length > 1)); // the first entry is the hook
}

const calls = (chain: string) => (rule: string) => rule.includes(`"target":"${chain}"`);

/** Refuses all UDP that comes so far: behind it is TCP alone. */
const endsUdp =
  /^\[\{"match":\{"op":"==","left":\{"meta":\{"key":"l4proto"\}\},"right":"udp"\}\},\{"counter":"stopped"\},\{"reject"/;

describe('rules.ts and the files of nft/', { skip: whyNoNetns() }, () => {
  const name = `ssr-rules-${process.pid}`;
  const inside = (command: string, args: string[], input = '') =>
    execa('ip', ['netns', 'exec', name, command, ...args], { input });
  const listed = async (table: string): Promise<Listed[]> =>
    (
      JSON.parse((await inside('nft', ['-j', 'list', 'table', 'inet', table])).stdout) as {
        nftables: Listed[];
      }
    ).nftables;

  before(async () => {
    await execa('ip', ['netns', 'add', name]);
  });
  after(async () => {
    await execa('ip', ['netns', 'delete', name]);
  });

  const cases: { title: string; mode: RulesMode; values: Partial<RulesValues>; given: Given }[] = [
    { title: 'REDIRECT', mode: 'redirect', values: {}, given: {} },
    {
      title: 'REDIRECT, the router too',
      mode: 'redirect',
      values: { router: 'proxied' },
      given: { local_default: 'forward' },
    },
    {
      title: 'TPROXY of TCP and UDP',
      mode: 'tproxy',
      values: { protocols: ['tcp', 'udp'] },
      given: { tcp_tproxy: true, mode: 'tcp_and_udp' },
    },
    {
      title: 'TPROXY of TCP and UDP, the router too',
      mode: 'tproxy',
      values: { protocols: ['tcp', 'udp'], router: 'proxied' },
      given: { tcp_tproxy: true, mode: 'tcp_and_udp', local_default: 'forward' },
    },
    {
      title: 'TPROXY of TCP alone',
      mode: 'tproxy',
      values: { protocols: ['tcp'], router: 'proxied' },
      given: { tcp_tproxy: true, local_default: 'forward' },
    },
    {
      title: 'TPROXY of UDP alone',
      mode: 'tproxy',
      values: { protocols: ['udp'], router: 'proxied' },
      given: { mode: 'udp_only', local_default: 'forward' },
    },
  ];

  for (const { title, mode, values, given } of cases) {
    it(`${title}: both make the same table`, async () => {
      // The doctor's interface is in all that ss-nft makes.
      const byHand = { port: 1080, lan: ['l0', 'ssr-doctor'], bypass: ['45.9.9.2', '2a09:9::2'], ...values };
      await inside('nft', nftArguments(mode, byHand));
      const file = await listed('ss_redir_default');
      await inside('nft', ['-f', '-'], renderOf(given));
      const made = await listed('ss_redir_default');

      const { protocols = ['tcp'] } = values;
      const absent = protocols.length === 2 ? undefined : protocols[0] === 'tcp' ? 'udp' : 'tcp';
      const wanted = withoutProtocol(
        withRouterDecided(chainsOf(file)),
        mode === 'tproxy' ? absent : undefined,
      );
      const found = chainsOf(made);
      assert.deepEqual([...found.keys()].toSorted(), [...wanted.keys()].toSorted());
      for (const [chain, rules] of wanted) assert.deepEqual(found.get(chain), rules, chain);
      assert.deepEqual(sets(made), sets(file));
    });
  }

  it('every rule of every setting is counted and says why', async () => {
    await inside('nft', ['-f', '-'], renderOf(everything));
    for (const table of ['ss_redir_default', 'ss_redir_kill_default', 'ss_redir_dns_default']) {
      const rules = (await listed(table)).flatMap(({ rule }) => rule ?? []);
      assert.ok(rules.length > 2);
      for (const rule of rules) {
        const text = JSON.stringify(rule.expr);
        const isCall =
          rule.expr.some((part) => 'jump' in part || 'goto' in part) && !text.includes('counter');
        assert.ok(isCall || text.includes('"counter"'), `${table} ${rule.chain}: no counter: ${text}`);
        assert.ok(isCall || 'comment' in rule, `${table} ${rule.chain}: no comment: ${text}`);
      }
    }
  });

  it('a table that is replaced keeps its hooks: no packet comes by between two chains', async () => {
    for (const { given } of [
      ...cases,
      { given: everything },
      { given: { ...everything, tcp_tproxy: true } },
    ]) {
      const settings = settingsOf({ ...plain, ...given });
      const addresses = collectAddresses(settings, settings.servers);
      await inside('nft', ['-f', '-'], renderRules(settings, addresses));
      const tables = ['ss_redir_default', ...(settings.killSwitch ? ['ss_redir_kill_default'] : [])];
      const loaded = new Map<string, Contents>();
      for (const table of tables) {
        const text = (await inside('nft', ['-t', 'list', 'table', 'inet', table])).stdout;
        loaded.set(table, contentsOf(text.split('\n')));
      }
      const text = renderRules(settings, addresses, loaded);
      for (const [table, { chains }] of loaded) {
        const hooked = chains.filter(({ hook }) => hook !== undefined);
        assert.ok(hooked.length > 1, table);
        const deleted = hooked.filter((chain) => text.includes(`delete chain inet ${table} ${chain.name}\n`));
        assert.deepEqual(deleted, []);
      }
      await inside('nft', ['-f', '-'], text);
    }
  });

  it('nft takes every mix of modes, policies and fail, twice in a row', async () => {
    for (const mode of ['tcp_only', 'tcp_and_udp', 'udp_only']) {
      for (const more of [
        { tcp_tproxy: true },
        { tcp_tproxy: false },
        { fail: 'open' },
        {
          fail: 'open',
          tcp_tproxy: true,
          local_default: 'checkdst',
          dst_default: 'bypass',
          reject_quic: true,
        },
        { reject_quic: true, local_default: 'checkdst' },
        { ifnames: '', local_default: 'forward', dns_hijack: ':5353' },
        { ...everything, outbound_fwmark: '0', local_bypass_user: 'root' },
        { src_default: 'bypass', src_ips_forward: '192.168.50.0/24', reserved: false },
        { src_default: 'forward', dst_default: 'bypass', kill_switch: true },
      ]) {
        const text = renderOf({ ...more, mode });
        await inside('nft', ['-f', '-'], text);
        await inside('nft', ['-f', '-'], text);
      }
    }
  });
});

const everything: Given = {
  mode: 'tcp_and_udp',
  src_ips_bypass: ['192.168.50.9', '02:00:5e:10:00:00', 'fd50::9'],
  src_ips_forward: '192.168.51.0/24, 02-00-5E-10-00-01',
  src_ips_checkdst: '192.168.52.0/24',
  dst_ips_bypass: '8.0.0.0/8 2400::/12',
  dst_ips_forward: '8.8.8.8 10.1.0.0/16',
  dst_default: 'bypass',
  tcp_ports: '22,80,443,1000-2000',
  udp_ports: '53,443',
  nft_tcp_extra: 'ip ttl > 3 tcp flags != { fin, rst }',
  domains_file: 'names.txt',
  local_default: 'checkdst',
  local_bypass_mark: '0x10/0xff0',
  local_bypass_user: 'root, 65534',
  kill_switch: true,
  reject_quic: true,
  dns_hijack: '192.168.50.1 [fd50::1]:5353',
};

describe('the gateway settings', () => {
  it('remember in at most 128 bytes what down and status need', () => {
    const longest = settingsOf({
      ...plain,
      mode: 'tcp_and_udp',
      tcp_tproxy: true,
      local_port: 65535,
      to_proxy_mark: 0x80000000,
      route_table: 2147483647,
      rule_priority: 32765,
    });
    const text = describeRules(longest);
    assert.ok(Buffer.byteLength(text) < 128, text); // NFTNL_UDATA_COMMENT_MAXLEN, with its NUL
  });

  for (const [title, given, message] of [
    ['no interface and no own traffic', { ifnames: '' }, /no LAN interface given/],
    ['no port', { local_port: '' }, /local_port.*a port from 1 to 65535/],
    [
      'a port that is none',
      { local_port: '70000' },
      /key "local_port": expected a port from 1 to 65535, got "70000"/,
    ],
    ['lo as a LAN', { ifnames: 'lo' }, /"lo" is not of the LAN/],
    ['an interface that is nft', { ifnames: 'l0";flush' }, /interface names/],
    ['half a MAC', { src_ips_bypass: '02:00:5e:10' }, /"02:00:5e:10" is none/],
    ['a network too long', { dst_ips_bypass: '10.0.0.0/33' }, /"10\.0\.0\.0\/33" is none/],
    ['a name as a network', { dst_ips_bypass: 'example.net' }, /"example\.net" is none/],
    ['ports turned round', { tcp_ports: '1000-1' }, /"1000-1" does not/],
    ['port 0', { tcp_ports: '22,0' }, /"0" is none/],
    ['port 70000', { udp_ports: '70000' }, /"70000" is none/],
    ['a loopback DNS target', { dns_hijack: '127.0.0.1:5353' }, /an address that the LAN can reach/],
    ['two DNS targets of a family', { dns_hijack: '10.0.0.1 10.0.0.2' }, /more than one address for IPv4/],
    ['a match that ends its rule', { nft_tcp_extra: 'ip ttl 1; drop' }, /one match in the language of nft/],
    ['a match that ends its chain', { nft_tcp_extra: 'ip ttl 1 } chain x {' }, /one match/],
    ['marks that share a bit', { to_proxy_mark: '0x3', outbound_fwmark: '0x2' }, /share the bits 0x00000002/],
    ['own traffic without a mark', { local_default: 'forward', outbound_fwmark: 0 }, /would dial itself/],
    ['fail open with a kill switch', { fail: 'open', kill_switch: true }, /kill_switch/],
    ['the main table', { route_table: 254 }, /table of the system/],
    ['a priority behind the main table', { rule_priority: 40000 }, /less than 32766/],
    ['an unknown policy', { dst_default: 'direct' }, /"bypass" or "forward"/],
  ] as [string, Given, RegExp][]) {
    it(`refuse ${title}`, () => {
      assert.throws(() => settingsOf({ ...plain, ...given }), message);
    });
  }

  it('take port lists with - and :, spaces, overlaps and 40 items', () => {
    const ranges = settingsOf({ ...plain, tcp_ports: ' 80 , 443,1:1023, 900-2000 ,8080' }).tcpPorts;
    assert.deepEqual(ranges, [
      { from: 1, to: 2000 },
      { from: 8080, to: 8080 },
    ]);
    const forty = Array.from({ length: 40 }, (_, index) => 2 * index + 1).join(',');
    assert.equal(settingsOf({ ...plain, tcp_ports: forty }).tcpPorts.length, 40);
  });
});
