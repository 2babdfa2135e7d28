import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Deadlined, TimerWheel } from '../../src/engine/timers.js';

const tickMs = 50;

class Item implements Deadlined {
  wheelBucket = -1;
  wheelIndex = 0;
  due: number;
  readonly calls: number[] = [];
  andThen: (() => void) | undefined;

  constructor(due: number) {
    this.due = due;
  }

  dueMs(): number {
    return this.due;
  }

  onDeadline(nowMs: number): void {
    assert.equal(this.wheelBucket, -1, 'out of the wheel when called');
    assert.ok(this.due <= nowMs, `called ${this.due - nowMs} ms early`);
    this.calls.push(nowMs);
    this.andThen?.();
  }
}

/** Time passes as the reactor lets it: it sleeps as long as the wheel says, at most `limitMs`. */
function live(wheel: TimerWheel, fromMs: number, toMs: number, limitMs = 500): number {
  let now = fromMs;
  while (now < toMs) {
    now = Math.min(toMs, now + Math.max(wheel.waitMs(now, limitMs), 0.01));
    wheel.advance(now);
  }
  return now;
}

test('everything due in five minutes is called once, not early and less than two ticks late', () => {
  const start = 12_345.678;
  const wheel = new TimerWheel(start);
  const items = Array.from(
    { length: 5000 },
    (_, i) => new Item(start + ((i * 7919) % 300_000) + (i % 10) / 10),
  );
  for (const item of items) wheel.set(item);
  assert.equal(wheel.size, 5000);
  live(wheel, start, start + 300_200);
  for (const { due, calls } of items) {
    assert.equal(calls.length, 1);
    assert.ok(calls[0]! - due < 2 * tickMs, `due at ${due}, called ${calls[0]! - due} ms late`);
  }
  assert.equal(wheel.size, 0);
});

test('sleeping as waitMs says is never more than a tick late, wherever in a tick it starts', () => {
  for (let i = 0; i < 500; i++) {
    const start = 1000 + i * 0.77;
    const wheel = new TimerWheel(start);
    const item = new Item(start + 1 + ((i * 37) % 470));
    wheel.set(item);
    live(wheel, start, start + 1000);
    assert.equal(item.calls.length, 1);
    assert.ok(item.calls[0]! - item.due <= tickMs, `${item.calls[0]! - item.due} ms late`);
  }
});

test('a deadline exactly on a tick is called in that tick', () => {
  const wheel = new TimerWheel(0);
  const item = new Item(500);
  wheel.set(item);
  wheel.advance(499.9);
  assert.equal(item.calls.length, 0);
  wheel.advance(500);
  assert.deepEqual(item.calls, [500]);
});

test('a deadline that is past already is called in the next tick', () => {
  const wheel = new TimerWheel(1000);
  const item = new Item(10);
  wheel.set(item);
  assert.ok(wheel.waitMs(1000, 500) <= tickMs);
  wheel.advance(1050);
  assert.equal(item.calls.length, 1);
});

test('a deadline put off by its own store alone is called when it is due in the end', () => {
  const wheel = new TimerWheel(0);
  const item = new Item(1000);
  wheel.set(item);
  item.due = 700_000; // beyond a turn of the wheel
  live(wheel, 0, 1000);
  assert.deepEqual([item.calls.length, wheel.size], [0, 1]);
  live(wheel, 1000, 699_999);
  assert.equal(item.calls.length, 0);
  live(wheel, 699_999, 700_100);
  assert.equal(item.calls.length, 1);
});

test('an earlier deadline counts once it is set again', () => {
  const wheel = new TimerWheel(0);
  const item = new Item(100_000);
  wheel.set(item);
  item.due = 300;
  wheel.set(item);
  assert.equal(wheel.size, 1);
  live(wheel, 0, 400);
  assert.equal(item.calls.length, 1);
});

test('a deadline that never comes stays in the wheel and does no harm', () => {
  const wheel = new TimerWheel(0);
  const never = new Item(Infinity);
  wheel.set(never);
  live(wheel, 0, 1_000_000);
  assert.deepEqual([never.calls.length, wheel.size], [0, 1]);
});

test('after a sleep of hours everything due is called and the rest is kept', () => {
  const wheel = new TimerWheel(0);
  const items = Array.from({ length: 1000 }, (_, i) => new Item(i * 200));
  const later = new Item(7_300_000);
  for (const item of [...items, later]) wheel.set(item);
  wheel.advance(7_200_000);
  assert.ok(items.every((item) => item.calls.length === 1));
  assert.equal(later.calls.length, 0);
  live(wheel, 7_200_000, 7_300_100);
  assert.equal(later.calls.length, 1);
});

test('an item may delete, set and move any other while its own deadline is handled', () => {
  const wheel = new TimerWheel(0);
  const items = Array.from({ length: 10 }, () => new Item(100));
  const late = new Item(100);
  for (const item of items) wheel.set(item);
  // They lie in one bucket. Whoever is first removes half of them, and puts one off.
  let first = true;
  for (const item of items) {
    item.andThen = () => {
      if (!first) return;
      first = false;
      const others = items.filter((other) => other !== item);
      for (const other of others.slice(0, 5)) wheel.delete(other);
      others[5]!.due = 400;
      wheel.set(others[5]!);
      wheel.set(late);
    };
  }
  wheel.advance(100);
  assert.equal(items.filter((item) => item.calls.length === 1).length, 4);
  assert.equal(late.calls.length, 0, 'what is set while its tick is handled comes in the next');
  live(wheel, 100, 450);
  assert.equal(items.filter((item) => item.calls.length === 1).length, 5);
  assert.equal(late.calls.length, 1);
  assert.equal(wheel.size, 0);
});

test('deleting twice, or what was never set, changes nothing', () => {
  const wheel = new TimerWheel(0);
  const item = new Item(100);
  wheel.delete(item);
  wheel.set(item);
  wheel.delete(item);
  wheel.delete(item);
  assert.equal(wheel.size, 0);
  live(wheel, 0, 200);
  assert.equal(item.calls.length, 0);
});

test('an item that sets itself again on its deadline comes once a tick, not without end', () => {
  const wheel = new TimerWheel(0);
  const item = new Item(0);
  item.andThen = () => wheel.set(item);
  wheel.set(item);
  live(wheel, 0, 1000);
  assert.equal(item.calls.length, 20);
});

test('an empty wheel lets the reactor sleep to its limit', () => {
  const wheel = new TimerWheel(0);
  assert.equal(wheel.waitMs(0, 500), 500);
  wheel.set(new Item(100_000));
  assert.equal(wheel.waitMs(0, 500), 500);
});
