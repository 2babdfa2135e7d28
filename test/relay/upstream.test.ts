import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { Upstreams } from '../../src/relay/upstream.js';

const [a, b, c] = ['192.0.2.1', '192.0.2.2', '2001:db8::3'].map((host) => Endpoint.parse(host, 8388)!) as [
  Endpoint,
  Endpoint,
  Endpoint,
];

function withServers(...endpoints: Endpoint[]): Upstreams {
  const upstreams = new Upstreams();
  upstreams.set(endpoints);
  return upstreams;
}

test('healthy servers take turns, and each order has them all', () => {
  const upstreams = withServers(a, b, c);
  const orders = [0, 0, 0, 0].map((now) => upstreams.order(now));
  assert.deepEqual(orders, [
    [a, b, c],
    [b, c, a],
    [c, a, b],
    [a, b, c],
  ]);
});

test('a server that failed comes last until its penalty ends', () => {
  const upstreams = withServers(a, b);
  upstreams.failed(a, 1000);
  for (let i = 0; i < 4; i++) assert.deepEqual(upstreams.order(10_999), [b, a]);
  const firsts = [0, 1].map(() => upstreams.order(11_000)[0]);
  assert.ok(firsts.includes(a), 'back in turn');
});

test('penalties double with failures in a row, to two minutes, and success forgives', () => {
  const upstreams = withServers(a, b);
  let now = 0;
  const lengths: number[] = [];
  for (let i = 0; i < 6; i++) {
    assert.equal(upstreams.failed(a, now), true, 'news, as it was thought healthy again');
    let length = 0;
    while (upstreams.order(now + length).indexOf(a) === 1 && upstreams.order(now + length).indexOf(a) === 1)
      length += 5000;
    lengths.push(length);
    now += length;
  }
  assert.deepEqual(lengths, [10_000, 20_000, 40_000, 80_000, 120_000, 120_000]);
  upstreams.succeeded(a);
  assert.equal(upstreams.failed(a, now), true);
  assert.equal(upstreams.failed(a, now + 9999), false, 'no news while it is out');
});

test('with every server down the one whose penalty ends first is tried first', () => {
  const upstreams = withServers(a, b, c);
  upstreams.failed(b, 0);
  upstreams.failed(c, 10);
  upstreams.failed(a, 20);
  assert.deepEqual(upstreams.order(30), [b, c, a]);
});

test('a new list keeps what is known of servers that stay and forgets the others', () => {
  const upstreams = withServers(a, b);
  upstreams.failed(a, 0);
  upstreams.set([Endpoint.parse('192.0.2.1', 8388)!, c]);
  assert.deepEqual(upstreams.order(1).map(String), [String(c), String(a)]);
  assert.ok(!upstreams.has(b));
  assert.equal(upstreams.failed(b, 1), false, 'a failure of one that is gone is no news');
  upstreams.succeeded(b);
  assert.equal(upstreams.size, 2);
});

test('no server gives an empty order', () => {
  assert.deepEqual(new Upstreams().order(0), []);
});

test('three connections in a row without an answer are suspect, one answer clears it', () => {
  const upstreams = new Upstreams();
  const seen = [false, false, false, false, true, false].map((answered) =>
    upstreams.tooManySilences(answered),
  );
  assert.deepEqual(seen, [false, false, true, true, false, false]);
});
