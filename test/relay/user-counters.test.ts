import assert from 'node:assert/strict';
import { test } from 'node:test';
import { report } from '../../src/control/report.js';
import type { Logger } from '../../src/log.js';
import { createUserMemory, readUserTraffic, UserCounters } from '../../src/relay/user-counters.js';

test('what several workers count for a user is added up, and users do not mix', () => {
  const memories = [createUserMemory(3), createUserMemory(3)];
  const [one, other] = memories.map((memory) => new UserCounters(memory));
  one!.connected(0);
  one!.add(0, 10, 100);
  other!.connected(0);
  other!.connected(2);
  other!.add(0, 1, 2 ** 40);
  other!.add(2, 7, 0);
  const traffic = [0, 1, 2].map((user) => Object.values(readUserTraffic(memories, user)));
  assert.deepEqual(traffic, [
    [2, 11, 100 + 2 ** 40],
    [0, 0, 0],
    [1, 7, 0],
  ]);
});

test('nobody is not counted', () => {
  const memory = createUserMemory(1);
  const counters = new UserCounters(memory);
  counters.connected(-1);
  counters.add(-1, 5, 5);
  assert.deepEqual(Object.values(readUserTraffic([memory], 0)), [0, 0, 0]);
});

test('the report has a line for each user, and none without users', () => {
  const users = ['ann', 'b\no'].map((name) => ({ name, key: new Uint8Array(16) }));
  const credentials = { key: new Uint8Array(16), identityKeys: [], users };
  const memories = [createUserMemory(2), createUserMemory(2)];
  for (const memory of memories) {
    const counters = new UserCounters(memory);
    counters.connected(1);
    counters.add(1, 3, 1_000_000);
  }
  const lines: string[] = [];
  const log = { info: (line: string) => lines.push(line) } as unknown as Logger;
  report(
    memories.map((userMemory) => ({ udp: undefined, credentials, userMemory })),
    { connections: 2, associations: 1 },
    log,
  );
  assert.deepEqual(lines, [
    '2 TCP connections, 1 UDP associations',
    'user ann: 0 connections, 0 bytes up, 0 bytes down',
    String.raw`user b\no: 2 connections, 6 bytes up, 2000000 bytes down`,
  ]);
  lines.length = 0;
  report(
    [{ udp: undefined, credentials: { ...credentials, users: [] }, userMemory: undefined }],
    { connections: 0, associations: 0 },
    log,
  );
  assert.deepEqual(lines, ['0 TCP connections, 0 UDP associations']);
});
