import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { SessionTable, type TableEntry } from '../../src/protocol/session-table.js';

class Entry implements TableEntry {
  next: this | undefined = undefined;
  readonly user: number;
  readonly idHigh: number;
  readonly idLow: number;

  constructor(user: number, idHigh: number, idLow: number) {
    this.user = user;
    this.idHigh = idHigh;
    this.idLow = idLow;
  }
}

test('each of 30,000 sessions is found by user and both words of its ID, and by nothing near them', () => {
  const table = new SessionTable<Entry>(randomBytes(8));
  const entries = Array.from({ length: 30_000 }, (_, i) => new Entry((i % 3) - 1, (i >> 8) - 50, i % 256));
  for (const entry of entries) table.add(entry);
  assert.equal(table.size, 30_000);
  for (const entry of entries) assert.equal(table.find(entry.user, entry.idHigh, entry.idLow), entry);
  assert.equal(table.find(2, 0, 0), undefined);
  assert.equal(table.find(-1, 1000, 0), undefined);
  assert.equal(table.find(-1, 0, 256), undefined);
});

test('sessions whose hashes collide are told apart, and removed one by one', () => {
  const table = new SessionTable<Entry>(randomBytes(8));
  const colliding = findCollisions(table);
  for (const entry of colliding) table.add(entry);
  for (const entry of colliding) assert.equal(table.find(entry.user, entry.idHigh, entry.idLow), entry);
  for (const [i, gone] of colliding.entries()) {
    table.removeWhere((entry) => entry === gone);
    assert.equal(table.size, colliding.length - i - 1);
    for (const [j, entry] of colliding.entries())
      assert.equal(table.find(entry.user, entry.idHigh, entry.idLow), j > i ? entry : undefined);
  }
});

test('what is removed is gone, and what is not stays', () => {
  const table = new SessionTable<Entry>(randomBytes(8));
  const entries = Array.from({ length: 10_000 }, (_, i) => new Entry(i % 2, i, -i));
  for (const entry of entries) table.add(entry);
  table.removeWhere((entry) => entry.user === 0);
  assert.equal(table.size, 5000);
  for (const entry of entries)
    assert.equal(table.find(entry.user, entry.idHigh, entry.idLow), entry.user === 0 ? undefined : entry);
});

test('IDs that a client counts up, in either word, spread over the table under any secret', () => {
  for (let i = 0; i < 5; i += 1) {
    const table = new SessionTable<Entry>(randomBytes(8));
    const hash = hashOf(table);
    for (const place of [
      (n: number) => hash(-1, n, 0),
      (n: number) => hash(-1, 0, n),
      (n: number) => hash(n, 7, 7),
    ]) {
      const hashes = new Set(Array.from({ length: 20_000 }, (_, n) => place(n)));
      assert.ok(hashes.size > 19_900, `${hashes.size} hashes of 20,000 IDs`);
    }
  }
});

/** The private hash, to look for what collides under it. */
function hashOf(table: SessionTable<Entry>): (user: number, idHigh: number, idLow: number) => number {
  const open = table as unknown as { hash(user: number, idHigh: number, idLow: number): number };
  return (user, idHigh, idLow) => open.hash(user, idHigh, idLow);
}

/** Two sessions that share one hash. */
function findCollisions(table: SessionTable<Entry>): Entry[] {
  const hash = hashOf(table);
  const byHash = new Map<number, Entry>();
  for (let n = 0; n < 4_000_000; n += 1) {
    const entry = new Entry(-1, Math.imul(n ^ 0x5bd1e995, 0x85ebca6b), Math.imul(n, 0x9e3779b1));
    const key = hash(-1, entry.idHigh, entry.idLow);
    if (key >>> 28 !== 0) continue; // of so many IDs a sixteenth is enough to look at
    const other = byHash.get(key);
    if (other !== undefined) return [other, entry];
    byHash.set(key, entry);
  }
  return assert.fail('no two hashes collide');
}
