// Lists of prefixes: how files are read, what becomes of overlaps, and that sets change while traffic flows.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { whyNoNetns } from '../../src/demo/netns.js';
import { formatRange, merge, mostSpecific, readPrefix, subtract, type Prefix } from '../../src/nft/ranges.js';
import { formatRanges, ofFamily, readPrefixFile } from '../../src/nft/sets.js';
import { NftCommand, plainArgs } from './command.js';
import { Gateway } from './gateway.js';

const prefix = (text: string): Prefix => readPrefix(text)!;
const prefixes = (...texts: string[]): Prefix[] => texts.map(prefix);
const shown = (ranges: ReturnType<typeof merge>, family: 4 | 6 = 4) => formatRanges(ranges, family);

describe('prefixes', () => {
  for (const [text, expected] of [
    ['192.0.2.1', '192.0.2.1'],
    ['192.0.2.1/24', '192.0.2.0/24'], // bits behind the network part
    ['0.0.0.0/0', '0.0.0.0/0'],
    ['255.255.255.255/32', '255.255.255.255'],
    ['2001:db8::1', '2001:db8::1'],
    ['2001:DB8:0:0:1::/80', '2001:db8:0:0:1::/80'],
    ['::/0', '::/0'],
    ['1:0:0:2:0:0:0:3', '1:0:0:2::3'],
    ['::1.2.3.4/128', '::102:304'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.0/120', '192.0.2.0/24'],
  ] as const) {
    it(`${text} is ${expected}`, () => {
      const read = prefix(text);
      assert.equal(formatRange(read, read.family), expected);
    });
  }

  for (const text of [
    '',
    '10.0.0',
    '10.0.0.0/33',
    '10.0.0.0/',
    '10.0.0.0/8/8',
    '1::/129',
    'fe80::1%l0',
    'a.example',
  ]) {
    it(`"${text}" is none`, () => assert.equal(readPrefix(text), undefined));
  }

  it('overlapping, touching and repeated ones are one', () => {
    const merged = merge(
      prefixes('223.118.0.0/15', '223.119.0.0/16', '10.1.2.3', '10.0.0.0/8', '10.0.0.0/8', '11.0.0.0/8'),
    );
    assert.deepEqual(shown(merged), ['10.0.0.0/7', '223.118.0.0/15']);
    assert.deepEqual(shown(merge(prefixes('255.255.255.0/24', '0.0.0.0/32'))), [
      '0.0.0.0',
      '255.255.255.0/24',
    ]);
    assert.deepEqual(shown(merge(prefixes('8000::/1', '::/1')), 6), ['::/0']);
  });

  it('what is no single network is a range', () => {
    assert.deepEqual(shown(merge(prefixes('10.0.0.1', '10.0.0.2'))), ['10.0.0.1-10.0.0.2']);
  });

  it('subtracting leaves what is before, between and behind', () => {
    const left = subtract(
      merge(prefixes('10.0.0.0/24', '10.0.2.0/24')),
      merge(prefixes('10.0.0.0/26', '10.0.0.128/26', '10.0.2.255', '10.0.1.0/24')),
    );
    assert.deepEqual(shown(left), ['10.0.0.64/26', '10.0.0.192/26', '10.0.2.0-10.0.2.254']);
    assert.deepEqual(subtract(merge(prefixes('10.0.0.0/24')), merge(prefixes('10.0.0.0/8'))), []);
  });

  it('of two lists the longest prefix decides, and the first of equal ones', () => {
    const [bypass, forward] = mostSpecific(
      prefixes('8.0.0.0/8', '8.8.8.8/32', '9.0.0.0/8'),
      prefixes('8.8.0.0/16', '9.0.0.0/8', '7.0.0.0/8'),
    );
    assert.deepEqual(shown(forward), ['7.0.0.0/8', '8.8.0.0-8.8.8.7', '8.8.8.9-8.8.255.255']);
    assert.deepEqual(shown(bypass), ['8.0.0.0/13', '8.8.8.8', '8.9.0.0-9.255.255.255']);
  });

  it('agree with a slow twin that asks every address of a small world', () => {
    let seed = 7;
    const random = (below: number) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % below;
    for (let round = 0; round < 200; round++) {
      const [first, second] = [0, 1].map(() =>
        Array.from({ length: 1 + random(6) }, () => prefix(`10.0.0.${random(256)}/${24 + random(9)}`)),
      ) as [Prefix[], Prefix[]];
      const sets = mostSpecific(first, second);
      for (let host = 0n; host < 256n; host++) {
        const address = (10n << 24n) + host;
        const longest = (list: Prefix[]) =>
          Math.max(
            -1,
            ...list.filter(({ from, to }) => from <= address && address <= to).map(({ length }) => length),
          );
        const [one, two] = [longest(first), longest(second)];
        const wanted = one === -1 && two === -1 ? undefined : one >= two ? 0 : 1;
        const found = sets.flatMap((set, index) =>
          set.some(({ from, to }) => from <= address && address <= to) ? index : [],
        );
        assert.deepEqual(found, wanted === undefined ? [] : [wanted], `10.0.0.${host}`);
      }
    }
  });
});

describe('prefix files', () => {
  const directory = mkdtempSync(join(tmpdir(), 'ss-redir-sets-'));
  const file = (content: string) => {
    const path = join(directory, 'list.txt');
    writeFileSync(path, content);
    return path;
  };
  after(() => rmSync(directory, { recursive: true, force: true }));

  it('have comments, empty lines, CRLF, a BOM and both families', () => {
    const read = readPrefixFile(
      file('\u{feff}# list\r\n\r\n 10.0.0.0/8 # ten\r\n2001:db8::/32\r\n192.0.2.1'),
    );
    assert.deepEqual(shown(ofFamily(read, 4)), ['10.0.0.0/8', '192.0.2.1']);
    assert.deepEqual(shown(ofFamily(read, 6), 6), ['2001:db8::/32']);
  });

  it('name file, line and text of what is no prefix', () => {
    assert.throws(
      () => readPrefixFile(file('10.0.0.0/8\n\n10.0.0.0/33 # x\n')),
      /list\.txt:3: expected an IPv4 or IPv6 .*, got "10\.0\.0\.0\/33"$/,
    );
  });

  it('that cannot be read are named with the reason', () => {
    assert.throws(() => readPrefixFile(join(directory, 'none')), /none: cannot be read: ENOENT/);
  });
});

describe('sets under load', { skip: whyNoNetns() }, () => {
  const always = '93.184.216.34'; // in every list: direct
  const never = '8.8.8.8'; // in none: there is no proxy, so it is refused
  let gateway: Gateway;
  let nft: NftCommand;

  before(async () => {
    gateway = await Gateway.create('ssr-sets');
    nft = new NftCommand(gateway.testbed.gateway);
    await gateway.testbed.internet.run('nft', [
      `table inet wrong { counter seen { }; chain c { type filter hook prerouting priority raw; iifname "i0" ip daddr ${never} counter name seen; }; }`,
    ]);
  });
  after(async () => {
    nft.remove();
    await gateway.destroy();
  });

  /** 10,000 prefixes of both families, others for another `salt`. */
  function manyPrefixes(salt: number): string {
    const lines = [`${always}/32`];
    for (let index = 0; index < 5000; index++) {
      lines.push(
        `${20 + (index % 50)}.${index >> 6}.${(index * 7 + salt) % 256}.0/24`,
        `2a0${salt}:${(index * 2).toString(16)}::/32`,
      );
    }
    return lines.join('\n');
  }

  it('10,000 prefixes are applied in under a second', async () => {
    const list = nft.file('list.txt', manyPrefixes(1));
    const path = nft.file('rules.nft', await nft.ok('render', ...plainArgs, '-i', list));
    const startMs = performance.now();
    await gateway.run('nft', ['-f', path]);
    const tookMs = performance.now() - startMs;
    assert.ok(tookMs < 1000, `${tookMs} ms`);
    const { sets } = JSON.parse((await nft.run(['status', '--json'])).stdout) as {
      sets: { name: string; elements: number }[];
    };
    const sizes = sets.filter(({ name }) => name.startsWith('dst_bypass')).map(({ elements }) => elements);
    assert.ok(
      sizes.every((size) => size > 4000),
      String(sizes),
    );
  });

  it('sets and whole rulesets are replaced while traffic flows, and no packet takes the wrong way', async () => {
    const list = nft.file('list.txt', manyPrefixes(1));
    for (const args of [['-T', '-u'], []]) {
      await nft.ok('up', ...plainArgs, ...args, '-i', list);
      const program = fileURLToPath(new URL('hammer.js', import.meta.url));
      const hammer = gateway.testbed.client.run(process.execPath, [program, '6', always, never]);
      const state = { done: false };
      void hammer.finally(() => (state.done = true));
      for (let round = 0; !state.done; round++) {
        nft.file('list.txt', manyPrefixes(2 + (round % 2)));
        await nft.ok(round % 3 === 2 ? 'up' : 'refresh', ...plainArgs, ...args, '-i', list);
      }
      const counts = JSON.parse(String((await hammer).stdout)) as Record<string, Record<string, number>>;
      assert.deepEqual(Object.keys(counts[always]!), ['ok'], JSON.stringify(counts));
      assert.deepEqual(Object.keys(counts[never]!), ['ECONNREFUSED'], JSON.stringify(counts));
      assert.ok(
        counts[always]!['ok']! > 100 && counts[never]!['ECONNREFUSED']! > 100,
        JSON.stringify(counts),
      );
      const seen = await gateway.testbed.internet.run('nft', ['list', 'counter', 'inet', 'wrong', 'seen']);
      assert.match(String(seen.stdout), /packets 0 bytes 0/);
    }
  });

  it('refresh keeps the counters and follows the files; with rules of other settings it says so', async () => {
    const list = nft.file('list.txt', '10.0.0.0/8\n');
    await nft.ok('up', ...plainArgs, '-i', list);
    assert.equal(await gateway.connect(always), 'ECONNREFUSED');
    nft.file('list.txt', `${always}\n`);
    await nft.ok('refresh', ...plainArgs, '-i', list);
    assert.equal(await gateway.connect(always), 'peer 192.168.50.2');
    assert.ok((await gateway.counter('to_proxy')) >= 1);
    const { status, stderr } = await nft.run(['refresh', ...plainArgs, '-i', list, '-w', never]);
    assert.equal(status, 1);
    assert.match(stderr, /No such file or directory.*dst_forward4/);
  });
});
