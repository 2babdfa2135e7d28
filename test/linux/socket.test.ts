import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import {
  clearWakeup,
  createWakeup,
  Epoll,
  EPOLL_CTL_ADD,
  EPOLLIN,
  raiseWakeup,
} from '../../src/linux/epoll.js';
import { errno } from '../../src/linux/ffi.js';
import { close, getsockopt, recv } from '../../src/linux/libc.js';
import { Block } from '../../src/linux/memory.js';
import { descriptorLimit, openDescriptors, setDescriptorLimit } from '../../src/linux/rlimit.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import * as sockets from '../../src/linux/socket.js';
import * as sockopt from '../../src/linux/sockopt.js';
import { acceptSoon, plainConnect, socketPair } from '../helpers/relay-rig.js';

/** A module of linux/ as a script names it. */
const url = (file: string): string =>
  JSON.stringify(new URL(`../../src/linux/${file}`, import.meta.url).href);

const isRoot = process.getuid!() === 0;
const value = Block.allocate(32);

/** The option as the kernel has it. */
function readOption(fd: number, level: number, option: number, size = 4): number[] {
  value.bytes.writeUInt32LE(size, 24);
  assert.equal(getsockopt(fd, level, option, value.at(0, size), value.at(24, 4)), 0, `errno ${errno()}`);
  return Array.from({ length: size / 4 }, (_, i) => value.bytes.readInt32LE(i * 4));
}

// level, option, what is set, what is read back: include/uapi, the same on every Linux that Node runs on
const settings: [string, number, number, (fd: number) => void, number, boolean?][] = [
  ['SO_REUSEADDR', 1, 2, (fd) => sockopt.setReuseAddress(fd), 1],
  ['SO_REUSEPORT', 1, 15, (fd) => sockopt.setReusePort(fd), 1],
  ['SO_SNDBUF', 1, 7, (fd) => sockopt.setSendBuffer(fd, 20_000), 40_000],
  ['SO_RCVBUF', 1, 8, (fd) => sockopt.setReceiveBuffer(fd, 30_000), 60_000],
  ['SO_MARK', 1, 36, (fd) => sockopt.setMark(fd, 0x0200_0000), 0x0200_0000, true],
  ['SO_MARK with its highest bit', 1, 36, (fd) => sockopt.setMark(fd, 0x8000_0001), 0x8000_0001 | 0, true],
  ['SO_KEEPALIVE', 1, 9, (fd) => sockopt.setKeepAlive(fd), 1],
  ['TCP_KEEPIDLE', 6, 4, (fd) => sockopt.setKeepAlive(fd), 40],
  ['TCP_KEEPINTVL', 6, 5, (fd) => sockopt.setKeepAlive(fd), 20],
  ['TCP_KEEPCNT', 6, 6, (fd) => sockopt.setKeepAlive(fd), 5],
  ['TCP_NODELAY off', 6, 1, (fd) => sockopt.setNoDelay(fd, false), 0],
  ['TCP_NODELAY on', 6, 1, (fd) => sockopt.setNoDelay(fd, true), 1],
  ['IP_TOS', 0, 1, (fd) => sockopt.setTrafficClass(fd, 0xb8, false), 0xb8],
  ['IP_FREEBIND', 0, 15, (fd) => sockopt.setFreeBind(fd), 1],
  ['IP_TRANSPARENT', 0, 19, (fd) => sockopt.setTransparent(fd, false), 1, true],
];

for (const [name, level, option, set, expected, root] of settings) {
  test(`${name} is in the kernel as it was set`, { skip: root && !isRoot && 'needs root' }, () => {
    const { accepted, connected } = socketPair();
    set(connected);
    assert.deepEqual(readOption(connected, level, option), [expected]);
    sockets.closeReset(accepted);
    sockets.closeReset(connected);
  });
}

test('IPv6 options are in the kernel as they were set', { skip: !isRoot && 'needs root' }, () => {
  const { accepted, connected } = socketPair({}, '::1');
  sockopt.setTransparent(connected, true);
  sockopt.setTrafficClass(connected, 0xb8, true);
  assert.deepEqual(readOption(connected, 41, 75), [1]);
  assert.deepEqual(readOption(connected, 41, 67), [0xb8]);
  assert.deepEqual(readOption(connected, 0, 19), [1], 'IP_TRANSPARENT is the same bit');
  sockets.closeReset(accepted);
  sockets.closeReset(connected);
});

for (const host of ['127.0.0.1', '::1']) {
  test(
    `what an accepted socket of ${host} inherits: reset on close, no delay, keep-alive, mark, buffers`,
    { skip: !isRoot && 'needs root' },
    () => {
      const listener = sockets.listenTcp(Endpoint.parse(host, 0)!, {
        mark: 77,
        sendBuffer: 20_000,
        receiveBuffer: 30_000,
      });
      const connected = sockets.connectTcp(sockets.localEndpoint(listener)!, plainConnect);
      const fd = acceptSoon(listener);
      assert.ok(sockets.acceptedPeer().equals(sockets.localEndpoint(connected)!));
      assert.ok(sockets.remoteEndpoint(fd)!.equals(sockets.localEndpoint(connected)!));
      assert.deepEqual(readOption(fd, 1, 13, 8), [1, 0], 'SO_LINGER');
      assert.deepEqual(readOption(fd, 6, 1), [1], 'TCP_NODELAY');
      assert.deepEqual(
        [readOption(fd, 1, 9), readOption(fd, 6, 4), readOption(fd, 6, 5), readOption(fd, 6, 6)],
        [[1], [40], [20], [5]],
      );
      assert.deepEqual(readOption(fd, 1, 36), [77], 'SO_MARK');
      assert.deepEqual([readOption(fd, 1, 7), readOption(fd, 1, 8)], [[40_000], [60_000]]);
      for (const open of [fd, connected, listener]) sockets.closeReset(open);
    },
  );
}

test('closeReset gives the peer RST, closeOrderly FIN', () => {
  for (const [end, expected] of [
    [sockets.closeReset, 104],
    [sockets.closeOrderly, 0],
  ] as const) {
    const { accepted, connected } = socketPair();
    end(accepted);
    const count = recv(connected, value.at(0, 8), 8, 0);
    assert.equal(count < 0 ? errno() : count, expected);
    sockets.closeReset(connected);
  }
});

test('a listener on :: serves IPv4, and its client is IPv4', () => {
  const listener = sockets.listenTcp(Endpoint.parse('::', 0)!);
  const { port } = sockets.localEndpoint(listener)!;
  const connected = sockets.connectTcp(Endpoint.parse('127.0.0.1', port)!, plainConnect);
  const fd = acceptSoon(listener);
  assert.ok(sockets.acceptedPeer().isIpv4);
  assert.equal(String(sockets.localEndpoint(fd)), `127.0.0.1:${port}`);
  for (const open of [fd, connected, listener]) sockets.closeReset(open);
});

test('what cannot be listened on is named with its address, and no descriptor stays', () => {
  const listener = sockets.listenTcp(Endpoint.parse('127.0.0.1', 0)!);
  const endpoint = sockets.localEndpoint(listener)!;
  const before = openDescriptors();
  assert.throws(
    () => sockets.listenTcp(endpoint),
    /^SyscallError: (bind|listen)\(127\.0\.0\.1:\d+\): EADDRINUSE$/,
  );
  assert.throws(
    () => sockets.listenTcp(Endpoint.parse('192.0.2.1', 80)!),
    /^SyscallError: bind\(192\.0\.2\.1:80\): EADDRNOTAVAIL$/,
  );
  assert.throws(
    () => sockets.connectTcp(endpoint, { ...plainConnect, interface: 'nosuch0' }),
    /^SyscallError: setsockopt\(SOL_SOCKET, SO_BINDTODEVICE "nosuch0"\): ENODEV$/,
  );
  assert.throws(
    () => sockets.connectTcp(endpoint, { ...plainConnect, bind4: Endpoint.parse('192.0.2.1', 0)! }),
    /^SyscallError: bind\(192\.0\.2\.1:0\): EADDRNOTAVAIL$/,
  );
  assert.equal(openDescriptors(), before);
  sockets.closeReset(listener);
});

test(
  'without privileges the message names level and option',
  { skip: !isRoot && 'needs root, to drop it' },
  () => {
    const script = `const s = await import(${url('socket.js')}); const { Endpoint } = await import(${url('sockaddr.js')});
    const any = (host) => Endpoint.parse(host, 0);
    for (const f of [() => s.listenTcp(any('127.0.0.1'), { transparent: true }), () => s.listenTcp(any('::1'), { transparent: true }), () => s.listenTcp(any('127.0.0.1'), { mark: 5 })])
      try { f(); console.log('no error'); } catch (e) { console.log(e.message); }`;
    const drop = [
      '--reuid=65534',
      '--regid=65534',
      '--clear-groups',
      '--bounding-set=-all',
      '--inh-caps=-all',
    ];
    const { stdout, stderr } = spawnSync(
      'setpriv',
      [...drop, process.execPath, '--input-type=module', '-e', script],
      { encoding: 'utf8' },
    );
    assert.deepEqual(
      stdout.split('\n').slice(0, 3),
      [
        'setsockopt(SOL_IP, IP_TRANSPARENT): EPERM',
        'setsockopt(SOL_IPV6, IPV6_TRANSPARENT): EPERM',
        'setsockopt(SOL_SOCKET, SO_MARK): EPERM',
      ],
      stderr,
    );
  },
);

test('isLocalAddress knows this host from others, and leaves no descriptor', () => {
  const before = openDescriptors();
  assert.ok(sockets.isLocalAddress(Endpoint.parse('127.0.0.1', 80)!));
  assert.ok(sockets.isLocalAddress(Endpoint.parse('::1', 80)!));
  assert.ok(!sockets.isLocalAddress(Endpoint.parse('192.0.2.1', 80)!));
  assert.ok(!sockets.isLocalAddress(Endpoint.parse('2001:db8::1', 80)!));
  assert.equal(openDescriptors(), before);
});

test('Multipath TCP connects, or is switched off and told once where the kernel has none', () => {
  const told: string[] = [];
  const listener = sockets.listenTcp(Endpoint.parse('127.0.0.1', 0)!, { mptcp: true });
  const options = { ...plainConnect, mptcp: true };
  const connected = sockets.connectTcp(sockets.localEndpoint(listener)!, options, (text) => told.push(text));
  const fd = acceptSoon(listener);
  assert.deepEqual(readOption(fd, 1, 13, 8), [1, 0], 'inherited SO_LINGER');
  assert.equal(told.length, options.mptcp ? 0 : 1);
  for (const open of [fd, connected, listener]) sockets.closeReset(open);
});

test('acceptTcp gives the negative errno', () => {
  const listener = sockets.listenTcp(Endpoint.parse('127.0.0.1', 0)!);
  assert.equal(sockets.acceptTcp(listener), -11); // EAGAIN
  const connected = sockets.connectTcp(sockets.localEndpoint(listener)!, plainConnect);
  const limit = descriptorLimit();
  setDescriptorLimit({ soft: 3, hard: limit.hard });
  const got = sockets.acceptTcp(listener);
  setDescriptorLimit(limit);
  assert.equal(got, -24); // EMFILE
  sockets.closeReset(connected);
  sockets.closeReset(listener);
});

test('epoll tells descriptor, use and events, all 32 bits of each', () => {
  const epoll = new Epoll(4);
  const fd = createWakeup();
  epoll.control(EPOLL_CTL_ADD, fd, EPOLLIN, 0xffff_fffe);
  assert.equal(epoll.wait(0), 0);
  raiseWakeup(fd);
  assert.equal(epoll.wait(1000), 1);
  assert.deepEqual([epoll.fdOf(0), epoll.useOf(0), epoll.eventsOf(0)], [fd, 0xffff_fffe, EPOLLIN]);
  raiseWakeup(fd);
  clearWakeup(fd);
  assert.equal(epoll.wait(0), 0, 'one read clears however many raises');
  epoll.close();
  close(fd);
});
