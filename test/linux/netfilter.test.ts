import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

const probes = new URL('./probes.js', import.meta.url).href;

/** Runs a function of probes.ts in a network namespace that goes when it has ended. */
function inNamespace(probe: string): unknown {
  const script = `const m = await import(${JSON.stringify(probes)}); console.log(JSON.stringify(m.${probe}()));`;
  const args = ['--net', process.execPath, '--input-type=module', '-e', script];
  const { stdout, stderr, status } = spawnSync('unshare', args, { encoding: 'utf8', timeout: 20_000 });
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

function whyNot(): string | false {
  if (spawnSync('unshare', ['--net', 'true']).status !== 0) return 'needs root for a network namespace';
  return spawnSync('nft', ['--version']).status === 0 ? false : 'needs nft';
}

const skip = whyNot();

test(
  'REDIRECT: the original destination is found on :: and on 0.0.0.0, for IPv4 and for IPv6',
  { skip },
  () => {
    assert.deepEqual(inNamespace('redirect'), {
      ':: ipv4': '192.0.2.7:443',
      ':: ipv6': '[2001:db8::7]:443',
      ':: direct': '127.0.0.1:1234',
      '0.0.0.0 ipv4': '192.0.2.7:443',
      '0.0.0.0 direct': '127.0.0.1:1234',
    });
  },
);

test('a connection that connection tracking does not know has no original destination', { skip }, () => {
  assert.deepEqual(inNamespace('untracked'), ['undefined', 'undefined']);
});

test(
  'TPROXY: a transparent listener accepts foreign addresses of both families, and IPv4 on ::',
  { skip },
  () => {
    assert.deepEqual(inNamespace('tproxy'), {
      ':: ipv4': ['192.0.2.7:443', true],
      ':: ipv6': ['[2001:db8::7]:443', false],
      '0.0.0.0 ipv4': ['192.0.2.7:443', true],
    });
  },
);

test('Fast Open goes by net.ipv4.tcp_fastopen, and data arrives in every setting', { skip }, () => {
  assert.deepEqual(inNamespace('fastOpen'), [
    [0, false, 'earlyearly'],
    [1, true, 'earlyearly'],
    [3, true, 'earlyearly'],
  ]);
});
