import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AF_INET6, Endpoint, SockaddrBlock } from '../../src/linux/sockaddr.js';
import { readAddress, writeAddress } from '../../src/protocol/address.js';
import {
  copySockaddr,
  networkHash,
  sockaddrPort,
  socksSize,
  writeSockaddr,
  writeSocksBefore,
} from '../../src/relay/udp-address.js';

const hosts = ['8.8.8.8', '0.0.0.1', '255.255.255.255', '2606:4700::1111', '::1', 'fe80::1'];

function sockaddr(host: string, port: number, family?: number): Buffer {
  const block = new SockaddrBlock();
  return Buffer.from(block.contents.subarray(0, block.write(Endpoint.parse(host, port)!, family)));
}

test('a sockaddr becomes the address that protocol/address.ts writes, right before the payload', () => {
  for (const host of hosts) {
    const to = Buffer.alloc(100, 0xee);
    const start = writeSocksBefore(sockaddr(host, 5353), 0, to, 50);
    assert.deepEqual(Uint8Array.from(to.subarray(start, 50)), writeAddress({ host, port: 5353 }));
    assert.equal(socksSize(to, start), 50 - start);
    assert.ok(to.subarray(0, start).every((byte) => byte === 0xee));
    assert.ok(to.subarray(50).every((byte) => byte === 0xee));
  }
});

test('an IPv4-mapped sockaddr is IPv4 on the wire', () => {
  const to = Buffer.alloc(100);
  const start = writeSocksBefore(sockaddr('8.8.8.8', 53, AF_INET6), 0, to, 50);
  assert.deepEqual(Uint8Array.from(to.subarray(start, 50)), writeAddress({ host: '8.8.8.8', port: 53 }));
});

test('an address becomes the sockaddr that linux/sockaddr.ts writes', () => {
  for (const host of hosts) {
    const from = Buffer.from([0, 0, ...writeAddress({ host, port: 5353 })]);
    const to = Buffer.alloc(40, 0xee);
    const size = writeSockaddr(from, 2, to, 4);
    assert.deepEqual(to.subarray(4, 4 + size), sockaddr(host, 5353));
    assert.equal(sockaddrPort(to, 4), 5353);
    assert.ok(to.subarray(4 + size).every((byte) => byte === 0xee));
  }
});

test('an IPv4-mapped address from the wire is IPv4 to the kernel, a name is nothing', () => {
  const mapped = Buffer.from([4, ...Buffer.alloc(10), 0xff, 0xff, 8, 8, 8, 8, 0, 53]);
  assert.equal(readAddress(mapped, 0, mapped.length)!.host, '8.8.8.8');
  const to = Buffer.alloc(40);
  assert.equal(writeSockaddr(mapped, 0, to, 0), 16);
  assert.deepEqual(to.subarray(0, 16), sockaddr('8.8.8.8', 53));
  assert.equal(socksSize(mapped, 0), 19);
  const name = Buffer.from(writeAddress({ host: 'example.com', port: 53 }));
  assert.equal(writeSockaddr(name, 0, to, 0), 0);
  assert.equal(socksSize(name, 0), name.length);
});

test('a copy of a sockaddr keeps the scope, and a mapped one becomes IPv4', () => {
  const to = Buffer.alloc(40);
  for (const host of hosts) {
    const from = sockaddr(host, 1);
    assert.equal(copySockaddr(from, 0, to, 0), from.length);
    assert.deepEqual(to.subarray(0, from.length), from);
  }
  assert.equal(copySockaddr(sockaddr('8.8.8.8', 7, AF_INET6), 0, to, 0), 16);
  assert.deepEqual(to.subarray(0, 16), sockaddr('8.8.8.8', 7));
});

function hash(host: string, port: number, family?: number): number {
  return networkHash(sockaddr(host, port, family), 0, 12345);
}

test('of one network are an IPv4 address, mapped or not, and the first half of an IPv6 address, at any port', () => {
  assert.equal(hash('8.8.8.8', 1), hash('8.8.8.8', 2));
  assert.equal(hash('8.8.8.8', 1), hash('8.8.8.8', 2, AF_INET6));
  assert.equal(hash('2001:db8:1:2::1', 1), hash('2001:db8:1:2:3:4:5:6', 2));
  const others = ['8.8.8.8', '8.8.8.9', '9.8.8.8', '2001:db8:1:2::1', '2001:db8:1:3::1', '2001:db9:1:2::1'];
  assert.equal(new Set(others.map((host) => hash(host, 1))).size, others.length);
  const many = Array.from({ length: 4096 }, (_, i) => hash(`10.0.${i >> 8}.${i & 255}`, 1) % 4096);
  assert.ok(new Set(many).size > 2400, 'crowded'); // 2,589 by chance
});
