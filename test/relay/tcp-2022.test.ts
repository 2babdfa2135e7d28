import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import type { Credentials } from '../../src/crypto/credentials.js';
import { findMethod, methods, type Method } from '../../src/crypto/methods.js';
import { createSaltPoolMemory } from '../../src/crypto/salt-pool.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { acceptTcp, closeReset, listenTcp, localEndpoint } from '../../src/linux/socket.js';
import { writeIpAddress } from '../../src/protocol/address.js';
import type { RelayContext } from '../../src/relay/context.js';
import { Listener } from '../../src/relay/listener.js';
import { Redir } from '../../src/relay/redir.js';
import { Server } from '../../src/relay/server.js';
import { Upstreams } from '../../src/relay/upstream.js';
import { createUserMemory, readUserTraffic, UserCounters } from '../../src/relay/user-counters.js';
import { openPlainly, plainRequest, plainResponse, type RequestText } from '../helpers/plain-2022.js';
import { patterned, Peer, quietTurns, Rig, type Scenario, socketPair } from '../helpers/relay-rig.js';

const methods2022 = methods.filter((method) => method.edition === '2022');
const client = new Endpoint(Uint8Array.of(192, 0, 2, 9), 1);
const loopback = Endpoint.parse('127.0.0.1', 0)!;

function now(): number {
  return Math.floor(Date.now() / 1000);
}

/** A reactor with an origin to be reached, an ss-server on loopback, and any number of ss-redirs that use it. */
class Stage {
  readonly rig: Rig;
  readonly method: Method;
  readonly key: Uint8Array;
  readonly serverContext: RelayContext;
  readonly server: Server;
  private readonly origin = listenTcp(loopback);
  private readonly listener = listenTcp(loopback);
  private readonly upstreams = new Upstreams();

  constructor(
    methodName: string,
    users: Credentials['users'] = [],
    userMemory?: SharedArrayBuffer,
    capacity?: number,
  ) {
    this.method = findMethod(methodName)!;
    this.key = randomBytes(this.method.keySize);
    this.rig = new Rig({ method: methodName, key: this.key, timeouts: { idleMs: 600_000 } });
    this.serverContext = {
      ...this.rig.context,
      credentials: { key: this.key, identityKeys: [], users },
      userCounters: userMemory && new UserCounters(userMemory),
    };
    const memory = createSaltPoolMemory(randomBytes(8), this.method.saltSize, capacity);
    this.upstreams.set([localEndpoint(this.listener)!]);
    this.server = new Server(this.serverContext, { edition: '2022', memory });
  }

  get address(): Uint8Array {
    const { address, port } = localEndpoint(this.origin)!;
    return writeIpAddress(address, port);
  }

  /** Our ss-server on its listener. */
  startServer(): Endpoint {
    const { server } = this;
    new Listener(this.serverContext, this.listener, (fd, from) => server.onConnection(fd, from)).start();
    return localEndpoint(this.listener)!;
  }

  /** The listener with nobody of ours behind it: who connects is given out as a peer. */
  *fakeServer(tell: (peer: Peer) => void): Scenario {
    let fd = -1;
    yield () => (fd = acceptTcp(this.listener)) >= 0;
    tell(new Peer(this.rig.reactor, fd));
  }

  /** A client of an ss-redir whose server is at the listener. */
  connectByRedir(credentials: Credentials = this.rig.context.credentials): Peer {
    const target = localEndpoint(this.origin)!;
    const context = { ...this.rig.context, credentials };
    const redir = new Redir(context, this.upstreams, () => target, 1, 0);
    const { accepted, connected } = socketPair();
    context.limits.enter();
    redir.onConnection(accepted, client);
    return new Peer(this.rig.reactor, connected);
  }

  /** A socket that has just connected to our ss-server. */
  connectToServer(): Peer {
    const { accepted, connected } = socketPair();
    this.rig.context.limits.enter();
    this.server.onConnection(accepted, client);
    return new Peer(this.rig.reactor, connected);
  }

  *atOrigin(tell: (peer: Peer) => void): Scenario {
    let fd = -1;
    yield () => (fd = acceptTcp(this.origin)) >= 0;
    tell(new Peer(this.rig.reactor, fd));
  }

  request(text: Partial<RequestText> = {}): ReturnType<typeof plainRequest> {
    const { method, key, address } = this;
    return plainRequest({ method, keys: [key], seconds: now(), address, ...text });
  }

  run(scenario: Scenario): void {
    try {
      this.rig.run(scenario, 20_000);
    } finally {
      closeReset(this.origin);
      closeReset(this.listener);
    }
  }

  assertNothingHeld(): void {
    const { blocks, rests, limits } = this.rig.context;
    assert.deepEqual([blocks.leased, rests.leased, limits.open], [0, 0, 0], 'blocks, rests, connections');
  }

  logged(pattern: RegExp): boolean {
    return this.rig.lines.some((line) => pattern.test(line));
  }
}

// ---- ours to ours

for (const { name } of methods2022) {
  test(`${name}: client, ss-redir, ss-server and target talk, end by end, and nothing stays behind`, () => {
    const stage = new Stage(name);
    stage.startServer();
    stage.run(
      (function* () {
        const peer = stage.connectByRedir();
        peer.say(Buffer.from('hello'));
        let target!: Peer;
        yield* stage.atOrigin((one) => (target = one));
        yield () => target.size === 5;
        assert.equal(target.bytes.toString(), 'hello');
        peer.finish();
        yield () => target.ended === 'FIN';
        target.say(Buffer.from('an answer after the client has ended'));
        yield () => peer.size === 36;
        assert.equal(peer.ended, undefined, 'half open');
        target.finish();
        yield () => peer.ended === 'FIN' && stage.rig.context.limits.open === 0;
        stage.assertNothingHeld();
      })(),
    );
  });

  test(`${name}: a target that speaks first is heard, and one that says nothing ends in order`, () => {
    const stage = new Stage(name);
    stage.startServer();
    stage.run(
      (function* () {
        for (const banner of ['220 ready', '']) {
          const peer = stage.connectByRedir();
          let target!: Peer;
          yield* stage.atOrigin((one) => (target = one));
          target.say(Buffer.from(banner));
          target.finish();
          yield () => peer.ended !== undefined;
          assert.deepEqual([peer.ended, peer.bytes.toString()], ['FIN', banner]);
          peer.finish();
          yield () => target.ended === 'FIN' && stage.rig.context.limits.open === 0;
        }
        stage.assertNothingHeld();
      })(),
    );
  });

  test(`${name}: 24 MiB each way at once arrive whole, with one side slow for a while`, () => {
    const stage = new Stage(name);
    stage.startServer();
    const up = patterned(24 << 20, 5);
    const down = patterned(24 << 20, 6);
    stage.run(
      (function* () {
        const peer = stage.connectByRedir();
        peer.say(up);
        let target!: Peer;
        yield* stage.atOrigin((one) => (target = one));
        target.say(down);
        yield () => target.size > 1 << 20 && peer.size > 1 << 20;
        target.pause();
        yield* stage.rig.turnsWithin(50, () => {});
        target.resume();
        peer.finish();
        target.finish();
        yield () => peer.ended !== undefined && target.ended !== undefined;
        assert.deepEqual([peer.ended, target.ended], ['FIN', 'FIN']);
        assert.ok(target.bytes.equals(up), 'up');
        assert.ok(peer.bytes.equals(down), 'down');
        yield () => stage.rig.context.limits.open === 0;
        stage.assertNothingHeld();
      })(),
    );
  });
}

for (const { name } of methods2022.filter(({ hasIdentityHeaders }) => hasIdentityHeaders)) {
  test(`${name}: two users of one server are served and counted apart, a third one is not`, () => {
    const { keySize } = findMethod(name)!;
    const users = ['ann', 'bob'].map((user) => ({ name: user, key: randomBytes(keySize) }));
    const memory = createUserMemory(users.length);
    const stage = new Stage(name, users, memory);
    stage.startServer();
    const credentials = (key: Uint8Array): Credentials => ({ key, identityKeys: [stage.key], users: [] });
    const traffic = (): unknown[] => users.map((_, i) => Object.values(readUserTraffic([memory], i)));
    stage.run(
      (function* () {
        for (const [i, { key }] of users.entries()) {
          const peer = stage.connectByRedir(credentials(key));
          peer.say(Buffer.alloc(1000 * (i + 1), 'u'));
          let target!: Peer;
          yield* stage.atOrigin((one) => (target = one));
          yield () => target.size === 1000 * (i + 1);
          peer.say(Buffer.alloc(100_000, 'u'));
          yield () => target.size === 1000 * (i + 1) + 100_000;
          target.say(Buffer.alloc(300_000 + i, 'd'));
          yield () => peer.size === 300_000 + i;
          peer.finish();
          target.finish();
          yield () => stage.rig.context.limits.open === 0;
        }
        assert.deepEqual(traffic(), [
          [1, 101_000, 300_000],
          [1, 102_000, 300_001],
        ]);
        assert.ok(stage.logged(/^127\.0\.0\.1:\d+ \(bob\) -> 127\.0\.0\.1:\d+$/), stage.rig.lines.join('\n'));

        const stranger = stage.connectByRedir(credentials(randomBytes(keySize)));
        stranger.say(Buffer.from('hello'));
        yield () =>
          stage.logged(/failed to handshake with 127\.0\.0\.1:\d+: the identity header names no user/);
        stranger.finish();
        yield () => stranger.ended === 'FIN' && stage.rig.context.limits.open === 0;
        assert.equal(stranger.size, 0);
        assert.deepEqual(traffic().flat(), [1, 101_000, 300_000, 1, 102_000, 300_001]);
        stage.assertNothingHeld();
      })(),
    );
  });
}

// ---- what ss-server takes

const name256 = '2022-blake3-aes-256-gcm';

for (const skew of [-30, -29, 29, 30]) {
  test(`a request whose clock is ${skew} s off reaches its target`, () => {
    const stage = new Stage(name256);
    stage.run(
      (function* () {
        const seconds = wholeSecond() + skew;
        const peer = stage.connectToServer();
        peer.say(stage.request({ seconds, payload: Buffer.from('hello') }).flight);
        let target!: Peer;
        yield* stage.atOrigin((one) => (target = one));
        yield () => target.size === 5;
        peer.reset();
        yield () => stage.rig.context.limits.open === 0;
      })(),
    );
  });
}

/** Waits for the first half of a second, so that the clock does not turn while a test of its exact limit runs. */
function wholeSecond(): number {
  while (Date.now() % 1000 > 500);
  return now();
}

test('a request goes on byte by byte behind its first read, and nothing is answered before the target speaks', () => {
  const stage = new Stage(name256);
  stage.run(
    (function* () {
      const { flight, stream, salt } = stage.request({ payload: Buffer.from('hello ') });
      const bytes = Buffer.concat([flight, stream.record(Buffer.from('world'))]);
      const peer = stage.connectToServer();
      peer.say(bytes.subarray(0, 59));
      for (const byte of bytes.subarray(59)) {
        const { turns } = stage.rig;
        yield () => stage.rig.turns > turns;
        peer.say(Buffer.of(byte));
      }
      let target!: Peer;
      yield* stage.atOrigin((one) => (target = one));
      yield () => target.size === 11;
      assert.equal(target.bytes.toString(), 'hello world');
      yield* stage.rig.turnsWithin(100, () => {});
      assert.equal(peer.size, 0, 'no response header without a response');
      target.say(Buffer.from('answer'));
      yield () => peer.size > 0;
      const opened = openPlainly(stage.method, stage.key, peer.bytes, 'response');
      assert.deepEqual(opened.header.subarray(9, -2), salt, 'bound to the request');
      assert.deepEqual(opened.chunks.map(String), ['answer'], 'header and first payload in one write');
      peer.reset();
      yield () => stage.rig.context.limits.open === 0;
    })(),
  );
});

test('a request without payload is answered as one with it', () => {
  const stage = new Stage(name256);
  stage.run(
    (function* () {
      const peer = stage.connectToServer();
      peer.say(stage.request({ padding: randomBytes(900) }).flight);
      let target!: Peer;
      yield* stage.atOrigin((one) => (target = one));
      target.say(Buffer.from('banner'));
      yield () => peer.size > 0;
      assert.equal(target.size, 0, 'no padding reaches the target');
      peer.reset();
      yield () => stage.rig.context.limits.open === 0;
    })(),
  );
});

/** [what is wrong, what the log says of it, what is sent] */
const strangers: [string, RegExp, (stage: Stage) => Buffer[]][] = [
  ['bytes at random', /tag behind a fixed header/, () => [patterned(500, 1)]],
  ['one byte', /first read brought 1 bytes, expected at least 59/, () => [patterned(1, 1)]],
  [
    'one byte too few in its first read',
    /first read brought 58 bytes/,
    (stage) => [stage.request().flight.subarray(0, 58)],
  ],
  [
    'another key',
    /tag behind a fixed header/,
    (stage) => [stage.request({ keys: [randomBytes(32)] }).flight],
  ],
  ['the header of a response', /header type 1, expected 0/, (stage) => [stage.request({ type: 1 }).flight]],
  [
    'a clock 31 s behind',
    /client's clock is 3[12] s behind ours.*check the clock/,
    (stage) => [stage.request({ seconds: now() - 31 }).flight],
  ],
  [
    'a clock 31 s ahead',
    /client's clock is 31 s ahead of ours.*check the clock/,
    (stage) => [stage.request({ seconds: wholeSecond() + 31 }).flight],
  ],
  [
    'a changed variable header',
    /tag behind a first chunk/,
    (stage) => {
      const { flight } = stage.request({ payload: Buffer.from('hello') });
      flight[flight.length - 1]! ^= 1;
      return [flight];
    },
  ],
  [
    'an address type that there is not',
    /address type 9/,
    (stage) => [stage.request({ address: Buffer.from('0900000000000050', 'hex') }).flight],
  ],
  [
    'neither padding nor payload',
    /neither padding nor payload/,
    (stage) => [stage.request({ padding: Buffer.alloc(0) }).flight],
  ],
  [
    'padding beyond its header',
    /padding of 99 bytes, where 3 are left/,
    (stage) => [
      stage.request({ variable: Buffer.concat([stage.address, Buffer.of(0, 99, 1, 2, 3)]) }).flight,
    ],
  ],
];

for (const [what, line, make] of strangers) {
  test(`a stranger with ${what} hears nothing and is closed between 30 and 60 s after it came`, () => {
    const stage = new Stage(name256);
    stage.run(
      (function* () {
        yield* assertDrained(stage, make(stage), line);
      })(),
    );
  });
}

test('a stranger that repeats a request hears nothing, with any user, and the honest client stays', () => {
  const users = ['ann', 'bob'].map((name) => ({ name, key: randomBytes(32) }));
  const stage = new Stage(name256, users);
  stage.run(
    (function* () {
      const { flight } = stage.request({ keys: [stage.key, users[0]!.key], payload: Buffer.from('hello') });
      const honest = stage.connectToServer();
      honest.say(flight);
      let target!: Peer;
      yield* stage.atOrigin((one) => (target = one));
      yield* assertDrained(stage, [flight], /salt was seen before/, 1);
      // The same salt from another user: one pool for all.
      const salt = flight.subarray(0, 32);
      const other = stage.request({ keys: [stage.key, users[1]!.key], salt });
      const peer = stage.connectToServer();
      const dueMs = performance.now() + 2100; // one line of a kind in 2 s
      yield () => performance.now() > dueMs;
      peer.say(other.flight);
      const repeats = (): number =>
        stage.rig.lines.filter((line) => line.includes('salt was seen before')).length;
      yield () => repeats() === 2;
      peer.finish();
      yield () => peer.ended === 'FIN';
      assert.equal(peer.size, 0);
      target.say(Buffer.from('still here'));
      yield () => honest.size > 0;
      honest.reset();
      yield () => stage.rig.context.limits.open === 0;
    })(),
  );
});

test('a request that the salt pool has no room for is refused like any other, and the log says why', () => {
  const stage = new Stage(name256, [], undefined, 1);
  stage.run(
    (function* () {
      const honest = stage.connectToServer();
      honest.say(stage.request().flight);
      yield* stage.atOrigin(() => {});
      yield* assertDrained(stage, [stage.request().flight], /no room to remember the salt/, 1);
      honest.reset();
      yield () => stage.rig.context.limits.open === 0;
    })(),
  );
});

/** What is sent gets no answer, no FIN and no RST until 30 s have gone, whatever else is sent, and a FIN before 60 s. */
function* assertDrained(stage: Stage, flights: Buffer[], line: RegExp, others = 0): Scenario {
  const { rig } = stage;
  const cameMs = rig.reactor.nowMs;
  const before = rig.lines.length;
  const peer = stage.connectToServer();
  for (const flight of flights) peer.say(flight);
  const failed = (): string | undefined =>
    rig.lines.slice(before).find((one) => one.startsWith('failed to handshake with 192.0.2.9:1'));
  yield () => failed() !== undefined;
  assert.match(failed()!, line);
  const { blocks, rests, limits } = rig.context;
  if (others === 0) assert.deepEqual([blocks.leased, rests.leased], [0, 0], 'nothing is kept for it');
  peer.say(patterned(300_000, 3)); // thrown away
  let turns = 0;
  yield () => peer.flushed;
  yield* rig.turnsWithin(150, (count) => (turns = count));
  assert.ok(turns <= quietTurns, `${turns} turns`);
  rig.reactor.timers.advance(cameMs + 29_900);
  yield* rig.turnsWithin(60, () => {});
  assert.equal(peer.ended, undefined, 'neither FIN nor RST before 30 s');
  rig.reactor.timers.advance(cameMs + 60_100);
  yield () => peer.ended !== undefined;
  assert.deepEqual(
    [peer.ended, peer.size, limits.open],
    ['FIN', 0, others],
    'closed in order, without a byte',
  );
}

test('lines about clocks are limited: a hundred clients make one', () => {
  const stage = new Stage(name256);
  stage.run(
    (function* () {
      const peers = Array.from({ length: 100 }, () => {
        const peer = stage.connectToServer();
        peer.say(stage.request({ seconds: now() + 100 }).flight);
        return peer;
      });
      yield* stage.rig.turnsWithin(200, () => {});
      for (const peer of peers) peer.finish();
      yield () => stage.rig.context.limits.open === 0;
      const lines = stage.rig.lines.filter((line) => line.includes('check the clock'));
      assert.equal(lines.length, 1, lines.join('\n'));
      assert.match(lines[0]!, /clock is (100|99) s ahead of ours/);
    })(),
  );
});

test('a request that ends inside its variable header is closed in order; one that ends inside a record resets the target', () => {
  const stage = new Stage(name256);
  stage.run(
    (function* () {
      const early = stage.connectToServer();
      early.say(stage.request().flight.subarray(0, 70));
      early.finish();
      yield () => early.ended === 'FIN' && stage.rig.context.limits.open === 0;

      const peer = stage.connectToServer();
      const { flight, stream } = stage.request({ payload: Buffer.from('hello') });
      peer.say(flight, stream.record(Buffer.from('more')).subarray(0, -1));
      let target!: Peer;
      yield* stage.atOrigin((one) => (target = one));
      yield () => target.size === 5;
      peer.finish();
      yield () => target.ended === 'ECONNRESET' && stage.rig.context.limits.open === 0;
      assert.equal(target.size, 5);
      stage.assertNothingHeld();
    })(),
  );
});

// ---- what ss-redir takes

type Answer = (stage: Stage, requestSalt: Buffer) => Buffer;

function answer(stage: Stage, requestSalt: Uint8Array, text: object = {}): Buffer {
  const { method, key } = stage;
  return plainResponse({ method, key, seconds: now(), requestSalt, payload: Buffer.from('answer'), ...text })
    .flight;
}

const badAnswers: [string, RegExp, Answer][] = [
  ['to another request', /request salt is not ours/, (stage) => answer(stage, randomBytes(32))],
  [
    'with the type of a request',
    /header type 0, expected 1/,
    (stage, salt) => answer(stage, salt, { type: 0 }),
  ],
  [
    'a minute old',
    /server's clock is 6[01] s behind ours.*check the clock/,
    (stage, salt) => answer(stage, salt, { seconds: now() - 60 }),
  ],
  [
    'with a first payload of length 0',
    /first payload length 0/,
    (stage, salt) => answer(stage, salt, { payload: Buffer.alloc(0) }),
  ],
  [
    'under another key',
    /invalid password or cipher: the tag behind a response header/,
    (stage, salt) => answer(stage, salt, { key: randomBytes(32) }),
  ],
  [
    'whose first payload was changed',
    /tag behind a first chunk/,
    (stage, salt) => {
      const flight = answer(stage, salt);
      flight[flight.length - 1]! ^= 1;
      return flight;
    },
  ],
  [
    'whose first read is one byte too short',
    /first read brought 90 bytes, expected at least 91/,
    (stage, salt) => answer(stage, salt).subarray(0, 90),
  ],
];

for (const [what, line, make] of badAnswers) {
  test(`an answer ${what} ends the connection, and nothing of it reaches the client`, () => {
    const stage = new Stage(name256);
    stage.run(
      (function* () {
        const peer = stage.connectByRedir();
        peer.say(Buffer.from('hello'));
        let server!: Peer;
        yield* stage.fakeServer((one) => (server = one));
        yield () => server.size > 59;
        server.say(make(stage, server.bytes.subarray(0, 32)));
        yield () => peer.ended !== undefined && server.ended !== undefined;
        assert.deepEqual([peer.ended, peer.size, server.ended], ['ECONNRESET', 0, 'ECONNRESET']);
        assert.ok(stage.logged(line), stage.rig.lines.join('\n'));
        stage.assertNothingHeld();
      })(),
    );
  });
}

test('an answer that is right reaches the client, and the request was as the specification has it', () => {
  for (const payload of ['hello', '']) {
    const stage = new Stage(name256);
    stage.run(
      (function* () {
        const peer = stage.connectByRedir();
        peer.say(Buffer.from(payload));
        let server!: Peer;
        yield* stage.fakeServer((one) => (server = one));
        yield () => server.size > 59;
        const { salt, header, chunks } = openPlainly(stage.method, stage.key, server.bytes, 'request');
        assert.equal(header[0], 0);
        assert.ok(Math.abs(Number(header.readBigUInt64BE(1)) - now()) <= 1, 'the clock');
        const variable = chunks[0]!;
        const { address } = stage;
        assert.deepEqual(variable.subarray(0, address.length), Buffer.from(address));
        const padding = variable.readUInt16BE(address.length);
        assert.equal(variable.subarray(address.length + 2 + padding).toString(), payload);
        assert.ok(
          payload === '' ? padding >= 1 && padding <= 900 : padding === 0,
          `${padding} bytes of padding`,
        );
        server.say(answer(stage, salt));
        yield () => peer.size === 6;
        server.finish();
        yield () => peer.ended === 'FIN';
        peer.reset();
        yield () => stage.rig.context.limits.open === 0;
      })(),
    );
  }
});

test('an answer cut inside a record resets the client; one that ends behind a record ends in order', () => {
  for (const cut of [0, 1, 20]) {
    const stage = new Stage(name256);
    stage.run(
      (function* () {
        const peer = stage.connectByRedir();
        peer.say(Buffer.from('hello'));
        let server!: Peer;
        yield* stage.fakeServer((one) => (server = one));
        yield () => server.size > 59;
        const { method, key } = stage;
        const requestSalt = server.bytes.subarray(0, 32);
        const text = { method, key, seconds: now(), requestSalt, payload: Buffer.from('answer') };
        const { flight, stream } = plainResponse(text);
        const record = stream.record(Buffer.from('more'));
        server.say(flight, record.subarray(0, record.length - cut));
        server.finish();
        yield () => peer.ended !== undefined;
        assert.equal(peer.ended, cut === 0 ? 'FIN' : 'ECONNRESET', `${cut} bytes missing`);
        peer.reset();
        yield () => stage.rig.context.limits.open === 0;
        stage.assertNothingHeld();
      })(),
    );
  }
});

test('servers that end one connection after another without a word make a line that names the clock', () => {
  const stage = new Stage(name256);
  stage.run(
    (function* () {
      for (let i = 0; i < 3; i++) {
        const peer = stage.connectByRedir();
        peer.say(Buffer.from('hello'));
        let server!: Peer;
        yield* stage.fakeServer((one) => (server = one));
        yield () => server.size > 0;
        server.finish();
        yield () => peer.ended === 'FIN';
        peer.finish();
        yield () => stage.rig.context.limits.open === 0;
      }
      assert.ok(stage.logged(/do its key, method and clock agree with ours\?$/), stage.rig.lines.join('\n'));
    })(),
  );
});
