import assert from 'node:assert/strict';
import { networkInterfaces } from 'node:os';
import { test } from 'node:test';
import { ifNametoindex } from '../../src/linux/libc.js';
import { AF_INET, AF_INET6, Endpoint, SockaddrBlock } from '../../src/linux/sockaddr.js';

const texts: [string, string, string][] = [
  ['127.0.0.1', '127.0.0.1', '127.0.0.1:80'],
  ['255.255.255.255', '255.255.255.255', '255.255.255.255:80'],
  ['::', '::', '[::]:80'],
  ['2001:DB8:0:0:0:0:0:1', '2001:db8::1', '[2001:db8::1]:80'],
  ['::ffff:192.0.2.1', '192.0.2.1', '192.0.2.1:80'],
  ['::ffff:c000:201', '192.0.2.1', '192.0.2.1:80'],
  ['::192.0.2.1', '::192.0.2.1', '[::192.0.2.1]:80'],
  [
    'fedc:ba98:7654:3210:fedc:ba98:7654:3210',
    'fedc:ba98:7654:3210:fedc:ba98:7654:3210',
    '[fedc:ba98:7654:3210:fedc:ba98:7654:3210]:80',
  ],
];

for (const [host, canonical, text] of texts) {
  test(`${host} is parsed, and printed as ${text}`, () => {
    const endpoint = Endpoint.parse(host, 80)!;
    assert.equal(endpoint.host, canonical);
    assert.equal(String(endpoint), text);
    assert.equal(endpoint.isIpv4, !canonical.includes(':'));
  });
}

test('names, brackets, short and octal IPv4 forms and the empty string are no numeric address', () => {
  for (const host of [
    'example.com',
    '[::1]',
    '127.1',
    '2130706433',
    '0x7f.0.0.1',
    '1.2.3.4.5',
    ':::',
    '',
    'localhost',
    ' 1.2.3.4',
  ]) {
    assert.equal(Endpoint.parse(host, 80), undefined, host);
  }
});

test('a zone is an interface by name or by index; one that is not there gives scope 0', () => {
  const loopback = Object.keys(networkInterfaces())[0]!;
  assert.equal(Endpoint.parse(`fe80::1%${loopback}`, 1)!.scope, ifNametoindex(loopback));
  assert.ok(ifNametoindex(loopback) > 0);
  assert.equal(Endpoint.parse('fe80::1%7', 1)!.scope, 7);
  assert.equal(Endpoint.parse('fe80::1%nosuch', 1)!.scope, 0);
  assert.equal(Endpoint.parse('fe80::1', 1)!.scope, 0);
});

test('every field survives a round through a sockaddr', () => {
  const block = new SockaddrBlock();
  for (const [host, port] of [
    ['0.0.0.0', 0],
    ['192.0.2.254', 65535],
    ['2001:db8::ffff', 256],
    ['fe80::1%9', 1],
  ] as const) {
    const endpoint = Endpoint.parse(host, port)!;
    assert.equal(block.write(endpoint), endpoint.isIpv4 ? 16 : 28);
    const back = block.read()!;
    assert.deepEqual([back.address, back.port, back.scope], [endpoint.address, port, endpoint.scope]);
  }
});

test('an IPv4 endpoint on an IPv6 socket is written mapped and read as IPv4', () => {
  const block = new SockaddrBlock();
  const endpoint = Endpoint.parse('192.0.2.1', 443)!;
  assert.equal(block.write(endpoint, AF_INET6), 28);
  const back = block.read()!;
  assert.ok(back.isIpv4 && back.equals(endpoint));
});

test('what an earlier, longer address left in the block does not show', () => {
  const block = new SockaddrBlock();
  block.write(Endpoint.parse('fe80::ffff%77', 9)!);
  block.write(Endpoint.parse('192.0.2.1', 1)!, AF_INET6);
  assert.equal(block.read()!.scope, 0);
  block.write(Endpoint.parse('::2', 2)!);
  assert.deepEqual([block.read()!.host, block.read()!.scope], ['::2', 0]);
  block.write(Endpoint.parse('192.0.2.3', 3)!, AF_INET);
  assert.equal(String(block.read()!), '192.0.2.3:3');
});

test('endpoints are equal by address and port, and IPv4 is never equal to IPv6', () => {
  const a = Endpoint.parse('192.0.2.1', 80)!;
  assert.ok(a.equals(Endpoint.parse('::ffff:192.0.2.1', 80)!));
  assert.ok(!a.equals(Endpoint.parse('192.0.2.1', 81)!));
  assert.ok(!a.equals(Endpoint.parse('192.0.2.2', 80)!));
  assert.ok(!a.equals(Endpoint.parse('::192.0.2.1', 80)!));
});
