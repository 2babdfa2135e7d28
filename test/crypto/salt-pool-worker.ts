/** One of the threads of salt-pool.test.ts: waits at the gate, then asks the pool about every salt in turn. */
import { workerData } from 'node:worker_threads';
import { SaltPool, type SaltPoolMemory } from '../../src/crypto/salt-pool.js';

export interface PoolTask {
  memory: SaltPoolMemory;
  /** Two Int32: 0 closed, 1 open; how many stand before it. */
  gate: SharedArrayBuffer;
  salts: SharedArrayBuffer;
  /** A byte a salt: 1 if this thread was the one to be told that it is new. */
  accepted: SharedArrayBuffer;
}

const { memory, gate, salts, accepted } = workerData as PoolTask;
const { saltSize } = memory;
const pool = new SaltPool(memory);
const bytes = new Uint8Array(salts);
const flags = new Uint8Array(accepted);
const gateWords = new Int32Array(gate);
Atomics.add(gateWords, 1, 1);
Atomics.wait(gateWords, 0, 0);
for (let i = 0; i < flags.length; i += 1) {
  if (pool.accept(bytes.subarray(i * saltSize, (i + 1) * saltSize), 1000) === 'new') flags[i] = 1;
}
