import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import type { Dns, Found } from '../../src/control/dns.js';
import { Servers } from '../../src/control/servers.js';

/** What the names resolve to at present; a missing one fails. */
const answers = new Map<string, Found>();
let asked: string[] = [];
let changes: string[] = [];
let failures: string[] = [];

const dns = {
  async resolve(host: string): Promise<Found> {
    asked.push(host);
    const found = answers.get(host);
    if (found === undefined) throw new Error(`cannot resolve "${host}": no such name`);
    return found;
  },
} as unknown as Dns;

function makeServers(...hosts: string[]): Servers {
  return new Servers(
    hosts.map((host, i) => ({ host, port: 1000 + i })),
    dns,
    (addresses) => changes.push(addresses.map(({ address, port }) => `${address} ${port}`).join(', ')),
    (message) => failures.push(message),
  );
}

/** How often the name was asked for. */
function count(name: string): number {
  return asked.filter((host) => host === name).length;
}

/** Lets promises that are settled already run on. */
async function settle(): Promise<void> {
  for (let i = 0; i < 20; i++) await Promise.resolve();
}

async function pass(seconds: number): Promise<void> {
  await settle();
  for (let i = 0; i < seconds; i++) {
    mock.timers.tick(1000);
    await settle();
  }
}

beforeEach(() => {
  answers.clear();
  asked = [];
  changes = [];
  failures = [];
  mock.timers.enable({ apis: ['setTimeout'] });
});
afterEach(() => mock.timers.reset());

test('a name is asked again when its answer has aged, and a new address is told at once', async () => {
  answers.set('a.test', { addresses: ['192.0.2.1'], ttlSeconds: 60 });
  const servers = makeServers('a.test');
  void servers.start();
  await settle();
  assert.equal(changes.at(-1), '192.0.2.1 1000');
  await pass(59);
  assert.equal(asked.length, 1);
  answers.set('a.test', { addresses: ['192.0.2.2'], ttlSeconds: 60 });
  await pass(1);
  assert.equal(asked.length, 2);
  assert.equal(changes.at(-1), '192.0.2.2 1000');
  const { length } = changes;
  await pass(60);
  assert.deepEqual([asked.length, changes.length], [3, length], 'the same answer is no change');
  servers.close();
});

test('short and long lives of an answer are held to 5 and 600 s', async () => {
  answers.set('short.test', { addresses: ['192.0.2.1'], ttlSeconds: 0 });
  answers.set('long.test', { addresses: ['192.0.2.2'], ttlSeconds: 86_400 });
  const servers = makeServers('short.test', 'long.test');
  void servers.start();
  await pass(599);
  assert.deepEqual([count('short.test'), count('long.test')], [120, 1]);
  await pass(1);
  assert.equal(count('long.test'), 2);
  servers.close();
});

test('a literal address is asked for once', async () => {
  answers.set('192.0.2.7', { addresses: ['192.0.2.7'], ttlSeconds: Infinity });
  const servers = makeServers('192.0.2.7');
  await servers.start();
  await pass(700);
  assert.equal(asked.length, 1);
});

test('failures are asked again after 1, 2, 4, 8, 16, 30 and 30 s, and a success starts over', async () => {
  const servers = makeServers('late.test');
  void servers.start();
  await pass(1 + 2 + 4 + 8 + 16 + 30 + 30);
  const pauses = failures.map(
    (line) => /^server: cannot resolve "late\.test": no such name; asking again in (\d+) s$/.exec(line)![1],
  );
  assert.deepEqual(pauses, ['1', '2', '4', '8', '16', '30', '30', '30']);
  answers.set('late.test', { addresses: ['192.0.2.3'], ttlSeconds: 10 });
  await pass(30);
  assert.equal(changes.at(-1), '192.0.2.3 1000');
  answers.delete('late.test');
  failures = [];
  await pass(10);
  assert.match(failures[0]!, /asking again in 1 s$/);
  servers.close();
});

test('addresses that were known stay while the name fails', async () => {
  answers.set('a.test', { addresses: ['192.0.2.1'], ttlSeconds: 5 });
  answers.set('b.test', { addresses: ['192.0.2.2', '2001:db8::2'], ttlSeconds: 5 });
  const servers = makeServers('a.test', 'b.test');
  void servers.start();
  await settle();
  assert.equal(changes.at(-1), '192.0.2.1 1000, 192.0.2.2 1001, 2001:db8::2 1001');
  answers.delete('a.test');
  const { length } = changes;
  await pass(100);
  assert.equal(changes.length, length);
  assert.ok(failures.length > 0);
  servers.close();
});

test('after close nobody is asked and nothing is told, not even by an answer under way', async () => {
  answers.set('a.test', { addresses: ['192.0.2.1'], ttlSeconds: 5 });
  const servers = makeServers('a.test');
  void servers.start();
  await settle();
  answers.set('a.test', { addresses: ['192.0.2.9'], ttlSeconds: 5 });
  mock.timers.tick(5000);
  servers.close();
  await settle();
  const { length } = asked;
  await pass(100);
  assert.equal(asked.length, length);
  assert.ok(!changes.includes('192.0.2.9 1000'));
});
