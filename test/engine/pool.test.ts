import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { BufferPool } from '../../src/engine/pool.js';
import type { Block } from '../../src/linux/memory.js';
import { checked } from '../../src/linux/memory.js';

const blockSize = 17 * 4096;

function leaseAll(pool: BufferPool): Block[] {
  const blocks: Block[] = [];
  for (let block = pool.lease(); block !== undefined; block = pool.lease()) blocks.push(block);
  return blocks;
}

/** VmRSS of this process. */
function residentBytes(): number {
  const [, kib] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))!;
  return Number(kib) * 1024;
}

test('no two leases overlap, and there are as many as the capacity', () => {
  const pool = new BufferPool(blockSize, 50);
  const blocks = leaseAll(pool);
  assert.equal(blocks.length, 50);
  assert.equal(pool.leased, 50);
  const addresses = blocks.map((block) => block.address).toSorted((a, b) => a - b);
  for (let i = 1; i < addresses.length; i++) assert.ok(addresses[i]! - addresses[i - 1]! >= blockSize);
  blocks.forEach((block, i) => block.bytes.fill(i));
  blocks.forEach((block, i) => assert.ok(block.bytes.every((byte) => byte === i)));
  assert.ok(
    blocks.every((block) => block.address % 4096 === 0),
    'blocks of whole pages begin at a page',
  );
});

test('the block that came back last, which is still in the cache, goes out first', () => {
  const pool = new BufferPool(4096, 4);
  const [a, b, c] = leaseAll(pool) as [Block, Block, Block];
  pool.release(a);
  pool.release(c);
  pool.release(b);
  assert.deepEqual([pool.lease(), pool.lease(), pool.lease(), pool.lease()], [b, c, a, undefined]);
});

test('who waits is told in order, one for each block, while others are out', () => {
  const pool = new BufferPool(4096, 6);
  const blocks = leaseAll(pool);
  const told: number[] = [];
  for (let i = 0; i < 4; i++) pool.whenFree(() => told.push(i));
  pool.release(blocks.pop()!);
  assert.deepEqual(told, [], 'one free block is not enough for who needs two');
  pool.release(blocks.pop()!);
  assert.deepEqual(told, [0]);
  pool.release(blocks.pop()!);
  assert.deepEqual(told, [0, 1]);
  pool.release(blocks.pop()!);
  pool.release(blocks.pop()!);
  assert.deepEqual(told, [0, 1, 2, 3]);
});

test('when the last block comes back everybody who waits is told, once', () => {
  const pool = new BufferPool(4096, 2);
  const blocks = leaseAll(pool);
  let told = 0;
  for (let i = 0; i < 5; i++) pool.whenFree(() => told++);
  pool.release(blocks.pop()!);
  pool.release(blocks.pop()!);
  assert.equal(told, 5);
  pool.release(pool.lease()!);
  assert.equal(told, 5);
});

test('a wake that was spent on somebody who has gone is made good by the next trim', () => {
  const pool = new BufferPool(4096, 4);
  const blocks = leaseAll(pool);
  let told = 0;
  pool.whenFree(() => {}); // gone
  pool.whenFree(() => told++);
  pool.release(blocks.pop()!);
  pool.release(blocks.pop()!);
  assert.equal(told, 0);
  pool.trim();
  assert.equal(told, 1);
});

test('trim gives unused memory back to the kernel, and later leases work', () => {
  const pool = new BufferPool(blockSize, 800);
  const before = residentBytes();
  const blocks = leaseAll(pool);
  for (const block of blocks) block.bytes.fill(0xaa);
  const full = residentBytes();
  assert.ok(full - before > 40e6, `touching 54 MB took ${(full - before) / 1e6} MB`);
  for (const block of blocks) pool.release(block);
  pool.trim();
  assert.ok(residentBytes() > full - 10e6, 'what was in use since the last trim stays');
  pool.trim();
  const trimmed = residentBytes();
  assert.ok(trimmed < full - 40e6, `trimming freed ${(full - trimmed) / 1e6} MB`);
  const again = leaseAll(pool);
  assert.equal(new Set(again.map((block) => block.address)).size, 800);
  again.forEach((block, i) => block.bytes.fill(i));
  again.forEach((block, i) => assert.equal(block.bytes[blockSize - 1], i & 0xff));
});

test('trim never takes the memory of a block that is out', () => {
  const pool = new BufferPool(blockSize, 40);
  const blocks = leaseAll(pool);
  for (const block of blocks) pool.release(block);
  pool.trim();
  const out = Array.from({ length: 20 }, () => pool.lease()!);
  for (const block of out) block.bytes.fill(7);
  for (let i = 0; i < 3; i++) pool.trim();
  assert.ok(out.every((block) => block.bytes.every((byte) => byte === 7)));
  // Back, and out again in another order, with trims between.
  for (const block of out.splice(0, 10)) pool.release(block);
  pool.trim();
  const more = leaseAll(pool);
  for (const block of more) block.bytes.fill(9);
  pool.trim();
  pool.trim();
  assert.ok(out.every((block) => block.bytes.every((byte) => byte === 7)));
  assert.ok(more.every((block) => block.bytes.every((byte) => byte === 9)));
});

test('an arena costs no memory before it is used', () => {
  const before = residentBytes();
  const pool = new BufferPool(blockSize, 8192);
  const cost = residentBytes() - before;
  assert.ok(cost < 20e6, `a pool of 557 MB took ${cost / 1e6} MB at once`);
  assert.equal(pool.lease()!.size, blockSize);
});

test(
  'in checked mode a block that is free, or from elsewhere, is refused',
  { skip: !checked && 'needs SS_REDIR_CHECKED=1' },
  () => {
    const pool = new BufferPool(4096, 2);
    const block = pool.lease()!;
    pool.release(block);
    assert.throws(() => pool.release(block), /^RangeError: a block came back that is free already/);
    const other = new BufferPool(2048, 2).lease()!;
    assert.throws(
      () => pool.release(other),
      /^RangeError: a block of 2048 bytes came back to a pool that it is not from/,
    );
  },
);
