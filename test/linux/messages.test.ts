import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { connectUdp, listenUdp, openUdp } from '../../src/linux/datagram.js';
import { ECONNREFUSED, EMSGSIZE } from '../../src/linux/errno.js';
import { close } from '../../src/linux/libc.js';
import { Block } from '../../src/linux/memory.js';
import { ReceiveBatch, SendBatch, SendControl } from '../../src/linux/messages.js';
import { Endpoint, SockaddrBlock } from '../../src/linux/sockaddr.js';
import { localEndpoint } from '../../src/linux/socket.js';
import {
  IP_ORIGDSTADDR,
  IP_PKTINFO,
  IPV6_ORIGDSTADDR,
  IPV6_PKTINFO,
  SOL_IP,
  SOL_IPV6,
} from '../../src/linux/sockopt.js';

const slotSize = 70_000;
const slots = 64;
const memory = Block.allocate(slots * slotSize);
const plain = { mark: 0, tos: 0 };
const open: number[] = [];

function keep(fd: number): number {
  open.push(fd);
  return fd;
}

afterEach(() => {
  for (const fd of open.splice(0)) close(fd);
});

function listen(host: string, options = {}): { fd: number; endpoint: Endpoint } {
  const fd = keep(listenUdp(Endpoint.parse(host, 0)!, options));
  return { fd, endpoint: localEndpoint(fd)! };
}

/** What `batch` gets in one call: payloads as text. */
function receive(batch: ReceiveBatch, fd: number): string[] {
  const count = batch.receive(fd, batch.slots);
  return Array.from({ length: Math.max(0, count) }, (_, i) =>
    memory.bytes.toString(
      'latin1',
      i * slotSize + batch.offset,
      i * slotSize + batch.offset + batch.lengthOf(i),
    ),
  );
}

/** Queues texts, each in memory of its own. */
function add(batch: SendBatch, texts: readonly string[], name = 0, nameSize = 0): Block[] {
  return texts.map((text) => {
    const block = Block.allocate(Math.max(1, text.length));
    block.bytes.write(text, 'latin1');
    batch.add(block.address, text.length, name, nameSize);
    return block;
  });
}

test('a batch comes as it was sent: order, sizes, content, none cut', () => {
  const { fd, endpoint } = listen('127.0.0.1');
  const sender = keep(connectUdp(endpoint, plain));
  const texts = [
    'first',
    '',
    'x'.repeat(65_507),
    ...Array.from({ length: 40 }, (_, i) => `run ${100 + i}`),
    'end',
  ];
  const sends = new SendBatch(slots);
  const blocks = add(sends, texts);
  assert.equal(sends.send(sender), 0);
  assert.equal(sends.size, 0);
  const batch = new ReceiveBatch(memory, slotSize, 100, 0, { names: true, control: false });
  assert.deepEqual(receive(batch, fd), texts);
  assert.equal(batch.isTruncated(2), false);
  assert.ok(blocks.length > 0);
});

test('runs of one size, with a smaller one at their end, and runs longer than a segmented message holds', () => {
  const { fd, endpoint } = listen('127.0.0.1');
  const sender = keep(connectUdp(endpoint, plain));
  const sends = new SendBatch(slots);
  for (const sizes of [
    [3, 3, 3, 2, 3, 3],
    Array(64).fill(1472),
    Array(64).fill(1400),
    [2, 3, 3],
    [5, 5, 0, 5],
  ]) {
    const texts = (sizes as number[]).map((size, i) => String.fromCharCode(65 + (i % 26)).repeat(size));
    const blocks = add(sends, texts);
    assert.equal(sends.send(sender), 0);
    const batch = new ReceiveBatch(memory, slotSize, 0, 0, { names: false, control: false });
    const got: string[] = [];
    while (got.length < texts.length) {
      const more = receive(batch, fd);
      assert.ok(more.length > 0, `${got.length} of ${texts.length}`);
      got.push(...more);
    }
    assert.deepEqual(got, texts);
    assert.ok(blocks.length > 0);
  }
});

test('several destinations in one batch: each gets its own', () => {
  const one = listen('127.0.0.1');
  const two = listen('127.0.0.1');
  const sender = keep(openUdp(false, plain));
  const [nameOne, nameTwo] = [one, two].map(({ endpoint }) => {
    const block = new SockaddrBlock();
    return { block, size: block.write(endpoint) };
  });
  const sends = new SendBatch(slots);
  const blocks = [
    add(sends, ['a1', 'a2'], nameOne!.block.address, nameOne!.size),
    add(sends, ['b1', 'b2', 'b3'], nameTwo!.block.address, nameTwo!.size),
    add(sends, ['a3'], nameOne!.block.address, nameOne!.size),
  ];
  assert.equal(sends.send(sender), 0);
  const batch = new ReceiveBatch(memory, slotSize, 0, 0, { names: false, control: false });
  assert.deepEqual(receive(batch, one.fd), ['a1', 'a2', 'a3']);
  assert.deepEqual(receive(batch, two.fd), ['b1', 'b2', 'b3']);
  assert.equal(blocks.length, 3);
});

test('one that is too large is lost alone', () => {
  const { fd, endpoint } = listen('127.0.0.1');
  const sender = keep(connectUdp(endpoint, plain));
  const sends = new SendBatch(slots);
  const blocks = add(sends, ['before', 'x'.repeat(65_508), 'behind']);
  assert.equal(sends.send(sender), 1);
  assert.equal(sends.failure, EMSGSIZE);
  const batch = new ReceiveBatch(memory, slotSize, 0, 0, { names: false, control: false });
  assert.deepEqual(receive(batch, fd), ['before', 'behind']);
  assert.ok(blocks.length > 0);
});

test('an ICMP error of before is not taken for a failure of the datagram that met it', () => {
  const { fd, endpoint } = listen('127.0.0.1');
  const sender = keep(connectUdp(endpoint, plain));
  close(open.splice(open.indexOf(fd), 1)[0]!);
  const sends = new SendBatch(slots);
  for (const texts of [['refused'], ['again'], ['run', 'run', 'run'], ['a', 'bb', 'ccc']]) {
    const blocks = add(sends, texts);
    assert.equal(sends.send(sender), 0);
    assert.ok(blocks.length > 0);
  }
  const batch = new ReceiveBatch(memory, slotSize, 0, 0, { names: false, control: false });
  assert.equal(batch.receive(sender, slots), -ECONNREFUSED);
});

test('what is larger than the slot is told as cut', () => {
  const { fd, endpoint } = listen('127.0.0.1');
  const sender = keep(connectUdp(endpoint, plain));
  const sends = new SendBatch(slots);
  const blocks = add(sends, ['12345678']);
  sends.send(sender);
  const batch = new ReceiveBatch(memory, slotSize, slotSize - 20, 16, { names: false, control: false });
  assert.equal(batch.receive(fd, 1), 1);
  assert.equal(batch.isTruncated(0), true);
  assert.equal(batch.lengthOf(0), 4);
  assert.ok(blocks.length > 0);
});

test('one at a time is the same as several: length, content, and whether it was cut', () => {
  const { fd, endpoint } = listen('127.0.0.1');
  const sender = keep(connectUdp(endpoint, plain));
  const sends = new SendBatch(slots);
  const texts = ['first', '', 'x'.repeat(1000)];
  const blocks = add(sends, texts);
  sends.send(sender);
  const batch = new ReceiveBatch(memory, slotSize, slotSize - 600, 16, { names: false, control: false });
  for (const text of texts) {
    assert.equal(batch.receive(fd, 1), 1);
    const at = slotSize - 600;
    assert.equal(memory.bytes.toString('latin1', at, at + batch.lengthOf(0)), text.slice(0, 584));
    assert.equal(batch.isTruncated(0), text.length > 584);
  }
  assert.ok(batch.receive(fd, 1) < 0);
  assert.ok(blocks.length > 0);
});

test('the original destination comes for IPv4, IPv6, and IPv4 on `::`', () => {
  const cases = [
    ['127.0.0.1', '127.0.0.1', SOL_IP, IP_ORIGDSTADDR],
    ['::', '::1', SOL_IPV6, IPV6_ORIGDSTADDR],
    ['::', '127.0.0.9', SOL_IP, IP_ORIGDSTADDR],
  ] as const;
  for (const [host, to, level, type] of cases) {
    const { fd, endpoint } = listen(host, { transparent: true });
    const sender = keep(connectUdp(Endpoint.parse(to, endpoint.port)!, plain));
    const sends = new SendBatch(slots);
    const blocks = add(sends, ['one', 'two']);
    sends.send(sender);
    const batch = new ReceiveBatch(memory, slotSize, 0, 0, { names: true, control: true });
    for (let round = 0; round < 2; round++) {
      if (round > 0) sends.add(blocks[0]!.address, 3, 0, 0);
      if (round > 0) sends.send(sender);
      const count = batch.receive(fd, slots);
      assert.equal(count, 2 - round);
      for (let i = 0; i < count; i++) {
        assert.ok(batch.hasControl(i, level, type), `${host} <- ${to}`);
        const at = batch.controlData(i);
        assert.equal(batch.controlBytes.readUInt16BE(at + 2), endpoint.port);
        const bytes = Endpoint.parse(to, 1)!.address;
        const from = at + (bytes.length === 4 ? 4 : 8);
        assert.deepEqual(Uint8Array.from(batch.controlBytes.subarray(from, from + bytes.length)), bytes);
      }
    }
  }
});

test('an answer leaves from the address that was asked, alone and in a run', () => {
  const cases = [
    ['0.0.0.0', '127.0.0.7', false],
    ['::', '127.0.0.7', true],
    ['::', '::1', true],
  ] as const;
  for (const [host, to, ipv6] of cases) {
    const { fd, endpoint } = listen(host, { packetInfo: true });
    const client = keep(connectUdp(Endpoint.parse(to, endpoint.port)!, plain)); // hears this address alone
    const sends = new SendBatch(slots);
    const question = add(sends, ['?']);
    sends.send(client);
    const batch = new ReceiveBatch(memory, slotSize, 0, 0, { names: true, control: true });
    assert.equal(batch.receive(fd, slots), 1);
    const level = ipv6 ? SOL_IPV6 : SOL_IP;
    assert.ok(batch.hasControl(0, level, ipv6 ? IPV6_PKTINFO : IP_PKTINFO));
    const control = new SendControl(ipv6 ? 'ipv6' : 'ipv4');
    control.setSource(ipv6, batch.controlBytes, batch.controlData(0));
    const nameSize = ipv6 ? 28 : 16;
    const name = Block.allocate(nameSize);
    batch.names.bytes.copy(name.bytes, 0, 0, nameSize);
    for (const texts of [['alone'], ['run1', 'run2', 'run3'], ['a', 'bb']]) {
      const blocks = add(sends, texts, name.address, nameSize);
      assert.equal(sends.send(fd, control), 0);
      const answers = new ReceiveBatch(memory, slotSize, 0, 0, { names: false, control: false });
      assert.deepEqual(receive(answers, client), texts, `${host} <- ${to}`);
      assert.ok(blocks.length + question.length > 0);
    }
  }
});
