import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Reactor } from '../../src/engine/reactor.js';
import { LogSummary } from '../../src/relay/log-summary.js';
import { WorkerLog } from '../../src/relay/worker-log.js';

test('of a storm of lines of one kind one is shown, and how many were left out when it is over', () => {
  const lines: string[] = [];
  const log = new WorkerLog(false, (_, text) => lines.push(text));
  const reactor = new Reactor();
  new LogSummary(reactor, log).start();
  for (let i = 0; i < 1000; i++) log.limited('forged', `forged ${i}`);
  log.limited('other', 'other');
  assert.deepEqual(lines, ['forged 0', 'other']);
  reactor.timers.advance(performance.now() + 5000);
  assert.equal(lines.length, 2, 'the storm may go on');
  reactor.timers.advance(performance.now() + 15_000);
  reactor.timers.advance(performance.now() + 25_000);
  assert.deepEqual(lines, ['forged 0', 'other', '999 more lines like this one: forged 0']);
});
