import assert from 'node:assert/strict';
import { test } from 'node:test';
import { descriptorLimit, setDescriptorLimit } from '../../src/linux/rlimit.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { closeReset, connectTcp, listenTcp, localEndpoint } from '../../src/linux/socket.js';
import { Listener } from '../../src/relay/listener.js';
import { plainConnect, quietTurns, Rig } from '../helpers/relay-rig.js';

interface Listening {
  accepted: number[];
  clients: Endpoint[];
  endpoint: Endpoint;
  close(): void;
}

function listening(rig: Rig, shared = false): Listening {
  const fd = listenTcp(Endpoint.parse('127.0.0.1', 0)!);
  const accepted: number[] = [];
  const clients: Endpoint[] = [];
  const onConnection = (client: number, from: Endpoint): void => {
    accepted.push(client);
    clients.push(from);
  };
  new Listener(rig.context, fd, onConnection, shared).start();
  return { accepted, clients, endpoint: localEndpoint(fd)!, close: () => closeReset(fd) };
}

test('an accepted connection comes with the client it is from', () => {
  const rig = new Rig();
  rig.run(
    (function* () {
      const { accepted, clients, endpoint, close } = listening(rig);
      const fd = connectTcp(endpoint, plainConnect);
      yield () => accepted.length === 1;
      assert.ok(clients[0]!.equals(localEndpoint(fd)!));
      assert.equal(rig.context.limits.open, 1);
      for (const open of [fd, ...accepted]) closeReset(open);
      close();
    })(),
  );
});

for (const shared of [false, true]) {
  test(`at the connection limit ${shared ? 'a shared' : 'an own'} socket is not accepted from, without a spin, until one ends`, () => {
    const rig = new Rig({ maxConnections: 2 });
    rig.run(
      (function* () {
        const { accepted, endpoint, close } = listening(rig, shared);
        const fds = Array.from({ length: 4 }, () => connectTcp(endpoint, plainConnect));
        yield () => accepted.length === 2;
        let turns = 0;
        yield* rig.turnsWithin(500, (count) => (turns = count));
        assert.equal(accepted.length, 2, 'the others wait in the queue');
        assert.ok(turns <= quietTurns, `${turns} turns`);
        rig.context.limits.leave();
        yield () => accepted.length === 3;
        yield* rig.turnsWithin(100, () => {});
        assert.equal(accepted.length, 3, 'one left, so one came');
        rig.context.limits.leave();
        yield () => accepted.length === 4;
        for (const open of [...fds, ...accepted]) closeReset(open);
        close();
      })(),
    );
    const told = rig.lines.filter((line) => line.startsWith('2 connections, the limit'));
    assert.ok(told.length > 0, rig.lines.join('\n'));
  });
}

test('a limit met again and again fills no log', () => {
  const rig = new Rig({ maxConnections: 1 });
  rig.run(
    (function* () {
      const { accepted, endpoint, close } = listening(rig);
      const fds = Array.from({ length: 20 }, () => connectTcp(endpoint, plainConnect));
      for (let i = 1; i < fds.length; i++) {
        yield () => accepted.length === i;
        yield* rig.turnsWithin(10, () => {});
        rig.context.limits.leave();
      }
      yield () => accepted.length === fds.length;
      for (const open of [...fds, ...accepted]) closeReset(open);
      close();
    })(),
  );
  assert.ok(rig.lines.length <= 3, `${rig.lines.length} lines in less than a second`);
});

test('without descriptors accepting pauses without a spin, and goes on when there are some', () => {
  const rig = new Rig();
  const limit = descriptorLimit();
  rig.run(
    (function* () {
      const { accepted, endpoint, close } = listening(rig);
      const fds = [connectTcp(endpoint, plainConnect), connectTcp(endpoint, plainConnect)];
      let turns = 0;
      setDescriptorLimit({ soft: 3, hard: limit.hard });
      try {
        yield* rig.turnsWithin(900, (count) => (turns = count));
      } finally {
        setDescriptorLimit(limit);
      }
      assert.equal(accepted.length, 0);
      assert.ok(turns <= 2 * quietTurns, `${turns} turns`);
      assert.match(rig.lines[0]!, /^accept: EMFILE: no new connections for 250 ms/);
      yield () => accepted.length === 2;
      for (const open of [...fds, ...accepted]) closeReset(open);
      close();
    })(),
  );
});

test('two listeners that share a limit both go on when there is room', () => {
  const rig = new Rig({ maxConnections: 1 });
  rig.run(
    (function* () {
      const one = listening(rig);
      const other = listening(rig);
      const first = connectTcp(one.endpoint, plainConnect);
      yield () => one.accepted.length === 1;
      const fds = [connectTcp(one.endpoint, plainConnect), connectTcp(other.endpoint, plainConnect)];
      yield* rig.turnsWithin(100, () => {});
      rig.context.limits.leave();
      yield () => one.accepted.length + other.accepted.length === 2;
      rig.context.limits.leave();
      yield () => one.accepted.length === 2 && other.accepted.length === 1;
      for (const open of [first, ...fds, ...one.accepted, ...other.accepted]) closeReset(open);
      one.close();
      other.close();
    })(),
  );
});
