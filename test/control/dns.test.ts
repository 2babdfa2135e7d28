import assert from 'node:assert/strict';
import { createSocket, type Socket } from 'node:dgram';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Dns, type DnsOptions } from '../../src/control/dns.js';

const A = 1; // RFC 1035 section 3.2.2
const AAAA = 28; // RFC 3596
const noError = 0;
const noName = 3; // RFC 1035 section 4.1.1

interface Answer {
  code?: number;
  a?: string[];
  aaaa?: string[];
  ttl?: number;
  silent?: boolean;
}

/** A name server with answers of ours; it keeps what it was asked. */
class NameServer {
  readonly answers = new Map<string, Answer>();
  readonly asked: string[] = [];
  private readonly socket: Socket = createSocket('udp4');

  async start(): Promise<string> {
    this.socket.on('message', (query, from) => {
      const reply = this.reply(query);
      if (reply !== undefined) this.socket.send(reply, from.port, from.address);
    });
    await new Promise<void>((resolve) => this.socket.bind(0, '127.0.0.1', resolve));
    return `127.0.0.1:${this.socket.address().port}`;
  }

  stop(): void {
    this.socket.close();
  }

  private reply(query: Buffer): Buffer | undefined {
    const labels: string[] = [];
    let at = 12;
    for (; query[at] !== 0; at += 1 + query[at]!)
      labels.push(query.toString('latin1', at + 1, at + 1 + query[at]!));
    const type = query.readUInt16BE(at + 1);
    const name = labels.join('.').toLowerCase();
    this.asked.push(`${name} ${type === A ? 'A' : type === AAAA ? 'AAAA' : type}`);
    const {
      a = [],
      aaaa = [],
      ttl = 300,
      silent,
      code = noError,
    } = this.answers.get(name) ?? { code: noName };
    if (silent) return undefined;
    const data = type === A ? a.map(ipv4Bytes) : type === AAAA ? aaaa.map(ipv6Bytes) : [];
    const head = Buffer.from([query[0]!, query[1]!, 0x81, 0x80 | code, 0, 1, 0, data.length, 0, 0, 0, 0]);
    const records = data.map((bytes) => {
      const record = Buffer.alloc(12);
      record.writeUInt16BE(0xc00c, 0); // the name of the question
      record.writeUInt16BE(type, 2);
      record.writeUInt16BE(1, 4);
      record.writeUInt32BE(ttl, 6);
      record.writeUInt16BE(bytes.length, 10);
      return Buffer.concat([record, bytes]);
    });
    return Buffer.concat([head, query.subarray(12, at + 5), ...records]);
  }
}

function ipv4Bytes(text: string): Buffer {
  return Buffer.from(text.split('.').map(Number));
}

/** With one `::`, groups of four digits or fewer on both sides. */
function ipv6Bytes(text: string): Buffer {
  const [head, tail] = text.split('::').map((part) => part.split(':').filter(Boolean)) as [
    string[],
    string[],
  ];
  const groups = [...head, ...Array.from({ length: 8 - head.length - tail.length }, () => '0'), ...tail];
  return Buffer.from(groups.map((group) => group.padStart(4, '0')).join(''), 'hex');
}

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
