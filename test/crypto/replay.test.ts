import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { SaltFilter } from '../../src/crypto/replay.js';

const seed = randomBytes(8);

for (const size of [16, 24, 32]) {
  test(`100,000 random salts of ${size} bytes are all new, and all known afterwards`, () => {
    const filter = new SaltFilter(seed);
    const salts = randomBytes(size * 100_000);
    const refused = (): number => {
      let count = 0;
      for (let i = 0; i < salts.length; i += size)
        if (!filter.accept(salts.subarray(i, i + size))) count += 1;
      return count;
    };
    assert.equal(refused(), 0);
    assert.equal(refused(), 100_000);
  });
}

test('the last `capacity` salts are remembered at any moment, across the turn of a generation', () => {
  const capacity = 500;
  const filter = new SaltFilter(seed, capacity);
  const salts = Array.from({ length: 2_300 }, () => randomBytes(32));
  for (const [i, salt] of salts.entries()) {
    assert.equal(filter.accept(salt), true, `salt ${i}`);
    // Asking is inserting only for what is not known, so these questions change nothing.
    for (const back of [0, 1, 250, capacity - 2, capacity - 1]) {
      if (i - back >= 0) assert.equal(filter.accept(salts[i - back]!), false, `salt ${i}, ${back} back`);
    }
  }
});

test('what came more than two capacities ago is forgotten, so memory has a bound', () => {
  const filter = new SaltFilter(seed, 100);
  const first = randomBytes(32);
  assert.equal(filter.accept(first), true);
  for (let i = 0; i < 200; i += 1) filter.accept(randomBytes(32));
  assert.equal(filter.accept(first), true);
});

test('memory grows with the salts: little at first, and below 33 MiB when full', () => {
  const filter = new SaltFilter(seed);
  assert.ok(filter.memory < 16 * 1024, `${filter.memory} bytes when new`);
  const block = randomBytes(2 ** 20);
  const view = new DataView(block.buffer, block.byteOffset, 16);
  for (let i = 0; i < 1_900_000; i += 1) {
    view.setUint32(0, i);
    filter.accept(block.subarray(0, 16));
  }
  assert.ok(filter.memory < 33 * 2 ** 20, `${filter.memory} bytes when full`);
});

test('a salt of ours is refused when it comes back', () => {
  const filter = new SaltFilter(seed);
  const salt = randomBytes(32);
  filter.add(salt);
  assert.equal(filter.accept(salt), false);
});

test('salts that differ in one bit are different salts', () => {
  const filter = new SaltFilter(seed);
  const salt = new Uint8Array(32);
  assert.equal(filter.accept(salt), true);
  for (let bit = 0; bit < 256; bit += 1) {
    const other = new Uint8Array(32);
    other[bit >> 3] = 1 << (bit & 7);
    assert.equal(filter.accept(other), true, `bit ${bit}`);
  }
});

test('two filters know nothing of each other', () => {
  const salt = randomBytes(16);
  assert.equal(new SaltFilter(seed).accept(salt), true);
  assert.equal(new SaltFilter(seed).accept(salt), true);
});
