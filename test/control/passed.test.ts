import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PassedSockets, shareOut } from '../../src/control/passed.js';
import { UsageError } from '../../src/errors.js';
import { close } from '../../src/linux/libc.js';
import { describeSocket } from '../../src/linux/passed-socket.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { listenUdp } from '../../src/linux/datagram.js';
import { connectTcp, listenTcp, localEndpoint } from '../../src/linux/socket.js';
import { type PassedSocket, storeName, takePassedSockets } from '../../src/systemd/listen-fds.js';

interface Made {
  kind?: 'tcp' | 'udp';
  stored?: boolean;
  ipv6Only?: boolean;
}

/** One that was never opened: only what is told of it counts. */
function passed(
  host: string,
  port: number,
  { kind = 'tcp', stored = false, ipv6Only }: Made = {},
): PassedSocket {
  const endpoint = Endpoint.parse(host, port)!;
  const ipv6 = !endpoint.isIpv4;
  const name = stored ? storeName(kind, endpoint) : 'ss-redir@x.socket';
  return { fd: 10_000 + port, kind, endpoint, ipv6, ipv6Only: ipv6Only ?? !ipv6, name, stored };
}

function wanted(host: string, port: number, kind: 'tcp' | 'udp' = 'tcp', ipv6Only = false) {
  return { kind, endpoint: Endpoint.parse(host, port)!, ipv6Only };
}

const all = { tcp: true, udp: true };
const noWarning = (text: string): never => assert.fail(text);

test('each place gets the socket of its address and protocol, in whatever order they are passed', () => {
  const [a, b, c] = [passed('127.0.0.1', 1), passed('::1', 1), passed('::1', 1, { kind: 'udp' })];
  for (const order of [
    [a, b, c],
    [c, b, a],
    [b, c, a],
  ]) {
    const sockets = new PassedSockets(order);
    assert.deepEqual(sockets.take(wanted('::1', 1)), [b]);
    assert.deepEqual(sockets.take(wanted('127.0.0.1', 1)), [a]);
    assert.deepEqual(sockets.take(wanted('::1', 1, 'udp')), [c]);
    assert.equal(sockets.take(wanted('::1', 2)), undefined);
    sockets.refuseStrange(all, noWarning);
    assert.deepEqual(sockets.dropStored(), []);
  }
});

test("a socket unit's socket at the port serves whatever address the configuration has, and two places at once", () => {
  const any = passed('::', 8388);
  const sockets = new PassedSockets([any]);
  assert.deepEqual(sockets.take(wanted('127.0.0.1', 8388)), [any]);
  assert.deepEqual(sockets.take(wanted('::1', 8388)), [], 'served already: nothing is to be opened');
});

test('what the store kept for another address or family is of no use, and its name is removed', () => {
  const kept = [passed('::', 1, { stored: true }), passed('::', 1, { stored: true })];
  const sockets = new PassedSockets(kept);
  assert.equal(sockets.take(wanted('127.0.0.1', 1)), undefined);
  assert.equal(sockets.take(wanted('::', 1, 'tcp', true)), undefined, 'one that takes IPv4 as well');
  sockets.refuseStrange(all, noWarning);
  assert.deepEqual(sockets.dropStored(), [kept[0]!.name]);
  assert.deepEqual(new PassedSockets(kept).take(wanted('::', 1)), kept);
});

test("a socket unit's socket at a port nobody configured refuses the start; of a protocol nobody relays it warns", () => {
  const sockets = new PassedSockets([passed('::', 5555)]);
  assert.throws(() => sockets.refuseStrange(all, noWarning), {
    name: UsageError.name,
    message:
      'the service manager passes a TCP socket at [::]:5555 ("ss-redir@x.socket"), where the configuration does not listen: make the ports agree',
  });
  const warnings: string[] = [];
  const udp = new PassedSockets([passed('::', 1234, { kind: 'udp' })]);
  udp.refuseStrange({ tcp: true, udp: false }, (text) => warnings.push(text));
  assert.match(warnings[0]!, /passes a UDP socket at \[::\]:1234 .* but UDP is not relayed/);
});

test('sockets are shared out so that each is accepted from, and each worker has one', () => {
  const sockets = [1, 2, 3].map((port) => passed('::', port));
  for (const workers of [1, 2, 3, 4, 7]) {
    const shares = shareOut(sockets, workers);
    assert.equal(shares.length, workers);
    assert.ok(
      shares.every((share) => share.length > 0),
      `${workers} workers`,
    );
    assert.deepEqual(new Set(shares.flat()), new Set(sockets));
  }
  assert.deepEqual(shareOut(sockets, 2), [[sockets[0], sockets[2]], [sockets[1]]]);
});

test('a socket is what the kernel says: listening TCP and bound UDP are, others and files are not', (t) => {
  const tcp = listenTcp(Endpoint.parse('::', 0)!, { ipv6Only: true });
  const udp = listenUdp(Endpoint.parse('127.0.0.1', 0)!);
  const options = { mark: 0, mptcp: false, fastOpen: false, tos: 0, sendBuffer: 0, receiveBuffer: 0 };
  const { port } = localEndpoint(tcp)!;
  const connected = connectTcp(Endpoint.parse('::1', port)!, options);
  t.after(() => [tcp, udp, connected].forEach((fd) => close(fd)));
  assert.deepEqual(describeSocket(tcp), {
    kind: 'tcp',
    endpoint: Endpoint.parse('::', port),
    ipv6: true,
    ipv6Only: true,
  });
  assert.equal(describeSocket(udp)!.kind, 'udp');
  assert.equal(describeSocket(connected), undefined);
  assert.equal(describeSocket(0), undefined);
  assert.equal(describeSocket(99_999), undefined);
});

test('sockets that are meant for another process are left alone, and the environment is cleared either way', () => {
  const env = {
    LISTEN_PID: '1',
    LISTEN_FDS: '2',
    LISTEN_FDNAMES: 'a:b',
    LISTEN_PIDFDID: '9',
    OTHER: 'stays',
  };
  assert.deepEqual(takePassedSockets(env, 7), []);
  assert.deepEqual(env, { OTHER: 'stays' });
});
