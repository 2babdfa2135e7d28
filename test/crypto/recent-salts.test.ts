import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { RecentSalts } from '../../src/crypto/recent-salts.js';

test('none of 1,000,000 fresh salts is taken for one that was there', () => {
  const recent = new RecentSalts();
  const bytes = randomBytes(16_000_000);
  for (let at = 0; at < bytes.length; at += 16) assert.ok(recent.accept(bytes, at));
});

test('of the last 16,384 salts 97 in 100 are known, our own among them', () => {
  const recent = new RecentSalts();
  const count = 16_384;
  const bytes = randomBytes(count * 16);
  for (let i = 0; i < count; i++) {
    if (i % 2 === 0) recent.add(bytes, i * 16);
    else assert.ok(recent.accept(bytes, i * 16));
  }
  let forgotten = 0;
  for (let i = 0; i < count; i++) if (recent.accept(bytes, i * 16)) forgotten++;
  assert.ok(forgotten < (count * 3) / 100, `${forgotten} forgotten`);
});

test('the last 4 are known whatever they are; a salt that differs in any of its first 8 bytes is another', () => {
  const recent = new RecentSalts();
  const salts = Array.from({ length: 4 }, () => {
    const salt = randomBytes(32);
    salt.fill(7, 8, 10);
    return salt;
  });
  for (const salt of salts) assert.ok(recent.accept(salt, 0));
  for (const salt of salts) assert.ok(!recent.accept(salt, 0));
  for (let i = 0; i < 8; i++) {
    const other = Buffer.from(salts[0]!);
    other[i]! ^= 1;
    assert.ok(new RecentSalts().accept(salts[0]!, 0) && recent.accept(other, 0), `byte ${i}`);
  }
});
