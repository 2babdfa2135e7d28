import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PacketWindow } from '../../src/protocol/packet-window.js';
import { packetVectors } from '../helpers/packet-vectors.js';

test('the window decides as in the vectors', () => {
  assert.ok(packetVectors.sliding_window.length >= 9);
  for (const { id, window_size: size, steps } of packetVectors.sliding_window) {
    const window = new PacketWindow(size);
    for (const [i, step] of steps.entries())
      assert.equal(accept(window, BigInt(`0x${step.packet_id_hex}`)), step.accept, `${id}, step ${i}`);
  }
});

test('IDs in any order within the window are new once each', () => {
  const window = new PacketWindow();
  const order = [0n, 1n, 2n, 5n, 3n, 4n];
  assert.deepEqual(
    order.map((id) => accept(window, id)),
    order.map(() => true),
  );
  assert.deepEqual(
    order.map((id) => accept(window, id)),
    order.map(() => false),
  );
});

test('2,048 IDs are remembered: one below the highest by 2,047 is new, by 2,048 is not', () => {
  for (const highest of [5000n, 2n ** 32n + 100n, 2n ** 53n + 5n, 2n ** 64n - 1n]) {
    const window = new PacketWindow();
    assert.equal(accept(window, highest), true);
    assert.equal(accept(window, highest - 2048n), false, `${highest}`);
    assert.equal(accept(window, highest - 2047n), true, `${highest}`);
    assert.equal(accept(window, highest - 2047n), false, `${highest}`);
  }
});

test('to ask does not move the window', () => {
  const window = new PacketWindow();
  window.add(0, 10);
  assert.equal(window.isNew(5, 5), true);
  assert.equal(window.isNew(0, 9), true);
  assert.equal(window.isNew(0, 9), true);
  assert.equal(window.isNew(0, 10), false);
});

test('signed words stand for the same IDs as unsigned ones', () => {
  const window = new PacketWindow();
  window.add(-1, -2);
  assert.equal(window.isNew(0xffffffff, 0xfffffffe), false);
  assert.equal(window.isNew(-1, -1), true);
  assert.equal(window.isNew(0, 1), false);
});

for (const [name, start, most] of [
  ['small steps', 0n, 4],
  ['steps about as long as the window', 0n, 150],
  ['small steps over 2^32', 2n ** 32n - 500n, 4],
  ['long steps over 2^32', 2n ** 32n - 5000n, 150],
] as const) {
  test(`a window of 64 IDs decides as a set of all IDs seen would: ${name}`, () => {
    const window = new PacketWindow(64);
    const seen = new Set<bigint>();
    let highest = 0n;
    let seed = 1;
    let accepted = 0;
    for (let i = 0; i < 20_000; i += 1) {
      seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
      const jump = BigInt((seed >>> 8) % (2 * most)) - BigInt(most - 1);
      const id = i === 0 ? start : highest + jump;
      if (id < 0n) continue;
      const expected = id > highest || (highest - id < 64n && !seen.has(id));
      assert.equal(accept(window, id), expected, `packet ${i}, ID ${id}, highest ${highest}`);
      if (!expected) continue;
      accepted += 1;
      seen.add(id);
      if (id > highest) highest = id;
    }
    assert.ok(accepted > 1000 && accepted < 19_000, `${accepted} accepted`);
  });
}

test('a window whose size is no power of two, or too small, is refused', () => {
  for (const size of [0, 16, 1000]) assert.throws(() => new PacketWindow(size), RangeError);
});

function accept(window: PacketWindow, id: bigint): boolean {
  const [high, low] = [Number(id >> 32n), Number(id & 0xffffffffn)];
  if (!window.isNew(high, low)) return false;
  window.add(high, low);
  return true;
}
