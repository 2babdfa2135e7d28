import assert from 'node:assert/strict';
import { test } from 'node:test';
import { measureInChild } from '../helpers/heap-meter.js';

/**
 * A batch is up to four records, one in the 2022 edition: about 30 calls of C. Measured are 384 to 400 bytes on Node 20 and 24, and all of it is numbers:
 * an address does not fit V8's small integers, so it is boxed, 16 bytes, on its way into a call. A Buffer slice takes 100 or
 * more.
 */
const limit = 430;

for (const name of ['aes-128-gcm', '2022-blake3-aes-128-gcm']) {
  test(`${name}: a pair takes at most ${limit} bytes of heap a batch: no object, no Buffer slice`, (context) => {
    const script = new URL('./allocation-child.js', import.meta.url);
    const result = measureInChild<{ bytesPerBatch: number; batches: number; moved: number }>(script, name);
    const { bytesPerBatch, batches, moved } = result;
    context.diagnostic(`${bytesPerBatch.toFixed(1)} bytes a batch: ${batches} batches, ${moved >> 20} MiB`);
    assert.ok(bytesPerBatch <= limit, `${bytesPerBatch} bytes a batch`);
  });
}
