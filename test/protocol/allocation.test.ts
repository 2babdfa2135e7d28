import assert from 'node:assert/strict';
import { test } from 'node:test';
import { methods } from '../../src/crypto/methods.js';
import { measureInChild } from '../helpers/heap-meter.js';

/** Measured: 0 bytes on Node 20 and 24. Room for one boxed number, which is 16, and for no object. */
const numbersOnly = 20;

/** noble's HChaCha20 makes two arrays a call, and a record takes four calls. One of ours without took twice the time. */
const withArrays = 1600;

for (const { name, cipher } of methods) {
  const limit = cipher === 'xchacha20-poly1305' ? withArrays : numbersOnly;
  test(`${name}: to seal a record and to open it takes at most ${limit} bytes of heap`, (context) => {
    const bytes = measureInChild<number>(new URL('./allocation-child.js', import.meta.url), name);
    context.diagnostic(`${bytes.toFixed(1)} bytes a record`);
    assert.ok(bytes <= limit, `${bytes} bytes a record`);
  });
}
