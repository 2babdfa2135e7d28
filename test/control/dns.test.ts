import assert from 'node:assert/strict';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Dns, type DnsOptions } from '../../src/control/dns.js';
import { NameServer } from '../helpers/name-server.js';

const nameServer = new NameServer();
let address = '';
const folder = mkdtempSync(join(tmpdir(), 'ss-redir-dns-'));
const hostsFile = join(folder, 'hosts');

before(async () => {
  address = await nameServer.start();
});
after(() => {
  nameServer.stop();
  rmSync(folder, { recursive: true });
});

function makeDns(options: Partial<DnsOptions> = {}): Dns {
  return new Dns({ nameservers: [address], ipv6First: false, maxQueries: 10, hostsFile, ...options });
}

test('both families are asked for; IPv4 comes first, or IPv6 with ipv6First; the smallest TTL counts', async () => {
  nameServer.answers.set('both.test', { a: ['192.0.2.1', '192.0.2.2'], aaaa: ['2001:db8::1'], ttl: 77 });
  assert.deepEqual(await makeDns().resolve('both.test'), {
    addresses: ['192.0.2.1', '192.0.2.2', '2001:db8::1'],
    ttlSeconds: 77,
  });
  const { addresses } = await makeDns({ ipv6First: true }).resolve('both.test');
  assert.deepEqual(addresses, ['2001:db8::1', '192.0.2.1', '192.0.2.2']);
});

test('a name with one family only resolves to that', async () => {
  nameServer.answers.set('four.test', { a: ['192.0.2.4'] });
  nameServer.answers.set('six.test', { aaaa: ['2001:db8::6'] });
  assert.deepEqual((await makeDns().resolve('four.test')).addresses, ['192.0.2.4']);
  assert.deepEqual((await makeDns().resolve('six.test')).addresses, ['2001:db8::6']);
});

test('a failure says which name and why', async () => {
  nameServer.answers.set('empty.test', {});
  nameServer.answers.set('broken.test', { code: 2 });
  await assert.rejects(makeDns().resolve('missing.test'), {
    message: 'cannot resolve "missing.test": no such name',
  });
  await assert.rejects(makeDns().resolve('empty.test'), {
    message: 'cannot resolve "empty.test": no address',
  });
  await assert.rejects(makeDns().resolve('broken.test'), /^Error: cannot resolve "broken\.test": ESERVFAIL$/);
});

test('literal addresses are themselves for ever, and nobody is asked', async () => {
  const { length } = nameServer.asked;
  for (const host of ['192.0.2.1', '2001:db8::1', 'fe80::1%lo']) {
    assert.deepEqual(await makeDns().resolve(host), { addresses: [host], ttlSeconds: Infinity });
  }
  assert.equal(nameServer.asked.length, length);
});

test('the hosts file comes first: aliases, comments, any case, a final dot, several addresses', async () => {
  writeFileSync(
    hostsFile,
    '# 192.0.2.9 no\n192.0.2.10\tOne.test alias.test # both.test\n2001:db8::10 one.test\nnot-an-ip both.test\n\n',
  );
  const dns = makeDns();
  const { length } = nameServer.asked;
  for (const name of ['one.test', 'ONE.TEST', 'one.test.']) {
    assert.deepEqual((await dns.resolve(name)).addresses, ['192.0.2.10', '2001:db8::10'], name);
  }
  assert.deepEqual((await dns.resolve('alias.test')).addresses, ['192.0.2.10']);
  assert.equal(nameServer.asked.length, length, 'nobody was asked');
  assert.deepEqual((await dns.resolve('both.test')).addresses.length, 3, 'a comment names nothing');
});

test('a hosts file that changes, goes or is replaced is read again', async () => {
  writeFileSync(hostsFile, '192.0.2.11 moving.test\n');
  const dns = makeDns();
  assert.deepEqual((await dns.resolve('moving.test')).addresses, ['192.0.2.11']);
  writeFileSync(`${hostsFile}.new`, '192.0.2.222 moving.test\n');
  renameSync(`${hostsFile}.new`, hostsFile);
  assert.deepEqual((await dns.resolve('moving.test')).addresses, ['192.0.2.222']);
  rmSync(hostsFile);
  await assert.rejects(dns.resolve('moving.test'), /no such name/);
});

test('a hosts file that cannot be read is as good as none', async () => {
  nameServer.answers.set('plain.test', { a: ['192.0.2.30'] });
  const dns = makeDns({ hostsFile: folder }); // a folder: EISDIR, for root too
  assert.deepEqual((await dns.resolve('plain.test')).addresses, ['192.0.2.30']);
  assert.deepEqual((await dns.resolve('plain.test')).addresses, ['192.0.2.30']);
});

test('questions for one name at the same time are one', async () => {
  nameServer.answers.set('shared.test', { a: ['192.0.2.20'] });
  const dns = makeDns({ maxQueries: 1 });
  const { length } = nameServer.asked;
  const found = await Promise.all([
    dns.resolve('shared.test'),
    dns.resolve('Shared.Test'),
    dns.resolve('shared.test'),
  ]);
  assert.deepEqual(
    found.map(({ addresses }) => addresses),
    [['192.0.2.20'], ['192.0.2.20'], ['192.0.2.20']],
  );
  assert.deepEqual(nameServer.asked.slice(length).toSorted(), ['shared.test A', 'shared.test AAAA']);
});

test('more lookups at once than maxQueries are refused; when they are over there is room', async () => {
  nameServer.answers.set('silent.test', { silent: true });
  nameServer.answers.set('quick.test', { a: ['192.0.2.21'] });
  const dns = makeDns({ maxQueries: 1 });
  const first = dns.resolve('silent.test');
  const failed = assert.rejects(first, /^Error: cannot resolve "silent\.test": E/);
  await assert.rejects(dns.resolve('quick.test'), {
    message: 'more than 1 name lookups at once (--max-dns-queries)',
  });
  dns.close();
  await failed;
  assert.deepEqual((await dns.resolve('quick.test')).addresses, ['192.0.2.21']);
});
