// The rule files as their opening comments say to use them, and what they leave behind.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { whyNoNetns } from '../../src/demo/netns.js';
import { checkRules, nftArguments, removeRules, rulesFile, type RulesMode } from '../../src/nft/apply.js';
import { Gateway, repository, values } from './gateway.js';

const modes: RulesMode[] = ['redirect', 'tproxy'];

/** The commands of the opening comment, one a line, up to "remove with:" or from there on. */
function commands(mode: RulesMode, part: 'apply' | 'remove'): string {
  const header = readFileSync(rulesFile(mode), 'utf8').split('\n\n')[0]!;
  const text = header.split(/remove with:/)[part === 'apply' ? 0 : 1]!;
  const lines = text.split('\n').map((line) => line.replace(/^# {0,3}/, ''));
  const kept = lines.filter((line, index) => /^(nft|ip) /.test(line) || lines[index - 1]?.endsWith('\\'));
  return kept.join('\n');
}

describe('rule files by hand', { skip: whyNoNetns() }, () => {
  let gateway: Gateway;
  let clean: string;
  const shell = (script: string) => gateway.testbed.gateway.run('sh', ['-ec', script], { cwd: repository });

  before(async () => {
    gateway = await Gateway.create('ssr-hand');
    await gateway.testbed.gateway.run('nft', ['-f', '-'], {
      input: 'table ip foreign { chain c { type filter hook input priority 5; counter; }; }',
    });
    clean = await gateway.state();
  });
  after(() => gateway.destroy());

  for (const mode of modes) {
    it(`${mode}: the commands in the header load the rules, and those to remove leave no trace`, async () => {
      await shell(commands(mode, 'apply'));
      const loaded = await gateway.state();
      assert.match(loaded, /table inet ss_redir_default/);
      assert.match(loaded, /elements = \{ 198\.51\.100\.7 \}/);
      if (mode === 'tproxy') assert.match(loaded, /8388:\s+from all fwmark 0x1000000\/0x1000000 lookup 8388/);
      await shell(commands(mode, 'remove'));
      assert.equal(await gateway.state(), clean);
    });

    it(`${mode}: loading the file twice gives the same rules as once`, async () => {
      const nft = commands(mode, 'apply').slice(commands(mode, 'apply').indexOf('nft '));
      await shell(nft);
      const once = await gateway.state();
      await shell(nft);
      assert.equal(await gateway.state(), once);
      await removeRules(gateway.run);
    });

    it(`${mode}: applying twice is applying once, and one removal leaves no trace`, async () => {
      await gateway.apply(mode);
      const once = await gateway.state();
      await gateway.apply(mode);
      assert.equal(await gateway.state(), once);
      await removeRules(gateway.run);
      assert.equal(await gateway.state(), clean);
    });

    it(`${mode}: checking changes nothing and finds a bad value`, async () => {
      await checkRules(mode, values, gateway.run);
      assert.equal(await gateway.state(), clean);
      const args = nftArguments(mode, values).map((arg) => arg.replace('router=direct', 'router=elsewhere'));
      await assert.rejects(Promise.resolve(gateway.run('nft', ['-c', ...args])), /No such file or directory/);
    });

    it(`${mode}: the file holds no default: every value must be given`, async () => {
      const args = nftArguments(mode, values);
      for (let at = 0; args[at] === '-D'; at += 2) {
        const less = args.toSpliced(at, 2);
        await assert.rejects(Promise.resolve(gateway.run('nft', ['-c', ...less])), /unknown identifier/);
      }
    });

    it(`${mode}: overlapping and repeated bypass networks are merged, and both lists may be empty`, async () => {
      const bypass = [
        '223.118.0.0/15',
        '223.119.0.0/16',
        '10.1.2.3',
        '10.0.0.0/8',
        '10.0.0.0/8',
        '2a00::/16',
        '2a00:1::',
      ];
      await gateway.apply(mode, { bypass });
      assert.match(await gateway.state(), /elements = \{ 10\.0\.0\.0\/8, 223\.118\.0\.0\/15 \}/);
      await gateway.apply(mode, { bypass: [] });
      assert.doesNotMatch(await gateway.state(), /223\.118/);
      await removeRules(gateway.run);
    });
  }

  for (const protocols of [['tcp'], ['udp'], ['tcp', 'udp']] as const) {
    it(`tproxy: protocols may be ${protocols.join(' and ')}`, async () => {
      await gateway.apply('tproxy', { protocols });
      assert.match(
        await gateway.state(),
        new RegExp(`meta l4proto != \\{? ?${protocols.join(', ')}( \\}| counter)`),
      );
      await removeRules(gateway.run);
    });
  }

  for (const mode of modes) {
    it(`${mode}: the file has no word that nft 1.0.6 does not know, and no rule without an end before a brace`, () => {
      const rules = readFileSync(rulesFile(mode), 'utf8').replaceAll(/#.*/g, '');
      assert.doesNotMatch(rules, /\b(destroy|persist)\b/);
      assert.doesNotMatch(rules, /\b(counter|accept|return|drop|reset)[ \t]*\}/);
    });
  }

  it('one mode replaces the other without a rest', async () => {
    await gateway.apply('redirect');
    const redirect = await gateway.state();
    await gateway.apply('tproxy');
    await gateway.apply('redirect');
    assert.equal(await gateway.state(), redirect);
    await removeRules(gateway.run);
    assert.equal(await gateway.state(), clean);
  });

  it('removing where nothing was applied is no error', async () => {
    await removeRules(gateway.run);
    assert.equal(await gateway.state(), clean);
  });

  it('applies and removes where IPv6 is switched off', async () => {
    const { gateway: netns } = gateway.testbed;
    await netns.sysctl({ 'net.ipv6.conf.all.disable_ipv6': 1 });
    const before6 = await gateway.state();
    for (const mode of modes) {
      await gateway.apply(mode);
      await gateway.apply(mode);
      await removeRules(gateway.run);
      assert.equal(await gateway.state(), before6);
    }
  });

  it('a failure of nft is reported with its message and is not taken for absence', async () => {
    await assert.rejects(
      removeRules(async (command) => {
        if (command === 'ip') throw new Error('RTNETLINK answers: Operation not permitted');
        return { stdout: '' };
      }),
      /Operation not permitted/,
    );
  });
});

describe('rule values', () => {
  for (const [title, changes, message] of [
    ['a port of 0', { port: 0 }, /port 0, expected 1\.\.65535/],
    ['a port of 65536', { port: 65536 }, /port 65536/],
    ['no LAN interface', { lan: [] }, /no LAN interface/],
    ['an interface name that ends the definition', { lan: ['l0" }; flush ruleset; "'] }, /expected a name/],
    ['an interface name of 16 characters', { lan: ['a234567890123456'] }, /expected a name/],
    ['a bypass that is a name', { bypass: ['example.net'] }, /'example\.net', expected an IPv4 or IPv6/],
    ['a bypass with a length of 33', { bypass: ['10.0.0.0/33'] }, /'10\.0\.0\.0\/33'/],
    ['a bypass with a zone', { bypass: ['fe80::1%l0'] }, /'fe80::1%l0'/],
  ] as const) {
    it(`refuses ${title}`, () => {
      assert.throws(() => nftArguments('redirect', { ...values, ...changes }), message);
    });
  }
});
