import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { createSaltPoolMemory, SaltPool, type SaltPoolMemory } from '../../src/crypto/salt-pool.js';
import type { PoolTask } from './salt-pool-worker.js';

const seed = randomBytes(8);

function createPool(saltSize: number, capacity?: number): SaltPool {
  return new SaltPool(createSaltPoolMemory(seed, saltSize, capacity));
}

for (const size of [16, 32]) {
  test(`100,000 random salts of ${size} bytes are all new, and all repeated for 65 s`, () => {
    const pool = createPool(size);
    const salts = randomBytes(size * 100_000);
    const verdicts = (nowMs: number): Record<string, number> => {
      const counts: Record<string, number> = {};
      for (let i = 0; i < salts.length; i += size) {
        const verdict = pool.accept(salts.subarray(i, i + size), nowMs);
        counts[verdict] = (counts[verdict] ?? 0) + 1;
      }
      return counts;
    };
    assert.deepEqual(verdicts(1000), { new: 100_000 });
    assert.deepEqual(verdicts(1000), { repeated: 100_000 });
    assert.deepEqual(verdicts(65_999.9), { repeated: 100_000 });
  });
}

test('salts that differ in one bit are different salts', () => {
  const pool = createPool(32);
  const salt = randomBytes(32);
  assert.equal(pool.accept(salt, 0), 'new');
  for (let bit = 0; bit < 256; bit += 1) {
    const other = Uint8Array.from(salt);
    other[bit >> 3]! ^= 1 << (bit & 7);
    assert.equal(pool.accept(other, 0), 'new', `bit ${bit}`);
  }
});

test('a salt is known at any moment of the 65 s after it came, however the others come', () => {
  for (const stepMs of [100, 900, 7000, 33_000, 64_999]) {
    const pool = createPool(16);
    const seen: { salt: Uint8Array; atMs: number }[] = [];
    for (let nowMs = 5_000_000; nowMs < 5_400_000; nowMs += stepMs) {
      const salt = randomBytes(16);
      assert.equal(pool.accept(salt, nowMs), 'new');
      seen.push({ salt, atMs: nowMs });
      // Asking is inserting only for what is not known, so these questions change nothing.
      for (const { salt: old, atMs } of seen.slice(-(Math.floor(65_000 / stepMs) + 1))) {
        if (nowMs - atMs < 65_000)
          assert.equal(pool.accept(old, nowMs), 'repeated', `${nowMs - atMs} ms old`);
      }
    }
  }
});

test('a replay does not make a salt younger: 130 s after it came it is forgotten, and its memory is used again', () => {
  const pool = createPool(16);
  const salt = randomBytes(16);
  assert.equal(pool.accept(salt, 0), 'new');
  for (let nowMs = 1000; nowMs < 130_000; nowMs += 1000) {
    pool.accept(randomBytes(16), nowMs);
    if (nowMs < 65_000) assert.equal(pool.accept(salt, nowMs), 'repeated');
  }
  assert.equal(pool.accept(randomBytes(16), 131_000), 'new');
  assert.equal(pool.accept(salt, 131_000), 'new');
});

test('a full pool refuses what is new, forgets nothing, and takes salts again when the oldest are 65 s old', () => {
  const pool = createPool(16, 500);
  const salts = Array.from({ length: 500 }, () => randomBytes(16));
  for (const salt of salts) assert.equal(pool.accept(salt, 70_000), 'new');
  for (let i = 0; i < 1000; i += 1) assert.equal(pool.accept(randomBytes(16), 134_999), 'full');
  for (const salt of salts) assert.equal(pool.accept(salt, 134_999), 'repeated');
  assert.equal(pool.accept(randomBytes(16), 135_000), 'new');
});

test('memory is small at first, and bounded when 300,000 salts of 32 bytes come every 65 s', () => {
  const pool = createPool(32);
  assert.ok(pool.memory < 64 * 1024, `${pool.memory} bytes when new`);
  const salt = new Uint8Array(32);
  const view = new DataView(salt.buffer);
  let count = 0;
  for (let nowMs = 0; nowMs < 4 * 65_000; nowMs += 65_000) {
    for (let i = 0; i < 300_000; i += 1) {
      view.setUint32(0, count++);
      assert.equal(pool.accept(salt, nowMs), 'new');
    }
  }
  assert.ok(pool.memory < 90 * 2 ** 20, `${pool.memory} bytes with 2 × 300,000 salts`);
});

test('two pools of one memory are one pool, two memories are two', () => {
  const memory = createSaltPoolMemory(seed, 32);
  const salt = randomBytes(32);
  const early = new SaltPool(structuredClone(memory));
  assert.equal(new SaltPool(memory).accept(salt, 5), 'new');
  assert.equal(early.accept(salt, 6), 'repeated');
  assert.equal(createPool(32).accept(salt, 7), 'new');
});

test('a pool made before its memory grew and turned knows what another put in afterwards', () => {
  const memory = createSaltPoolMemory(seed, 16);
  const early = new SaltPool(memory);
  const other = new SaltPool(memory);
  const salts = Array.from({ length: 40_000 }, () => randomBytes(16));
  for (const [i, salt] of salts.entries()) assert.equal(other.accept(salt, 100_000 + i), 'new');
  for (const salt of salts) assert.equal(early.accept(salt, 150_000), 'repeated');
});

test('a pool whose lock a dead thread has kept says so instead of hanging', () => {
  const memory = createSaltPoolMemory(seed, 16);
  Atomics.store(new Int32Array(memory.state), 0, 1);
  assert.throws(() => new SaltPool(memory, 20).accept(randomBytes(16), 0), /lock was not freed in 20 ms/);
});

const threads = 2;
const count = 50_000;

test(`${threads} threads that meet the same ${count} salts accept each once in all, while the memory grows`, async () => {
  // On a busy machine one thread may have run through before the other gets a turn: then they have not met, so once more.
  for (let met = 1, round = 0; met < threads; round += 1) {
    assert.ok(round < 20, 'the threads never met');
    const accepted = await hammer(createSaltPoolMemory(seed, 32));
    let wrong = 0;
    for (let i = 0; i < count; i += 1)
      if (accepted.reduce((sum, flags) => sum + flags[i]!, 0) !== 1) wrong += 1;
    assert.equal(wrong, 0, `${wrong} salts were accepted by none or by both`);
    met = accepted.filter((flags) => flags.includes(1)).length;
  }
});

/** Lets the threads ask about the same salts, all at once. Returns which of them each was told were new. */
async function hammer(memory: SaltPoolMemory): Promise<Uint8Array[]> {
  const gate = new SharedArrayBuffer(8);
  const salts = new SharedArrayBuffer(count * memory.saltSize);
  new Uint8Array(salts).set(randomBytes(salts.byteLength));
  const accepted = Array.from({ length: threads }, () => new SharedArrayBuffer(count));
  const ends = accepted.map((flags) => {
    const workerData: PoolTask = { memory, gate, salts, accepted: flags };
    return once(new Worker(new URL('./salt-pool-worker.js', import.meta.url), { workerData }), 'exit');
  });
  const arrived = new Int32Array(gate);
  while (Atomics.load(arrived, 1) < threads) await delay(5);
  Atomics.store(arrived, 0, 1);
  Atomics.notify(arrived, 0);
  for (const [status] of await Promise.all(ends)) assert.equal(status, 0);
  return accepted.map((flags) => new Uint8Array(flags));
}
