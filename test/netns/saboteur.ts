// Preloaded into our programs by endings.test.ts (node --import): breaks one of their two planes from within as soon as the
// file that SABOTAGE names says how. So the programs need no hook for it.
import { readFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import { TimerWheel } from '../../src/engine/timers.js';

export type Sabotage = 'main throws' | 'main rejects' | 'main exits' | 'worker throws';

const pollMs = 10;
const file = process.env['SABOTAGE'];

if (file !== undefined && isMainThread) {
  setInterval(() => breakMain(wanted(file)), pollMs).unref();
} else if (file !== undefined) {
  const { advance } = TimerWheel.prototype;
  let lookAtMs = 0;
  TimerWheel.prototype.advance = function (nowMs: number): void {
    advance.call(this, nowMs);
    if (nowMs < lookAtMs) return;
    lookAtMs = nowMs + pollMs;
    if (wanted(file) === 'worker throws') throw new Error('sabotage of the data plane');
  };
}

function breakMain(how: string): void {
  if (how === 'main throws') throw new Error('sabotage of the control plane');
  if (how === 'main rejects') void Promise.reject(new Error('sabotage of a promise'));
  if (how === 'main exits') process.exit(3);
}

function wanted(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
