import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Endpoint, SockaddrBlock } from '../../src/linux/sockaddr.js';
import { AddressTable } from '../../src/relay/address-table.js';

function sockaddr(host: string, port: number, family?: number): Buffer {
  const block = new SockaddrBlock();
  const endpoint = Endpoint.parse(host, port)!;
  const size = block.write(endpoint, family);
  return Buffer.from(block.contents.subarray(0, size));
}

test('an address is found again, and only that one', () => {
  const table = new AddressTable<string>(8);
  const hosts = ['192.0.2.1', '192.0.2.2', '2001:db8::1', '2001:db8::2', '::1', '0.0.0.1'];
  for (const host of hosts) {
    assert.equal(table.findSockaddr(sockaddr(host, 53), 0), -1);
    table.insert(host);
  }
  for (const host of hosts) {
    assert.equal(table.at(table.findSockaddr(sockaddr(host, 53), 0)), host);
    assert.equal(table.findSockaddr(sockaddr(host, 54), 0), -1);
  }
});

test('an IPv4-mapped address is the IPv4 address', () => {
  const table = new AddressTable<string>(2);
  table.findSockaddr(sockaddr('192.0.2.1', 53), 0);
  table.insert('it');
  const AF_INET6 = 10;
  assert.equal(table.at(table.findSockaddr(sockaddr('192.0.2.1', 53, AF_INET6), 0)), 'it');
});

test('10,000 addresses that come and go, against a Map', () => {
  const table = new AddressTable<string>(500);
  const model = new Map<string, number>();
  let random = 1;
  const next = (below: number): number => {
    random = (Math.imul(random, 1103515245) + 12345) >>> 0;
    return (random >>> 8) % below;
  };
  for (let i = 0; i < 10_000; i++) {
    const host = next(2) === 0 ? `10.0.${next(4)}.${next(200)}` : `2001:db8::${next(800).toString(16)}`;
    const place = table.findSockaddr(sockaddr(host, 1000), 0);
    const known = model.get(host);
    assert.equal(place, known ?? -1);
    if (known !== undefined) {
      assert.equal(table.at(place), host);
      table.remove(place);
      model.delete(host);
    } else if (!table.full) {
      model.set(host, table.insert(host));
    }
    assert.equal(table.size, model.size);
  }
});
