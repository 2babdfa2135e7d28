// Names: dnsmasq fills our sets from the lines that ss-nft writes, and the rules follow.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { whyNoNetns } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { findCommand } from '../helpers/packages.js';
import { NftCommand } from './command.js';
import { PolicyBed, direct, other4, proxied, target4, target6 } from './policy-bed.js';

const plain = ['-s', '45.9.9.2', '-l', '1080', '-I', 'l0'];
const skip = whyNoNetns() ?? (findCommand('dnsmasq') ? false : 'needs dnsmasq');

describe('names whose addresses dnsmasq finds', { skip }, () => {
  let bed: PolicyBed;
  let nft: NftCommand;
  let names: string;

  before(async () => {
    bed = await PolicyBed.create('ssr-names');
    nft = bed.nft;
    names = nft.file('names.txt', '# ours\nexample.net\n*.Wild.example # all below\n\n.dot.example\n');
    await bed.startRedir('-T');
  });
  after(() => bed.destroy());

  /** One that answers, and before it one that fills the sets: dnsmasq does that with answers of others only. */
  async function startDnsmasq(lines: string): Promise<Service[]> {
    const common = [
      'no-resolv',
      'no-hosts',
      'bind-interfaces',
      'listen-address=127.0.0.1',
      'user=root',
      'pid-file=',
    ];
    const answers = [
      `address=/example.net/${target4}`,
      `address=/example.net/${target6}`,
      `address=/other.example/${other4}`,
    ];
    return Promise.all(
      [
        ['port=5301', ...answers],
        ['port=5300', 'cache-size=0', 'server=127.0.0.1#5301', lines],
      ].map((own, index) => {
        const config = nft.file(`dnsmasq-${index}.conf`, [...common, ...own].join('\n'));
        const args = ['--keep-in-foreground', '--log-facility=-', `--conf-file=${config}`];
        return bed.router.start('dnsmasq', args, { listen: 5301 - index, timeoutMs: 10_000 });
      }),
    );
  }

  /** Asks dnsmasq as a client of the LAN would, for A and AAAA. */
  const ask = (name: string) =>
    bed.router.run(process.execPath, [
      '-e',
      `const { Resolver } = require('dns').promises; const r = new Resolver({ timeout: 2000, tries: 2 });
       r.setServers(['127.0.0.1:5300']);
       Promise.allSettled([r.resolve4('${name}'), r.resolve6('${name}')]).then((a) => console.log(JSON.stringify(a)));`,
    ]);

  it('are written as lines for dnsmasq, and what is no name is refused by file and line', async () => {
    const args = ['-s', '45.9.9.2', '-l', '1080', '-I', 'l0'];
    const text = await nft.ok('names', ...args, '--domains-file', names);
    const sets = '4#inet#ss_redir_dns_default#names4,6#inet#ss_redir_dns_default#names6';
    assert.match(text, new RegExp(`^nftset=/example\\.net/wild\\.example/dot\\.example/${sets}$`, 'm'));
    const many = nft.file(
      'many.txt',
      Array.from({ length: 500 }, (_, index) => `host-${index}.example.org`).join('\n'),
    );
    const lines = (await nft.ok('names', ...args, '--domains-file', many))
      .split('\n')
      .filter((line) => line.startsWith('nftset='));
    assert.ok(lines.length > 5 && lines.every((line) => line.length < 1025));
    assert.equal(lines.join('').match(/host-\d+\./g)?.length, 500);
    for (const bad of ['exa mple.net', 'a..b', 'http://x', 'ünicode.example', 'x/y']) {
      const file = nft.file('bad.txt', `ok.example\n${bad}\n`);
      const { status, stderr } = await nft.run(['names', ...args, '--domains-file', file]);
      assert.equal(status, 1);
      assert.match(stderr, /bad\.txt:2: expected a domain name/);
    }
  });

  for (const [fallback, listed, unlisted, isHeld] of [
    ['forward', direct, proxied(other4), false],
    ['bypass', proxied(target4), direct, false],
    ['bypass', proxied(target4), direct, true],
  ] as const) {
    const how = isHeld ? ', rules held' : '';
    it(`have the other policy than a default of ${fallback}, as soon as dnsmasq has found them${how}`, async () => {
      const args = ['-T', '-u', '--domains-file', names, '--dst-default', fallback];
      // The socket of a holder is not of the namespace.
      const instance = isHeld ? `names-${process.pid}` : 'default';
      const up = (...more: string[]) => nft.ok('up', instance, ...plain, ...args, ...more);
      if (isHeld) await nft.ok('hold', instance, '--detach', ...plain, ...args);
      else await up();
      assert.equal(await bed.tcp(bed.client, target4), fallback === 'forward' ? proxied(target4) : direct);
      const lines = await nft.ok('names', instance, ...plain, ...args);
      const dnsmasq = await startDnsmasq(lines);
      assert.match(String((await ask('www.example.net')).stdout), /93\.184\.216\.34/);
      await ask('other.example');
      assert.equal(await bed.tcp(bed.client, target4), listed);
      assert.equal(await bed.udp(bed.client, target4), listed);
      assert.equal(await bed.tcp(bed.client, target6), listed === direct ? 'peer fd50::2' : proxied(target6));
      assert.equal(await bed.tcp(bed.client, other4), unlisted);
      const status = JSON.parse((await nft.run(['status', instance, '--json'])).stdout) as { names: unknown };
      assert.deepEqual(status.names, [
        { name: 'names4', elements: 1 },
        { name: 'names6', elements: 1 },
      ]);

      await up('-b', '1.2.3.4'); // what dnsmasq has found survives new rules
      assert.equal(await bed.tcp(bed.client, target4), listed);
      await up('--domains-timeout', '1'); // another timeout is another set
      await ask('example.net');
      assert.equal(await bed.tcp(bed.client, target4), listed);
      await delay(1500);
      assert.equal(await bed.tcp(bed.client, target4), fallback === 'forward' ? proxied(target4) : direct);

      if (isHeld) await bed.router.run('nft', ['flush', 'ruleset']);
      else await bed.router.run('nft', ['delete table inet ss_redir_dns_default']);
      const { status: code, stdout } = await nft.run(['status', instance]);
      assert.equal(code, 3);
      assert.match(stdout, /! table inet ss_redir_dns_\S+ is missing: names have the default policy/);
      const byDefault = fallback === 'forward' ? proxied(target4) : direct;
      assert.equal(await bed.tcp(bed.client, target4), byDefault);
      for (const service of dnsmasq) await service.stop('SIGKILL');
      await nft.ok('down', instance);
      assert.doesNotMatch(String((await bed.router.run('nft', ['list', 'tables'])).stdout), /ss_redir/);
    });
  }
});
