import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { connectUdp, listenUdp, openReplySocket, openUdp } from '../../src/linux/datagram.js';
import { close, recv, sendto } from '../../src/linux/libc.js';
import { Block } from '../../src/linux/memory.js';
import { Endpoint, SockaddrBlock } from '../../src/linux/sockaddr.js';
import { localEndpoint } from '../../src/linux/socket.js';
import { lostDatagrams } from '../../src/linux/sockopt.js';

// What net.core.rmem_max (208 KiB by default) does not hold takes CAP_NET_ADMIN.
const skip = process.getuid!() === 0 ? false : 'larger buffers than net.core.rmem_max need root';
const loopback = Endpoint.parse('127.0.0.1', 0)!;
const plain = { mark: 0, tos: 0 };
const memory = Block.allocate(2000);
const open: number[] = [];

function keep(fd: number): number {
  open.push(fd);
  return fd;
}

afterEach(() => {
  for (const fd of open.splice(0)) close(fd);
});

/** Sends `count` datagrams of 1,400 bytes to where `fd` is bound. */
function burst(fd: number, from: number, count: number): void {
  const { port } = localEndpoint(fd)!;
  const name = new SockaddrBlock();
  const size = name.write(Endpoint.parse('127.0.0.1', port)!);
  for (let i = 0; i < count; i++) sendto(from, memory.address, 1400, 0, name.address, size);
}

function countWaiting(fd: number): number {
  let count = 0;
  while (recv(fd, memory.address, memory.size, 0) >= 0) count++;
  return count;
}

test(
  'a listener, a socket of a session and one of an outlet hold a burst of 2,000 datagrams',
  { skip },
  () => {
    const sender = keep(listenUdp(loopback));
    for (const [name, fd] of [
      ['listener', listenUdp(loopback)],
      ['session', connectUdp(localEndpoint(sender)!, plain)],
      ['outlet', openUdp(false, plain)],
    ] as const) {
      keep(fd);
      burst(fd, sender, 2000);
      assert.equal(countWaiting(fd), 2000, name);
      assert.equal(lostDatagrams(fd), 0, name);
    }
  },
);

test('what does not fit is counted by the socket', () => {
  const fd = keep(listenUdp(loopback));
  burst(fd, keep(listenUdp(loopback)), 10_000);
  const waiting = countWaiting(fd);
  assert.ok(waiting < 10_000);
  assert.equal(lostDatagrams(fd), 10_000 - waiting);
});

test('a socket that only answers keeps next to nothing of what strays to it', { skip }, () => {
  const fd = keep(openReplySocket(Endpoint.parse('127.0.0.1', 39_053)!, 0));
  burst(fd, keep(listenUdp(loopback)), 100);
  assert.ok(countWaiting(fd) <= 2);
});
