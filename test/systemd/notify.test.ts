import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { close } from '../../src/linux/libc.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { listenTcp } from '../../src/linux/socket.js';
import { storeName } from '../../src/systemd/listen-fds.js';
import { Notifier } from '../../src/systemd/notify.js';
import { FakeManager, leadsTo } from '../helpers/manager.js';

const directory = mkdtempSync(join(tmpdir(), 'ss-redir-test-'));
after(() => rmSync(directory, { recursive: true }));

const addresses = [
  ['a path', join(directory, 'notify')],
  ['a name in the abstract namespace', `@ss-redir-test-${process.pid}`],
] as const;

for (const [what, address] of addresses) {
  test(`at ${what} the manager hears every message as sd_notify(3) has it`, (t) => {
    const manager = new FakeManager(address);
    t.after(() => manager.close());
    const notifier = Notifier.take({ NOTIFY_SOCKET: address });
    const beforeUs = process.hrtime.bigint() / 1000n;
    notifier.ready('serving');
    notifier.status('7 connections');
    notifier.reloading();
    notifier.watchdog();
    notifier.remove('kept-x');
    notifier.stopping();
    const texts = Array.from({ length: 6 }, () => manager.receive()!.text);
    const us = BigInt(/^RELOADING=1\nMONOTONIC_USEC=(\d+)$/.exec(texts[2]!)![1]!);
    assert.ok(us >= beforeUs && us - beforeUs < 1_000_000n, 'CLOCK_MONOTONIC in microseconds');
    texts.splice(2, 1);
    assert.deepEqual(texts, [
      'READY=1\nSTATUS=serving',
      'STATUS=7 connections',
      'WATCHDOG=1',
      'FDSTOREREMOVE=1\nFDNAME=kept-x',
      'STOPPING=1\nSTATUS=stopping',
    ]);
    assert.equal(manager.receive(), undefined);
  });
}

test('a stored listener arrives as a descriptor of the same socket, with a name that the protocol allows', (t) => {
  const manager = new FakeManager(join(directory, 'store'));
  const endpoint = Endpoint.parse('::1', 0)!;
  const listener = listenTcp(endpoint);
  t.after(() => manager.close());
  t.after(() => close(listener));
  const name = storeName('tcp', Endpoint.parse('2001:db8::1', 8388)!);
  new Notifier(manager.address).store(listener, name);
  const { fields, descriptors } = manager.receive()!;
  assert.deepEqual(fields, { FDSTORE: '1', FDNAME: name, FDPOLL: '0' });
  assert.match(name, /^[\x21-\x39\x3b-\x7e]{1,255}$/); // printable, no colon: sd_pid_notify_with_fds(3)
  assert.equal(descriptors.length, 1);
  assert.notEqual(descriptors[0], listener);
  assert.equal(leadsTo(descriptors[0]!), leadsTo(listener));
});

test('a barrier resolves only when the manager has closed its end', async (t) => {
  const manager = new FakeManager(join(directory, 'barrier'));
  t.after(() => manager.close());
  let passed = false;
  const barrier = new Notifier(manager.address).barrier().then(() => (passed = true));
  const { fields, descriptors } = await manager.next('BARRIER');
  assert.deepEqual(fields, { BARRIER: '1' });
  await delay(50);
  assert.equal(passed, false);
  close(descriptors[0]!);
  manager.notices.length = 0;
  await barrier;
});

test('a full queue of the manager holds nobody up, and loses no message but status and heartbeat', async (t) => {
  const manager = new FakeManager(join(directory, 'full'));
  t.after(() => manager.close());
  const notifier = new Notifier(manager.address);
  const startMs = performance.now();
  for (let i = 0; i < 2000; i++) notifier.remove(`kept-${i}`);
  notifier.watchdog();
  notifier.ready('serving');
  assert.ok(performance.now() - startMs < 1000);
  await manager.next('READY');
  const names = manager.notices.flatMap(({ fields }) => fields['FDNAME'] ?? []);
  assert.deepEqual(
    names,
    Array.from({ length: 2000 }, (_, i) => `kept-${i}`),
  );
});

test('NOTIFY_SOCKET is gone from the environment; without one, and with one of another kind, nothing is sent', async () => {
  const env: NodeJS.ProcessEnv = { NOTIFY_SOCKET: 'vsock:2:1234', OTHER: 'stays' };
  const warnings: string[] = [];
  const notifier = Notifier.take(env, (text) => warnings.push(text));
  assert.deepEqual(env, { OTHER: 'stays' });
  assert.match(warnings[0]!, /^NOTIFY_SOCKET: expected a path or @name/);
  for (const each of [notifier, Notifier.take({})]) {
    assert.equal(each.connected, false);
    each.ready('serving');
    await each.barrier();
  }
});

test('a manager that is gone is no error', () => {
  const notifier = new Notifier(join(directory, 'nobody'));
  notifier.ready('serving');
  notifier.stopping();
});
