import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { UserTable } from '../../src/protocol/user-table.js';

test('users are found amid other bytes, also those whose hashes begin alike', () => {
  const hashes = Array.from({ length: 200 }, (_, i) => {
    const hash = randomBytes(16);
    if (i % 2 === 0) hash.fill(7, 0, 8);
    return hash;
  });
  const table = new UserTable(hashes);
  for (const [i, hash] of hashes.entries())
    assert.equal(table.find(Buffer.concat([randomBytes(5), hash, randomBytes(5)]), 5), i);
});

test('a hash that differs in any byte is nobody', () => {
  const hash = randomBytes(16);
  const table = new UserTable([hash]);
  for (let i = 0; i < 16; i += 1) {
    const other = Uint8Array.from(hash);
    other[i]! ^= 1;
    assert.equal(table.find(other, 0), -1, `byte ${i}`);
  }
  assert.equal(new UserTable([]).find(hash, 0), -1);
});
