/** One of the threads of replay.test.ts: waits at the gate, then asks the filter about every salt in turn. */
import { workerData } from 'node:worker_threads';
import { SaltFilter, type SaltMemory } from '../../src/crypto/replay.js';

const saltSize = 16;

export interface SaltTask {
  memory: SaltMemory;
  /** Two Int32: 0 closed, 1 open; how many stand before it. */
  gate: SharedArrayBuffer;
  salts: SharedArrayBuffer;
  /** A byte a salt: 1 if this thread was the one to be told that it is new. */
  accepted: SharedArrayBuffer;
}

const { memory, gate, salts, accepted } = workerData as SaltTask;
const filter = new SaltFilter(memory);
const bytes = new Uint8Array(salts);
const flags = new Uint8Array(accepted);
const gateWords = new Int32Array(gate);
Atomics.add(gateWords, 1, 1);
Atomics.wait(gateWords, 0, 0);
for (let i = 0; i < flags.length; i += 1) {
  if (filter.accept(bytes.subarray(i * saltSize, (i + 1) * saltSize))) flags[i] = 1;
}
