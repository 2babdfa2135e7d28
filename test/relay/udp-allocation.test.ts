import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bestOfThree, measureInChild } from '../helpers/heap-meter.js';

/**
 * Measured: 40 to 66 bytes, and 88 to 121 in the 2022 edition, on Node 20 and 24. All of it is numbers: an address beyond 2^31
 * is boxed on its way into a call, 16 bytes each (allocation.test.ts). One Buffer slice takes 100.
 */
const limits = { 'aes-256-gcm': 100, '2022-blake3-aes-256-gcm': 160 } as const;

const boundPort = 8053;
const rawPort = 53; // reply-sockets.ts: a router's service may want it

for (const [method, limit] of Object.entries(limits)) {
  for (const [flows, remotePort] of [
    [1, boundPort],
    [50, boundPort],
    [50, rawPort],
  ] as const) {
    test(`${method}, ${flows} flows, port ${remotePort}: a datagram takes at most ${limit} bytes of heap: no object`, (context) => {
      if (process.getuid!() !== 0) return context.skip('IP_TRANSPARENT needs root');
      const script = new URL('./udp-allocation-child.js', import.meta.url);
      const result = bestOfThree(
        () =>
          measureInChild<{ bytes: number; datagrams: number }>(
            script,
            method,
            String(flows),
            String(remotePort),
          ),
        ({ bytes }) => bytes,
        limit,
      );
      context.diagnostic(
        `${result.bytes.toFixed(1)} bytes a datagram: ${Math.round(result.bytes)} MB for a million; ${result.datagrams} datagrams`,
      );
      assert.ok(result.bytes <= limit, `${result.bytes} bytes a datagram`);
    });
  }
}
