import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fillRandom, randomBytes } from '../../src/crypto/random.js';
import { toHex } from '../helpers/vectors.js';

test('no bytes are given out twice, whichever way they are asked for', () => {
  const seen = new Set<string>();
  const target = new Uint8Array(100);
  for (let i = 0; i < 5000; i += 1) {
    seen.add(toHex(randomBytes(16)));
    fillRandom(target, 3, 16);
    seen.add(toHex(target.subarray(3, 19)));
  }
  assert.equal(seen.size, 10_000);
});

test('only what was asked for is filled', () => {
  const target = new Uint8Array(40);
  for (let i = 0; i < 1000; i += 1) {
    target.fill(0);
    fillRandom(target, 8, 24);
    assert.equal(toHex(target.subarray(0, 8)) + toHex(target.subarray(32)), '00'.repeat(16));
    assert.notEqual(toHex(target.subarray(8, 32)), '00'.repeat(24));
  }
});

test('bytes given out do not change when others are drawn', () => {
  const first = randomBytes(32);
  const before = toHex(first);
  for (let i = 0; i < 1000; i += 1) randomBytes(32);
  assert.equal(toHex(first), before);
});

test('more than a draw at once is refused', () => {
  assert.equal(randomBytes(8192).length, 8192);
  assert.throws(() => randomBytes(8193), RangeError);
});
