import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { createSaltMemory, SaltFilter, type SaltMemory } from '../../src/crypto/replay.js';
import type { SaltTask } from './salt-worker.js';

const seed = randomBytes(8);

function createFilter(capacity?: number): SaltFilter {
  return new SaltFilter(createSaltMemory(seed, capacity));
}

for (const size of [16, 24, 32]) {
  test(`100,000 random salts of ${size} bytes are all new, and all known afterwards`, () => {
    const filter = createFilter();
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
  const filter = createFilter(capacity);
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
  const filter = createFilter(100);
  const first = randomBytes(32);
  assert.equal(filter.accept(first), true);
  for (let i = 0; i < 200; i += 1) filter.accept(randomBytes(32));
  assert.equal(filter.accept(first), true);
});

test('memory grows with the salts: little at first, and below 33 MiB when full', () => {
  const filter = createFilter();
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
  const filter = createFilter();
  const salt = randomBytes(32);
  filter.add(salt);
  assert.equal(filter.accept(salt), false);
});

test('salts that differ in one bit are different salts', () => {
  const filter = createFilter();
  const salt = new Uint8Array(32);
  assert.equal(filter.accept(salt), true);
  for (let bit = 0; bit < 256; bit += 1) {
    const other = new Uint8Array(32);
    other[bit >> 3] = 1 << (bit & 7);
    assert.equal(filter.accept(other), true, `bit ${bit}`);
  }
});

test('a salt amid other bytes is the same salt as alone', () => {
  const filter = new SaltFilter(createSaltMemory(randomBytes(8), 100));
  const packet = randomBytes(100);
  assert.equal(filter.accept(packet, 20, 52), true);
  assert.equal(filter.accept(packet.subarray(20, 52)), false);
  assert.equal(filter.accept(packet, 24, 56), true);
  assert.equal(filter.accept(packet, 20, 36), true, 'the first half alone is another');
  filter.add(packet, 60, 76);
  assert.equal(filter.accept(packet.subarray(60, 76)), false);
});

test('two filters know nothing of each other', () => {
  const salt = randomBytes(16);
  assert.equal(createFilter().accept(salt), true);
  assert.equal(createFilter().accept(salt), true);
});

test('two filters of one memory are one filter', () => {
  const memory = createSaltMemory(seed);
  const salt = randomBytes(16);
  assert.equal(new SaltFilter(memory).accept(salt), true);
  assert.equal(new SaltFilter(structuredClone(memory)).accept(salt), false);
});

test('a filter made before its memory grew and turned knows what another put in afterwards', () => {
  const memory = createSaltMemory(seed, 20_000);
  const early = new SaltFilter(memory);
  const other = new SaltFilter(memory);
  const salts = Array.from({ length: 70_000 }, () => randomBytes(16));
  for (const salt of salts) assert.equal(other.accept(salt), true);
  for (const salt of salts.slice(-20_000)) assert.equal(early.accept(salt), false);
});

test('a filter whose lock a dead thread has kept says so instead of hanging', () => {
  const memory = createSaltMemory(seed);
  const filter = new SaltFilter(memory, 20);
  Atomics.store(new Int32Array(memory.state), 0, 1);
  assert.throws(() => filter.accept(randomBytes(16)), /lock was not freed in 20 ms/);
});

const threads = 3;
const count = 100_000;
const saltSize = 16;

test(`${threads} threads that meet the same ${count} salts accept each once in all, while the memory grows`, async () => {
  const salts = sharedSalts();
  // On a busy machine one thread may have run through before the others get a turn: then they have not met, so once more.
  for (let met = 1, round = 0; met < 2; round += 1) {
    assert.ok(round < 20, 'the threads never met');
    const accepted = await hammer(createSaltMemory(seed), Array(threads).fill(salts));
    const wrong = salts.filter((_, i) => accepted.reduce((sum, flags) => sum + flags[i]!, 0) !== 1).length;
    assert.equal(wrong, 0, `${wrong} salts were accepted by none or by several`);
    met = accepted.filter((flags) => flags.includes(1)).length;
  }
});

test(`${threads} threads that bring ${count} salts each lose none of them, while the memory grows`, async () => {
  const memory = createSaltMemory(seed);
  const salts = Array.from({ length: threads }, sharedSalts);
  const accepted = await hammer(memory, salts);
  assert.equal(
    accepted.flatMap((flags) => flags.filter((flag) => flag === 0)).length,
    0,
    'refused though new',
  );
  const filter = new SaltFilter(memory);
  const forgotten = salts.flat().filter((salt) => filter.accept(salt));
  assert.equal(forgotten.length, 0);
});

/** Salts that threads can share. */
function sharedSalts(): Uint8Array[] {
  const bytes = new Uint8Array(new SharedArrayBuffer(count * saltSize));
  bytes.set(randomBytes(bytes.length));
  return Array.from({ length: count }, (_, i) => bytes.subarray(i * saltSize, (i + 1) * saltSize));
}

/** Lets one thread for each list ask about its salts, all at once. Returns which of them it was told were new. */
async function hammer(memory: SaltMemory, lists: readonly Uint8Array[][]): Promise<number[][]> {
  const gate = new SharedArrayBuffer(8);
  const accepted = lists.map(() => new SharedArrayBuffer(count));
  const ends = lists.map((salts, i) => {
    const workerData: SaltTask = {
      memory,
      gate,
      salts: salts[0]!.buffer as SharedArrayBuffer,
      accepted: accepted[i]!,
    };
    const worker = new Worker(new URL('./salt-worker.js', import.meta.url), { workerData });
    return once(worker, 'exit');
  });
  const arrived = new Int32Array(gate);
  while (Atomics.load(arrived, 1) < lists.length) await delay(5);
  Atomics.store(arrived, 0, 1);
  Atomics.notify(arrived, 0);
  for (const [status] of await Promise.all(ends)) assert.equal(status, 0);
  return accepted.map((flags) => Array.from(new Uint8Array(flags)));
}
