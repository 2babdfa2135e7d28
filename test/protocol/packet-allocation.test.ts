import assert from 'node:assert/strict';
import { test } from 'node:test';
import { methods } from '../../src/crypto/methods.js';
import { bestOfThree, measureInChild } from '../helpers/heap-meter.js';

/**
 * Addresses beyond 2^31 are boxed on their way into a call, 16 bytes each: about 20 of them to seal a packet and to open it,
 * or 8 to 11 where no HKDF is needed. Room for four more, and for no object: a Buffer slice takes 100 bytes.
 */
const boxed = { aead: 24 * 16, '2022': 15 * 16 };

const cases = methods.flatMap(({ name, edition, hasIdentityHeaders }) => {
  const limit = boxed[edition];
  return hasIdentityHeaders
    ? [
        { name, limit, users: '' },
        { name, limit, users: 'users' },
      ]
    : [{ name, limit, users: '' }];
});

for (const { name, users, limit } of cases) {
  const what = users === '' ? name : `${name} with users`;
  test(`${what}: to seal a packet and to open it takes at most ${limit} bytes of heap`, (context) => {
    const child = new URL('./packet-allocation-child.js', import.meta.url);
    const bytes = bestOfThree(() => measureInChild<number>(child, name, users), Number, limit);
    context.diagnostic(`${bytes.toFixed(1)} bytes a packet`);
    assert.ok(bytes <= limit, `${bytes} bytes a packet`);
  });
}
