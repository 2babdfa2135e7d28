// Fail closed, fail open and the kill switch: what gets out while nobody listens, and when the rules are gone.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { whyNoNetns } from '../../src/demo/netns.js';
import { PolicyBed, direct, other4, proxied, refused, target4 } from './policy-bed.js';

describe('with the proxy down', { skip: whyNoNetns() }, () => {
  let bed: PolicyBed;

  before(async () => {
    bed = await PolicyBed.create('ssr-down');
  });
  afterEach(async () => {
    await bed.stopRedir();
    await bed.nft.ok('down', '--all');
  });
  after(() => bed.destroy());

  for (const [mode, flags] of [
    ['redirect', []],
    ['tproxy', ['-T']],
  ] as const) {
    it(`${mode}: closed by default`, async () => {
      await bed.up('-u', ...flags, '-o');
      assert.equal(await bed.tcp(bed.client, target4), refused);
      assert.equal(await bed.udp(bed.client, target4), refused);
      assert.equal(await bed.tcp(bed.router, target4), refused);
    });

    it(`${mode}: with the kill switch also when the rules are gone, and when it is taken away again all is direct`, async () => {
      await bed.up('-u', ...flags, '-o', '--kill-switch', '-b', other4);
      const said = await bed.nft.run(['down']);
      assert.match(said.stderr, /the kill switch, table inet ss_redir_kill_default, stays/);
      for (const from of [bed.client, bed.router]) {
        assert.equal(await bed.tcp(from, target4), refused);
        assert.equal(await bed.udp(from, target4), refused);
      }
      assert.equal(await bed.tcp(bed.client, other4), direct);
      assert.equal(await bed.tcp(bed.client, '45.9.9.2'), direct);
      assert.match((await bed.nft.run(['status'])).stdout, /kill switch +set/);
      await bed.startRedir(...flags);
      await bed.up('-u', ...flags, '-o', '--kill-switch');
      for (const from of [bed.client, bed.router]) {
        assert.equal(await bed.tcp(from, target4), proxied(target4));
        assert.equal(await bed.udp(from, target4), proxied(target4));
      }
      await bed.nft.ok('down', '--kill-switch');
      assert.equal(await bed.tcp(bed.client, target4), direct);
    });
  }

  it('fail open with TPROXY: direct while nobody listens, proxied while somebody does', async () => {
    await bed.up('-u', '-T', '--fail', 'open');
    assert.equal(await bed.tcp(bed.client, target4), direct);
    assert.equal(await bed.udp(bed.client, target4), direct);
    await bed.startRedir('-T');
    assert.equal(await bed.tcp(bed.client, target4), proxied(target4));
    assert.equal(await bed.udp(bed.client, target4), proxied(target4));
  });

  it('fail open with REDIRECT says that the rules have to go', async () => {
    const { status, stderr } = await bed.nft.run([
      'up',
      '-s',
      '45.9.9.2',
      '-l',
      '1080',
      '-I',
      'l0',
      '--fail',
      'open',
    ]);
    assert.equal(status, 0);
    assert.match(stderr, /connections go direct only when the rules are withdrawn/);
  });
});
