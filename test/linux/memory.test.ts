import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { addressOf } from '../../src/linux/ffi.js';
import { recv, send } from '../../src/linux/libc.js';
import { Block, checked } from '../../src/linux/memory.js';
import { Scatter } from '../../src/linux/scatter.js';
import { readv } from '../../src/linux/libc.js';
import { closeReset } from '../../src/linux/socket.js';
import { patterned, socketPair } from '../helpers/relay-rig.js';

const memory = new URL('../../src/linux/memory.js', import.meta.url).href;

test('C reads and writes where `at` says', () => {
  const { accepted, connected } = socketPair();
  const block = Block.allocate(64);
  block.bytes.write('....hello....');
  assert.equal(send(connected, block.at(4, 5), 5, 0), 5);
  assert.equal(recv(accepted, block.at(32, 5), 5, 0), 5);
  assert.equal(block.bytes.toString('latin1', 31, 38), '\0hello\0');
  closeReset(accepted);
  closeReset(connected);
});

test(
  'checked mode refuses every address outside a block',
  { skip: !checked && 'needs SS_REDIR_CHECKED=1' },
  () => {
    const block = Block.allocate(100);
    assert.equal(block.at(0, 100), block.address);
    assert.equal(block.at(100, 0), block.address + 100);
    for (const [offset, length] of [
      [0, 101],
      [100, 1],
      [101, 0],
      [-1, 1],
      [0, -1],
      [1.5, 1],
      [0, 0.5],
      [NaN, 1],
      [0, NaN],
      [0, Infinity],
    ] as const) {
      assert.throws(() => block.at(offset, length), RangeError, `${offset}, ${length}`);
    }
  },
);

test('checked mode is off unless SS_REDIR_CHECKED is 1', () => {
  const script = `const { Block, checked } = await import(${JSON.stringify(memory)});
    const block = Block.allocate(10); console.log(checked, block.at(99, 1) - block.address);`;
  for (const value of [undefined, '', '0', 'true']) {
    const env = { ...process.env };
    delete env['SS_REDIR_CHECKED'];
    if (value !== undefined) env['SS_REDIR_CHECKED'] = value;
    const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      env,
      encoding: 'utf8',
    });
    assert.equal(stdout, 'false 99\n', `SS_REDIR_CHECKED=${value}`);
  }
});

test('blocks of every size stay where they are while garbage is collected', () => {
  const script = `const { Block } = await import(${JSON.stringify(memory)});
    const { addressOf } = await import(${JSON.stringify(new URL('../../src/linux/ffi.js', import.meta.url).href)});
    const blocks = [1, 4, 8, 12, 16, 62, 64, 65, 4096, 70000].map((size) => Block.allocate(size));
    for (let i = 0; i < 5; i++) { for (let j = 0; j < 1e5; j++) ({ j }); gc(); gc({ type: 'minor' }); }
    console.log(blocks.every((block) => addressOf(block.bytes) === block.address));`;
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['--expose-gc', '--input-type=module', '-e', script],
    { encoding: 'utf8' },
  );
  assert.equal(stdout, 'true\n', stderr);
});

test('a new block is zero', () => {
  assert.ok(Block.allocate(5000).bytes.every((byte) => byte === 0));
});

test('a block over a part of a buffer has the address of that part', () => {
  const buffer = Buffer.allocUnsafeSlow(100);
  assert.equal(new Block(buffer.subarray(10, 20)).address, addressOf(buffer) + 10);
});

test('readv through a scatter fills the places of a block in order and nothing between them', () => {
  const { accepted, connected } = socketPair();
  const block = Block.allocate(64 + 4 * 150);
  const bytes = patterned(330, 1);
  const outgoing = Block.allocate(400);
  outgoing.bytes.set(bytes);
  send(connected, outgoing.at(0, 330), 330, 0);
  const scatter = new Scatter(4);
  assert.equal(readv(accepted, scatter.point(block, 64, 100, 150), scatter.count), 330);
  const places = [0, 1, 2, 3].map((i) => block.bytes.subarray(64 + i * 150, 64 + i * 150 + 100));
  assert.ok(Buffer.concat(places).subarray(0, 330).equals(bytes));
  block.bytes.subarray(64, 64 + 600).forEach((byte, i) => {
    if (i % 150 >= 100) assert.equal(byte, 0, `between the places, at ${i}`);
  });
  assert.ok(block.bytes.subarray(0, 64).every((byte) => byte === 0));
  closeReset(accepted);
  closeReset(connected);
});

test('a scatter beyond its block is refused', { skip: !checked && 'needs SS_REDIR_CHECKED=1' }, () => {
  assert.throws(() => new Scatter(4).point(Block.allocate(400), 1, 100, 100), RangeError);
});

test('a scatter holds addresses above 4 GiB whole', () => {
  const scatter = new Scatter(1);
  const address = 0x7f12_3456_789a;
  scatter.point(new Block(Buffer.allocUnsafeSlow(8), address), 0, 8, 8);
  const words = (scatter as unknown as { words: Uint32Array }).words;
  if (process.arch === 'arm') return;
  assert.deepEqual([...words], [0x3456_789a, 0x7f12, 8, 0]);
});
