import assert from 'node:assert/strict';
import { test } from 'node:test';
import { randomBytes } from '../../src/crypto/random.js';
import { openDescriptors } from '../../src/linux/rlimit.js';
import { writeAddress } from '../../src/protocol/address.js';
import { AeadStreamDecoder, AeadStreamEncoder } from '../../src/protocol/tcp-aead.js';
import { Pair, type PairEvents } from '../../src/relay/pair.js';
import { PeerSealer } from '../helpers/aead-peer.js';
import { decodePlainly } from '../helpers/plain-decoder.js';
import { masterKeyFromPassword } from '../../src/crypto/keys.js';
import {
  methodName,
  password,
  patterned,
  Peer,
  quietTurns,
  Rig,
  socketPair,
  type PairOfSockets,
} from '../helpers/relay-rig.js';

const header = writeAddress({ host: '192.0.2.1', port: 80 });
const masterKey = masterKeyFromPassword(password, 16);

class Ended implements PairEvents {
  closed = 0;
  reason: string | undefined;
  forgedFd: number | undefined;

  onClosed(reason: string | undefined): void {
    this.closed++;
    this.reason = reason;
  }

  onForged(error: Error, cipherFd: number): void {
    this.closed++;
    this.reason = error.message;
    this.forgedFd = cipherFd;
  }
}

interface Way {
  client: Peer;
  target: Peer;
  redir: Ended;
  server: Ended;
}

/** client peer - [plain leg, cipher leg] = [cipher leg, plain leg] - target peer: ss-redir and ss-server in one thread. */
function wholeWay(
  rig: Rig,
  options: { sendBuffer?: number; receiveBuffer?: number } = {},
  headerWaitMs = 20,
): Way {
  const { context, reactor } = rig;
  const left = socketPair(options);
  const middle = socketPair(options);
  const right = socketPair(options);
  const redir = clientPair(rig, left.accepted, middle.connected, headerWaitMs);
  // The header is 7 bytes of payload here: a server proper reads it before there is a pair.
  const server = new Ended();
  const {
    backend,
    method,
    credentials: { key },
  } = context;
  const pair = new Pair(
    context,
    {
      plainFd: right.connected,
      cipherFd: middle.accepted,
      encoder: new AeadStreamEncoder(backend, method, key, randomBytes(method.saltSize)),
      decoder: new AeadStreamDecoder(backend, method, key),
      plainName: 'target',
      cipherName: 'client',
    },
    server,
  );
  pair.start({ plain: false, cipher: false });
  return {
    client: new Peer(reactor, left.connected),
    target: new Peer(reactor, right.accepted),
    redir,
    server,
  };
}

function clientPair(rig: Rig, plainFd: number, cipherFd: number, headerWaitMs = 20): Ended {
  const { context, reactor } = rig;
  const {
    backend,
    method,
    credentials: { key },
  } = context;
  const events = new Ended();
  new Pair(
    context,
    {
      plainFd,
      cipherFd,
      encoder: new AeadStreamEncoder(backend, method, key, randomBytes(method.saltSize), header),
      decoder: new AeadStreamDecoder(backend, method, key),
      headerDueMs: reactor.nowMs + headerWaitMs,
      plainName: 'client',
      cipherName: 'server',
    },
    events,
  ).start({ plain: false, cipher: false });
  return events;
}

/** A client's pair whose server is played by hand. */
function byHand(
  rig: Rig,
  headerWaitMs = 20,
): { client: Peer; server: Peer; ended: Ended; left: PairOfSockets } {
  const left = socketPair();
  const right = socketPair();
  const ended = clientPair(rig, left.accepted, right.connected, headerWaitMs);
  return {
    client: new Peer(rig.reactor, left.connected),
    server: new Peer(rig.reactor, right.accepted),
    ended,
    left,
  };
}

function payloadOf(rig: Rig, peer: Peer): Buffer {
  const {
    method,
    credentials: { key },
  } = rig.context;
  return Buffer.concat(decodePlainly(method, key, peer.bytes).payloads);
}

function chunked(bytes: Buffer, seed: number): Buffer[] {
  const pieces: Buffer[] = [];
  let x = seed;
  for (let at = 0; at < bytes.length;) {
    x = (x * 1103515245 + 12345) >>> 0;
    const size = 1 + ((x >>> 8) % (x % 5 === 0 ? 70_000 : 900));
    pieces.push(bytes.subarray(at, at + size));
    at += size;
  }
  return pieces;
}

function assertNothingHeld(rig: Rig): void {
  assert.deepEqual([rig.context.blocks.leased, rig.context.rests.leased], [0, 0], 'leased blocks and rests');
  assert.equal(rig.reactor.timers.size <= 1, true, 'only the rig itself is left in the timers');
}

for (const [name, options] of [
  ["with the kernel's buffers", {}],
  ['with the smallest socket buffers, so that sends are partial', { sendBuffer: 4608, receiveBuffer: 2304 }],
] as const) {
  test(`every byte arrives both ways, ${name}, however it is cut`, () => {
    const before = openDescriptors();
    const rig = new Rig();
    const up = patterned(1_500_000, 1);
    const down = patterned(1_300_000, 2);
    let way!: Way;
    rig.run(
      (function* () {
        way = wholeWay(rig, options);
        way.client.say(...chunked(up, 3));
        way.target.say(...chunked(down, 4));
        way.client.finish();
        way.target.finish();
        yield () => way.redir.closed === 1 && way.server.closed === 1;
        yield () => way.client.ended !== undefined && way.target.ended !== undefined;
      })(),
    );
    assert.deepEqual([way.redir.reason, way.server.reason], [undefined, undefined]);
    assert.deepEqual([way.client.ended, way.target.ended], ['FIN', 'FIN']);
    assert.ok(way.target.bytes.equals(Buffer.concat([header, up])), 'what the target got');
    assert.ok(way.client.bytes.equals(down), 'what the client got');
    assertNothingHeld(rig);
    way.client.close();
    way.target.close();
    assert.equal(openDescriptors(), before, 'descriptors after as before');
  });
}

test('a slow reader gets every byte, and its peer is held back meanwhile', () => {
  const rig = new Rig();
  const down = patterned(3_000_000, 5);
  rig.run(
    (function* () {
      const way = wholeWay(rig, { sendBuffer: 16_384, receiveBuffer: 16_384 });
      way.client.pause();
      way.client.say(Buffer.from('x'));
      way.target.say(down);
      let turns = 0;
      yield* rig.turnsWithin(600, () => {});
      yield* rig.turnsWithin(600, (count) => (turns = count));
      assert.ok(!way.target.flushed, 'the target cannot get rid of 3 MB that nobody reads');
      assert.ok(turns <= quietTurns, `stalled, the reactor turned ${turns} times in 0.6 s`);
      way.client.readSize = 5000;
      way.client.resume();
      yield () => way.client.size === down.length;
      assert.ok(way.client.bytes.equals(down));
      way.client.finish();
      way.target.finish();
      yield () => way.redir.closed === 1 && way.server.closed === 1;
      assertNothingHeld(rig);
    })(),
    20_000,
  );
});

for (const first of ['client', 'target'] as const) {
  test(`half-close: after the ${first}'s FIN the other direction goes on`, () => {
    const rig = new Rig();
    const late = patterned(200_000, 6);
    rig.run(
      (function* () {
        const way = wholeWay(rig);
        const [one, other] = first === 'client' ? [way.client, way.target] : [way.target, way.client];
        one.say(Buffer.from('request'));
        one.finish();
        yield () => other.ended === 'FIN';
        let turns = 0;
        yield* rig.turnsWithin(500, (count) => (turns = count));
        assert.ok(turns <= quietTurns, `half-closed, the reactor turned ${turns} times in 0.5 s`);
        assert.equal(way.redir.closed + way.server.closed, 0, 'still open');
        other.say(late);
        other.finish();
        yield () => one.ended === 'FIN' && way.redir.closed === 1 && way.server.closed === 1;
        const got = first === 'client' ? one.bytes : one.bytes.subarray(header.length);
        assert.ok(got.equals(late));
        assertNothingHeld(rig);
      })(),
    );
  });

  test(`a RST of the ${first} reaches the other side as RST`, () => {
    const rig = new Rig();
    rig.run(
      (function* () {
        const way = wholeWay(rig);
        const [one, other] = first === 'client' ? [way.client, way.target] : [way.target, way.client];
        way.client.say(Buffer.from('hello'));
        yield () => way.target.size === header.length + 5;
        one.reset();
        yield () => other.ended !== undefined && way.redir.closed === 1 && way.server.closed === 1;
        assert.equal(other.ended, 'ECONNRESET');
        assert.match(`${way.redir.reason} ${way.server.reason}`, /ECONNRESET/);
        assertNothingHeld(rig);
      })(),
    );
  });
}

test('a stream that ends inside a record resets the client: a cut file must not look whole', () => {
  for (const cut of [1, 5, 17, 30]) {
    const rig = new Rig({ key: masterKey });
    rig.run(
      (function* () {
        const { client, server, ended } = byHand(rig);
        client.say(Buffer.from('x'));
        yield () => server.size > 0;
        const peer = new PeerSealer(methodName, password);
        server.say(peer.salt, peer.chunk(Buffer.from('whole')));
        yield () => client.size === 5;
        server.say(peer.chunk(Buffer.from('only in part')).subarray(0, cut));
        server.finish();
        yield () => ended.closed === 1 && client.ended !== undefined;
        assert.equal(client.ended, 'ECONNRESET');
        assert.equal(ended.reason, 'the server ended its stream inside a record');
        assertNothingHeld(rig);
      })(),
    );
  }
});

test('a record that is forged resets the client and leaves the cipher leg open to its owner', () => {
  const rig = new Rig({ key: masterKey });
  rig.run(
    (function* () {
      const { client, server, ended } = byHand(rig);
      client.say(Buffer.from('x'));
      yield () => server.size > 0;
      const peer = new PeerSealer(methodName, password);
      const chunk = peer.chunk(Buffer.from('changed'));
      chunk[20]! ^= 1;
      server.say(peer.salt, chunk);
      yield () => ended.closed === 1 && client.ended !== undefined;
      assert.equal(client.ended, 'ECONNRESET');
      assert.match(ended.reason!, /tag behind a record payload does not match/);
      assert.equal(server.ended, undefined, 'the server has seen neither FIN nor RST yet');
      assertNothingHeld(rig);
    })(),
  );
});

test('the header goes alone after the wait when the client says nothing', () => {
  const rig = new Rig();
  rig.run(
    (function* () {
      const { server, client } = byHand(rig, 100);
      const startMs = performance.now();
      yield () => server.size > 0;
      const waitedMs = performance.now() - startMs;
      assert.ok(waitedMs >= 90 && waitedMs < 400, `waited ${waitedMs} ms`);
      assert.deepEqual(payloadOf(rig, server), Buffer.from(header));
      client.say(Buffer.from('late'));
      yield () => payloadOf(rig, server).length > header.length;
      assert.deepEqual(payloadOf(rig, server), Buffer.concat([header, Buffer.from('late')]));
    })(),
  );
});

test('the header and the first payload are one record', () => {
  const rig = new Rig();
  rig.run(
    (function* () {
      const { server, client } = byHand(rig, 1000);
      client.say(Buffer.from('GET /'));
      yield () => server.size > 0;
      const {
        method,
        credentials: { key },
      } = rig.context;
      const { payloads } = decodePlainly(method, key, server.bytes);
      assert.deepEqual(
        payloads.map((payload) => Buffer.from(payload)),
        [Buffer.concat([header, Buffer.from('GET /')])],
      );
    })(),
  );
});

test('a client that only says FIN has its header and its FIN passed on', () => {
  const rig = new Rig();
  rig.run(
    (function* () {
      const { server, client } = byHand(rig, 1000);
      client.finish();
      yield () => server.ended === 'FIN';
      assert.deepEqual(payloadOf(rig, server), Buffer.from(header));
    })(),
  );
});

for (const blocks of [2, 3]) {
  test(`twenty pairs share ${blocks} blocks: all get on and nothing is lost`, () => {
    const rig = new Rig({ blocks });
    const ways: Way[] = [];
    const up = patterned(150_000, 7);
    const down = patterned(150_000, 8);
    rig.run(
      (function* () {
        for (let i = 0; i < 10; i++) {
          const way = wholeWay(rig);
          ways.push(way);
          way.client.say(...chunked(up, i));
          way.target.say(...chunked(down, i + 50));
          way.client.finish();
          way.target.finish();
        }
        yield () => ways.every((way) => way.redir.closed === 1 && way.server.closed === 1);
        yield () => ways.every((way) => way.client.ended !== undefined && way.target.ended !== undefined);
      })(),
      20_000,
    );
    for (const way of ways) {
      assert.ok(way.target.bytes.equals(Buffer.concat([header, up])));
      assert.ok(way.client.bytes.equals(down));
    }
    assertNothingHeld(rig);
  });
}

test('a block that comes free is not lost on a pair that has died while it waited', () => {
  const rig = new Rig({ blocks: 2 });
  rig.run(
    (function* () {
      const gone = byHand(rig);
      const alive = byHand(rig);
      yield () => gone.server.size > 0 && alive.server.size > 0; // the headers
      const held = [rig.context.blocks.lease()!, rig.context.blocks.lease()!];
      gone.client.say(Buffer.from('never'));
      gone.server.say(Buffer.from('never'));
      yield* rig.turnsWithin(100, () => {});
      alive.client.say(Buffer.from('hello'));
      yield* rig.turnsWithin(100, () => {});
      gone.client.reset();
      gone.server.reset();
      yield* rig.turnsWithin(100, () => {});
      for (const block of held) rig.context.blocks.release(block);
      yield () => payloadOf(rig, alive.server).length === header.length + 5;
    })(),
    3000,
  );
});

test('pairs that wait for two blocks do not pass one free block round and round', () => {
  const rig = new Rig({ blocks: 2, key: masterKey });
  rig.run(
    (function* () {
      const pairs = [byHand(rig), byHand(rig), byHand(rig)];
      for (const { client } of pairs) client.say(Buffer.from('x'));
      yield () => pairs.every(({ server }) => server.size > 0);
      const held = rig.context.blocks.lease()!; // one of the two is out: a slow reader has it
      for (const { server } of pairs) {
        const peer = new PeerSealer(methodName, password);
        server.say(peer.salt, peer.chunk(Buffer.from('answer')));
      }
      let turns = 0;
      yield* rig.turnsWithin(500, (count) => (turns = count));
      assert.ok(turns <= quietTurns, `starved, the reactor turned ${turns} times in 0.5 s`);
      rig.context.blocks.release(held);
      yield () => pairs.every(({ client }) => client.bytes.toString() === 'answer');
    })(),
  );
});

test('idle pairs hold no block and let the reactor sleep', () => {
  const rig = new Rig();
  rig.run(
    (function* () {
      const ways = Array.from({ length: 20 }, () => wholeWay(rig));
      for (const { client, target } of ways) {
        client.say(patterned(40_000, 9));
        target.say(patterned(40_000, 10));
      }
      yield () => ways.every(({ client, target }) => client.size === 40_000 && target.size === 40_007);
      let turns = 0;
      const { user, system } = process.cpuUsage();
      yield* rig.turnsWithin(1000, (count) => (turns = count));
      const cpu = process.cpuUsage();
      const cpuMs = (cpu.user - user + cpu.system - system) / 1000;
      assert.ok(turns <= quietTurns, `${turns} turns in an idle second`);
      assert.ok(cpuMs < 300, `${cpuMs} ms of CPU in an idle second`);
      assert.deepEqual([rig.context.blocks.leased, rig.context.rests.leased], [0, 0]);
    })(),
  );
});

for (const who of ['client', 'server'] as const) {
  test(`a ${who} that resets while bytes for the other side are stuck costs no CPU`, () => {
    const rig = new Rig({ key: masterKey });
    rig.run(
      (function* () {
        const { client, server, ended } = byHand(rig);
        const [one, other] = who === 'client' ? [client, server] : [server, client];
        client.say(Buffer.from('x'));
        yield () => server.size > 0;
        other.pause();
        if (who === 'client') one.say(patterned(12_000_000, 11));
        else {
          const peer = new PeerSealer(methodName, password);
          one.say(peer.salt);
          for (let i = 0; i < 800; i++) one.say(peer.chunk(patterned(16_000, i)));
        }
        yield* rig.turnsWithin(500, () => {});
        assert.ok(!one.flushed, 'the other side is full');
        one.reset();
        let turns = 0;
        yield* rig.turnsWithin(500, () => {});
        yield* rig.turnsWithin(500, (count) => (turns = count));
        assert.ok(turns <= quietTurns, `with a dead ${who}, the reactor turned ${turns} times in 0.5 s`);
        other.resume();
        yield () => ended.closed === 1 && other.ended !== undefined;
        assert.equal(other.ended, 'ECONNRESET');
        assertNothingHeld(rig);
      })(),
    );
  });
}

test('a pair that is silent for the idle time is reset on both sides', () => {
  const rig = new Rig({ timeouts: { idleMs: 300, halfOpenMs: 5000 } });
  rig.run(
    (function* () {
      const { client, server, ended } = byHand(rig);
      yield () => server.size > 0;
      const startMs = performance.now();
      yield () => ended.closed === 1 && client.ended !== undefined && server.ended !== undefined;
      const silentMs = performance.now() - startMs;
      assert.ok(silentMs > 200 && silentMs < 900, `${silentMs} ms`);
      assert.equal(ended.reason, 'nothing moved until the timeout');
      assert.deepEqual([client.ended, server.ended], ['ECONNRESET', 'ECONNRESET']);
    })(),
  );
});

test('a half-closed pair has the shorter, half-open limit from the moment of the FIN', () => {
  const rig = new Rig({ timeouts: { idleMs: 30_000, halfOpenMs: 400 } });
  rig.run(
    (function* () {
      const { client, server, ended } = byHand(rig);
      yield () => server.size > 0;
      client.finish();
      yield () => server.ended === 'FIN';
      const startMs = performance.now();
      yield () => ended.closed === 1;
      assert.ok(performance.now() - startMs < 900);
      assertNothingHeld(rig);
    })(),
  );
});

test('a pair that is over closes each descriptor once', () => {
  const before = openDescriptors();
  const rig = new Rig();
  rig.run(
    (function* () {
      for (let i = 0; i < 20; i++) {
        const way = wholeWay(rig);
        way.client.say(patterned(10_000, i));
        if (i % 4 === 0) way.target.reset();
        else if (i % 4 === 1) way.client.reset();
        else {
          way.client.finish();
          way.target.finish();
        }
        yield () => way.redir.closed === 1 && way.server.closed === 1;
        yield* rig.turnsWithin(20, () => {});
        way.client.close();
        way.target.close();
      }
      assertNothingHeld(rig);
    })(),
  );
  assert.equal(openDescriptors(), before);
});
