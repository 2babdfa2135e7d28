import assert from 'node:assert/strict';
import { test } from 'node:test';
import { methods } from '../../src/crypto/methods.js';
import { bestOfThree, measureInChild } from '../helpers/heap-meter.js';

/**
 * An address beyond 2^31 is boxed on its way into a call, 16 bytes each: 9 to 12 of them a record, by where the C library
 * put the memory. Room for two more, and for no object: a Buffer slice takes 100.
 */
const numbersOnly = 14 * 16;

/** noble's HChaCha20 makes two arrays a call, and a record takes four calls. One of ours without took twice the time. */
const withArrays = 1500 + numbersOnly;

for (const { name, cipher } of methods) {
  const limit = cipher === 'xchacha20-poly1305' ? withArrays : numbersOnly;
  test(`${name}: to seal a record and to open it takes at most ${limit} bytes of heap`, (context) => {
    const child = new URL('./allocation-child.js', import.meta.url);
    const bytes = bestOfThree(() => measureInChild<number>(child, name), Number, limit);
    context.diagnostic(`${bytes.toFixed(1)} bytes a record`);
    assert.ok(bytes <= limit, `${bytes} bytes a record`);
  });
}
