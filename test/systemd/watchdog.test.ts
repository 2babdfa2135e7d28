import assert from 'node:assert/strict';
import { test } from 'node:test';
import { takeWatchdogPeriod, Watchdog } from '../../src/systemd/watchdog.js';

const periodMs = 8000;

function makeWatchdog(turns: number[]) {
  const seen = { fed: 0, told: [] as string[] };
  const watchdog = new Watchdog(periodMs, () => turns, {
    feed: () => seen.fed++,
    onHang: (worker, seconds) => seen.told.push(`worker ${worker} stands for ${seconds} s`),
    onRecovery: (worker) => seen.told.push(`worker ${worker} goes on`),
  });
  return { watchdog, seen };
}

test('it feeds at each look while every worker turns, also when the counter wraps', () => {
  const turns = [1, 2 ** 31 - 1];
  const { watchdog, seen } = makeWatchdog(turns);
  for (let look = 1; look <= 5; look++) {
    watchdog.look(look * 2000);
    assert.equal(seen.fed, look);
    turns[0]!++;
    turns[1] = look === 1 ? -(2 ** 31) : turns[1]! + 1;
  }
  assert.deepEqual(seen.told, []);
});

test('one worker of two that stands still stops the feeding, is told of once, and goes on again', () => {
  const turns = [1, 1];
  const { watchdog, seen } = makeWatchdog(turns);
  watchdog.look(0);
  assert.equal(seen.fed, 1);
  for (const nowMs of [2000, 4000, 6000, 8000]) {
    turns[0]!++;
    watchdog.look(nowMs);
    assert.equal(seen.fed, 1, `fed at ${nowMs} ms`);
  }
  assert.deepEqual(seen.told, ['worker 2 stands for 4 s']);
  turns[0]!++;
  turns[1]!++;
  watchdog.look(10_000);
  assert.equal(seen.fed, 2);
  assert.deepEqual(seen.told, ['worker 2 stands for 4 s', 'worker 2 goes on']);
});

test('WATCHDOG_USEC counts for the process that WATCHDOG_PID names, and leaves the environment', () => {
  const cases: [NodeJS.ProcessEnv, number | undefined][] = [
    [{ WATCHDOG_USEC: '30000000', WATCHDOG_PID: '7' }, 30_000],
    [{ WATCHDOG_USEC: '30000000' }, 30_000],
    [{ WATCHDOG_USEC: '30000000', WATCHDOG_PID: '8' }, undefined],
    [{ WATCHDOG_USEC: '0', WATCHDOG_PID: '7' }, undefined],
    [{ WATCHDOG_USEC: 'soon' }, undefined],
    [{}, undefined],
  ];
  for (const [env, expected] of cases) {
    assert.equal(takeWatchdogPeriod(env, 7), expected);
    assert.deepEqual(env, {});
  }
});
