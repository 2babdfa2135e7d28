import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { masterKeyFromPassword } from '../../src/crypto/keys.js';
import { createSaltMemory } from '../../src/crypto/replay.js';
import { openDescriptors } from '../../src/linux/rlimit.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { acceptTcp, closeReset, listenTcp, localEndpoint } from '../../src/linux/socket.js';
import { Server } from '../../src/relay/server.js';
import { openStream, PeerSealer, targetAddress } from '../helpers/aead-peer.js';
import {
  methodName,
  password,
  patterned,
  Peer,
  quietTurns,
  Rig,
  type RigOptions,
  socketPair,
} from '../helpers/relay-rig.js';

const masterKey = masterKeyFromPassword(password, 16);
const client = new Endpoint(Uint8Array.of(192, 0, 2, 9), 1);

function serverRig(options: RigOptions = {}): Rig & { server: Server; origin: number; port: number } {
  const rig = new Rig({ key: masterKey, ...options });
  const origin = listenTcp(Endpoint.parse('127.0.0.1', 0)!);
  return Object.assign(rig, {
    server: new Server(rig.context, {
      edition: 'aead',
      memory: createSaltMemory(new Uint8Array(8), 1000),
    }),
    origin,
    port: localEndpoint(origin)!.port,
  });
}

type ServerRig = ReturnType<typeof serverRig>;

function connect(rig: ServerRig): Peer {
  const { accepted, connected } = socketPair();
  rig.context.limits.enter();
  rig.server.onConnection(accepted, client);
  return new Peer(rig.reactor, connected);
}

/** Waits for the server at the origin. */
function* serverAtOrigin(rig: ServerRig, tell: (peer: Peer) => void): Generator<() => boolean, void, void> {
  let fd = -1;
  yield () => (fd = acceptTcp(rig.origin)) >= 0;
  tell(new Peer(rig.reactor, fd));
}

function assertNothingHeld(rig: ServerRig): void {
  assert.deepEqual(
    [rig.context.blocks.leased, rig.context.rests.leased, rig.context.limits.open],
    [0, 0, 0],
    'blocks, rests, connections',
  );
}

const cuts: [string, (address: Buffer, peer: PeerSealer) => Buffer[]][] = [
  ['in one record with the payload', (a, p) => [p.salt, p.chunk(Buffer.concat([a, Buffer.from('hello')]))]],
  ['in a record of its own', (a, p) => [p.salt, p.chunk(a), p.chunk(Buffer.from('hello'))]],
  [
    'a byte a record',
    (a, p) => [p.salt, ...[...a].map((byte) => p.chunk(Buffer.of(byte))), p.chunk(Buffer.from('hello'))],
  ],
  [
    'split between two records, the second with payload',
    (a, p) => [
      p.salt,
      p.chunk(a.subarray(0, 3)),
      p.chunk(Buffer.concat([a.subarray(3), Buffer.from('hello')])),
    ],
  ],
];

for (const [name, make] of cuts) {
  for (const dribbled of [false, true]) {
    test(`an address ${name}${dribbled ? ', dribbled byte by byte,' : ''} reaches its target`, () => {
      const before = openDescriptors();
      const rig = serverRig();
      const before2 = openDescriptors();
      rig.run(
        (function* () {
          const peer = connect(rig);
          const sealer = new PeerSealer(methodName, password);
          const stream = Buffer.concat(make(targetAddress('127.0.0.1', rig.port), sealer));
          if (dribbled) {
            for (const byte of stream) {
              peer.say(Buffer.of(byte));
              const { turns } = rig;
              yield () => rig.turns > turns;
            }
          } else peer.say(stream);
          let target!: Peer;
          yield* serverAtOrigin(rig, (accepted) => (target = accepted));
          yield () => target.size === 5;
          assert.equal(target.bytes.toString(), 'hello');
          target.say(Buffer.from('answer'));
          target.finish();
          peer.finish();
          yield () => rig.context.limits.open === 0 && peer.ended !== undefined && target.ended !== undefined;
          const { chunks } = openStream(methodName, password, peer.bytes);
          assert.equal(Buffer.concat(chunks).toString(), 'answer');
          assert.deepEqual([peer.ended, target.ended], ['FIN', 'FIN']);
          assertNothingHeld(rig);
        })(),
      );
      assert.ok(openDescriptors() < before2, 'no descriptor stayed but the listener');
      closeReset(rig.origin);
      assert.equal(openDescriptors(), before);
    });
  }
}

const replayedSalt = new PeerSealer(methodName, password).salt;
const strangers: [string, (rig: ServerRig) => Buffer[]][] = [
  ['bytes at random', () => [patterned(200, 1)]],
  [
    'another password',
    (rig) => {
      const sealer = new PeerSealer(methodName, 'another');
      return [sealer.salt, sealer.chunk(targetAddress('127.0.0.1', rig.port))];
    },
  ],
  [
    'a changed first payload',
    (rig) => {
      const sealer = new PeerSealer(methodName, password);
      const chunk = sealer.chunk(targetAddress('127.0.0.1', rig.port));
      chunk[chunk.length - 1]! ^= 1;
      return [sealer.salt, chunk];
    },
  ],
  [
    'a length beyond the limit',
    () => {
      const sealer = new PeerSealer(methodName, password);
      return [sealer.salt, sealer.chunk(Buffer.from('x'), 0x4000)];
    },
  ],
  [
    'an address type that there is not',
    () => {
      const sealer = new PeerSealer(methodName, password);
      return [sealer.salt, sealer.chunk(Buffer.from('0900000000000050', 'hex'))];
    },
  ],
  [
    'a salt seen before',
    (rig) => {
      const sealer = new PeerSealer(methodName, password, Buffer.from(replayedSalt));
      return [sealer.salt, sealer.chunk(targetAddress('127.0.0.1', rig.port))];
    },
  ],
];

for (const [name, make] of strangers) {
  test(`a stranger with ${name} hears nothing and is closed between 30 and 60 s after it came`, () => {
    const rig = serverRig();
    rig.run(
      (function* () {
        if (name.includes('seen before')) {
          const first = connect(rig);
          first.say(...make(rig));
          let target!: Peer;
          yield* serverAtOrigin(rig, (accepted) => (target = accepted));
          first.reset();
          yield () => target.ended !== undefined && rig.context.limits.open === 0;
        }
        const cameMs = rig.reactor.nowMs;
        const peer = connect(rig);
        peer.say(...make(rig));
        yield () => rig.lines.some((line) => line.startsWith('failed to handshake with 192.0.2.9:1'));
        assert.deepEqual(
          [rig.context.blocks.leased, rig.context.rests.leased],
          [0, 0],
          'nothing is kept for it',
        );
        peer.say(patterned(500_000, 3)); // thrown away
        let turns = 0;
        yield () => peer.flushed;
        yield* rig.turnsWithin(300, (count) => (turns = count));
        assert.ok(turns <= quietTurns, `${turns} turns`);
        rig.reactor.timers.advance(cameMs + 29_900);
        yield* rig.turnsWithin(100, () => {});
        assert.equal(peer.ended, undefined, 'neither FIN nor RST before 30 s');
        rig.reactor.timers.advance(cameMs + 60_100);
        yield () => peer.ended !== undefined;
        assert.equal(peer.ended, 'FIN', 'closed in order');
        assert.equal(peer.size, 0, 'not a byte was sent');
        assertNothingHeld(rig);
      })(),
    );
    closeReset(rig.origin);
  });
}

test('of 50 strangers at once one line is in the log', () => {
  const rig = serverRig();
  rig.run(
    (function* () {
      const peers = Array.from({ length: 50 }, () => connect(rig));
      for (const peer of peers) peer.say(randomBytes(100));
      yield* rig.turnsWithin(300, () => {});
      const told = rig.lines.filter((line) => line.startsWith('failed to handshake'));
      assert.equal(told.length, 1);
      for (const peer of peers) peer.finish();
      yield () => rig.context.limits.open === 0;
    })(),
  );
  closeReset(rig.origin);
});

test('a stranger that says nothing, or half a salt, is closed at its own FIN', () => {
  for (const said of [0, 1, 15, 16, 33]) {
    const rig = serverRig();
    rig.run(
      (function* () {
        const peer = connect(rig);
        peer.say(patterned(said, 1));
        yield* rig.turnsWithin(60, () => {});
        assert.equal(peer.ended, undefined);
        peer.finish();
        yield () => peer.ended === 'FIN' && rig.context.limits.open === 0;
        assert.equal(peer.size, 0);
        assertNothingHeld(rig);
      })(),
    );
    closeReset(rig.origin);
  }
});

test('a stream that breaks after it was trusted resets the target and drains the client', () => {
  const rig = serverRig();
  rig.run(
    (function* () {
      const peer = connect(rig);
      const sealer = new PeerSealer(methodName, password);
      peer.say(sealer.salt, sealer.chunk(targetAddress('127.0.0.1', rig.port)));
      let target!: Peer;
      yield* serverAtOrigin(rig, (accepted) => (target = accepted));
      const chunk = sealer.chunk(Buffer.from('changed'));
      chunk[0]! ^= 1;
      peer.say(chunk);
      yield () => target.ended !== undefined;
      assert.equal(target.ended, 'ECONNRESET');
      assert.equal(peer.ended, undefined);
      peer.finish();
      yield () => rig.context.limits.open === 0;
      assertNothingHeld(rig);
    })(),
  );
  closeReset(rig.origin);
});

test('a target that refuses gives the client RST, and the log names both', () => {
  const rig = serverRig();
  closeReset(rig.origin);
  rig.run(
    (function* () {
      const peer = connect(rig);
      const sealer = new PeerSealer(methodName, password);
      peer.say(sealer.salt, sealer.chunk(targetAddress('127.0.0.1', rig.port)));
      yield () => peer.ended !== undefined;
      assert.equal(peer.ended, 'ECONNRESET');
      assert.ok(
        rig.lines.includes(`192.0.2.9:1 -> 127.0.0.1:${rig.port}: ECONNREFUSED`),
        rig.lines.join('\n'),
      );
      assertNothingHeld(rig);
    })(),
  );
});

test('a name is asked of the main thread; its addresses are tried in order', () => {
  const rig = serverRig();
  rig.run(
    (function* () {
      const peer = connect(rig);
      const sealer = new PeerSealer(methodName, password);
      const name = Buffer.from('\x03\x0bexample.com\0\0', 'latin1');
      name.writeUInt16BE(rig.port, name.length - 2);
      peer.say(sealer.salt, sealer.chunk(Buffer.concat([name, Buffer.from('hello')])));
      yield () => rig.asked.length === 1;
      assert.equal(rig.asked[0]!.host, 'example.com');
      rig.context.names.answer(rig.asked[0]!.id, { addresses: ['127.0.0.77', '127.0.0.1'] });
      let target!: Peer;
      yield* serverAtOrigin(rig, (accepted) => (target = accepted));
      yield () => target.size === 5;
      peer.reset();
      yield () => target.ended === 'ECONNRESET' && rig.context.limits.open === 0;
      assertNothingHeld(rig);
    })(),
  );
  closeReset(rig.origin);
});

test('a name that does not resolve gives the client RST', () => {
  const rig = serverRig();
  rig.run(
    (function* () {
      const peer = connect(rig);
      const sealer = new PeerSealer(methodName, password);
      peer.say(sealer.salt, sealer.chunk(Buffer.from('\x03\x07invalid\0\x50rest', 'latin1')));
      yield () => rig.asked.length === 1;
      rig.context.names.answer(rig.asked[0]!.id, { failure: 'no such name' });
      yield () => peer.ended === 'ECONNRESET';
      assert.ok(rig.lines.includes('192.0.2.9:1 -> invalid:80: no such name'), rig.lines.join('\n'));
      assertNothingHeld(rig);
    })(),
  );
  closeReset(rig.origin);
});

test('half a record keeps no block for a batch, and a request waits while none is free', () => {
  const rig = serverRig({ blocks: 2 });
  const { blocks } = rig.context;
  rig.run(
    (function* () {
      const peer = connect(rig);
      const sealer = new PeerSealer(methodName, password);
      const chunk = sealer.chunk(Buffer.concat([targetAddress('127.0.0.1', rig.port), patterned(8000, 1)]));
      peer.say(sealer.salt, chunk.subarray(0, 5000));
      yield () => rig.context.rests.leased === 1;
      assert.equal(blocks.leased, 0);
      const held = [blocks.lease()!, blocks.lease()!];
      peer.say(chunk.subarray(5000));
      let turns = 0;
      yield* rig.turnsWithin(300, (count) => (turns = count));
      assert.ok(turns <= quietTurns, `${turns} turns while it waits`);
      assert.equal(peer.ended, undefined);
      for (const block of held) blocks.release(block);
      let target!: Peer;
      yield* serverAtOrigin(rig, (accepted) => (target = accepted));
      yield () => target.size === 8000;
      peer.reset();
      yield () => target.ended === 'ECONNRESET' && rig.context.limits.open === 0;
      assertNothingHeld(rig);
    })(),
  );
  closeReset(rig.origin);
});

test('a request that waits for a block until its deadline leaves nothing behind', () => {
  const rig = serverRig({ blocks: 2 });
  const { blocks } = rig.context;
  rig.run(
    (function* () {
      const held = [blocks.lease()!, blocks.lease()!];
      const peer = connect(rig);
      peer.say(patterned(10, 1));
      yield* rig.turnsWithin(100, () => {});
      rig.reactor.timers.advance(rig.reactor.nowMs + 61_000);
      yield () => rig.context.limits.open === 0 && peer.ended !== undefined;
      for (const block of held) blocks.release(block); // whoever has the descriptor now must not hear of it
      assertNothingHeld(rig);
    })(),
  );
  closeReset(rig.origin);
});

test('a stranger that resets while no block is free costs no CPU and is gone afterwards', () => {
  const rig = serverRig({ blocks: 2 });
  const { blocks } = rig.context;
  rig.run(
    (function* () {
      const held = [blocks.lease()!, blocks.lease()!];
      const peer = connect(rig);
      peer.say(patterned(10, 1));
      yield* rig.turnsWithin(50, () => {});
      peer.reset();
      let turns = 0;
      yield* rig.turnsWithin(300, (count) => (turns = count));
      assert.ok(turns <= quietTurns, `${turns} turns`);
      for (const block of held) blocks.release(block);
      yield () => rig.context.limits.open === 0;
      assertNothingHeld(rig);
    })(),
  );
  closeReset(rig.origin);
});
