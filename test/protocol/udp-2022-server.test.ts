import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { selectBackend } from '../../src/crypto/aead.js';
import { findMethod } from '../../src/crypto/methods.js';
import { nobleBackend } from '../../src/crypto/noble.js';
import { Block } from '../../src/linux/memory.js';
import type { PacketVerdict, ServerPackets } from '../../src/protocol/packet.js';
import { clientOf, methods2022, now, peer, serverOf, somePlaintext } from '../helpers/packet-2022.js';
import { damaged, fakeSources, onlyKey, openPacket, sealPacket } from '../helpers/packet-vectors.js';
import { fromHex } from '../helpers/vectors.js';

const aes128 = findMethod('2022-blake3-aes-128-gcm')!;

for (const method of methods2022) {
  const key = randomBytes(method.keySize);
  const request = peer(method, [key]);
  const smallest = 16 + 11 + 5 + 16 + (method.hasIdentityHeaders ? 0 : 24);

  for (const backend of [selectBackend(), nobleBackend]) {
    test(`${method.name}, ${backend.name}: no part of a request is one, nor is one with a bit flipped, and no session begins`, () => {
      const server = sized(serverOf(method, onlyKey(key), { backend }));
      const packet = request(0);
      for (const [what, other] of damaged(packet))
        assert.equal(openPacket(server, other), other.length < smallest ? 'short' : 'forged', what);
      assert.equal(server.size, 0);
      assert.equal(openPacket(server, packet), somePlaintext);
      assert.equal(server.size, 1);
    });
  }

  test(`${method.name}: damaged packets of a known session are refused and move no window`, () => {
    const server = sized(serverOf(method, onlyKey(key)));
    openPacket(server, request(0));
    const packet = request(1);
    for (const [what, other] of damaged(packet))
      assert.equal(openPacket(server, other), other.length < smallest ? 'short' : 'forged', what);
    assert.equal(openPacket(server, packet), somePlaintext);
    assert.equal(server.size, 1);
  });

  test(`${method.name}: clocks may differ by 30 s either way and not by 31`, () => {
    for (const [skew, expected] of [
      [-31, 'stale'],
      [-30, somePlaintext],
      [-29, somePlaintext],
      [0, somePlaintext],
      [29, somePlaintext],
      [30, somePlaintext],
      [31, 'stale'],
    ] as const) {
      const server = serverOf(method, onlyKey(key));
      assert.equal(openPacket(server, request(0, { time: now + skew })), expected, `${skew} s`);
      assert.equal(server.skewSeconds, skew);
    }
  });

  test(`${method.name}: a time that no clock has is stale, whatever its bits`, () => {
    for (const time of [0n, 2n ** 32n + BigInt(now), 2n ** 53n, 2n ** 63n + BigInt(now), 2n ** 64n - 1n]) {
      const server = serverOf(method, onlyKey(key));
      assert.equal(openPacket(server, request(0, { time })), 'stale', `${time}`);
      assert.equal(Math.sign(server.skewSeconds), time === 0n ? -1 : 1, `${time}`);
    }
  });

  test(`${method.name}: authentic packets that say nothing allowed are malformed, and leave no trace`, () => {
    const server = sized(serverOf(method, onlyKey(key)));
    const address = '01c000020103e8';
    const bodies = {
      'type of a response': request(0, { type: 1 }),
      'unknown type': request(0, { type: 2 }),
      'padding to the end of the body': request(0, { paddingSize: 7 + 7 }),
      'padding beyond the body': request(0, { paddingSize: 7 + 8 }),
      'padding of 65,535': request(0, { paddingSize: 65_535 }),
      'padding that eats one byte of the address': request(0, { paddingSize: 1 }),
      'padding that leaves one byte': request(0, { paddingSize: 13 }),
      'unknown ATYP': request(0, { address: fromHex(`02${address.slice(2)}`) }),
      'ATYP with flags': request(0, { address: fromHex(`11${address.slice(2)}`) }),
      'name of length 0': request(0, { address: fromHex('030003e8') }),
      'name beyond the body': request(0, { address: fromHex('03ff'), payload: new Uint8Array(256) }),
      'IPv6 address cut': request(0, {
        address: fromHex(`04${'20'.repeat(17)}`),
        payload: new Uint8Array(0),
      }),
      'no address': request(0, { address: new Uint8Array(0), payload: new Uint8Array(5) }),
    };
    for (const [what, packet] of Object.entries(bodies))
      assert.equal(openPacket(server, packet), 'malformed', what);
    assert.equal(server.size, 0);
    assert.equal(openPacket(server, request(0)), somePlaintext);
    assert.equal(openPacket(server, request(1, { type: 1 })), 'malformed');
    assert.equal(openPacket(server, request(1)), somePlaintext, 'the ID was not used up');
  });

  test(`${method.name}: padding up to the last address and beyond 900 bytes is passed over`, () => {
    const server = serverOf(method, onlyKey(key));
    for (const [i, size] of [1, 900, 901, 5000].entries()) {
      const packet = request(i, { padding: randomBytes(size), payload: new Uint8Array(0) });
      assert.equal(openPacket(server, packet), somePlaintext.slice(0, 14), `${size} bytes`);
    }
  });

  test(`${method.name}: packets may come in any order, but once`, () => {
    const server = serverOf(method, onlyKey(key));
    for (const id of [0, 1, 2, 5, 3, 4])
      assert.equal(openPacket(server, request(id)), somePlaintext, `${id}`);
    for (const id of [0, 1, 2, 5, 3, 4]) assert.equal(openPacket(server, request(id)), 'repeated', `${id}`);
    assert.equal(openPacket(server, request(10_000)), somePlaintext);
    assert.equal(openPacket(server, request(10_000 - 2048)), 'repeated', 'behind the window');
    assert.equal(openPacket(server, request(10_000 - 2047)), somePlaintext);
    assert.equal(openPacket(server, request(2n ** 64n - 1n)), somePlaintext);
    assert.equal(openPacket(server, request(2n ** 64n - 1n)), 'repeated');
    assert.equal(openPacket(server, request(10_001)), 'repeated');
  });

  test(`${method.name}: a forged packet of the highest ID does not shut out those that follow`, () => {
    const server = serverOf(method, onlyKey(key));
    assert.equal(openPacket(server, request(0)), somePlaintext);
    const forged = request(2n ** 64n - 1n);
    forged[forged.length - 1]! ^= 1;
    assert.equal(openPacket(server, forged), 'forged');
    assert.equal(openPacket(server, request(2n ** 64n - 1n, { time: now - 31 })), 'stale');
    assert.equal(openPacket(server, request(1)), somePlaintext);
  });

  test(`${method.name}: sessions are told apart by the client's session ID and keep their state`, () => {
    const server = serverOf<string>(method, onlyKey(key));
    for (const [i, sessionId] of [1n, 2n, 2n ** 32n + 1n, 2n ** 64n - 1n].entries()) {
      assert.equal(openPacket(server, request(0, { sessionId })), somePlaintext);
      assert.equal(server.session!.state, undefined);
      assert.equal(server.session!.user, -1);
      server.session!.state = `session ${i}`;
    }
    for (const [i, sessionId] of [1n, 2n, 2n ** 32n + 1n, 2n ** 64n - 1n].entries()) {
      assert.equal(openPacket(server, request(1, { sessionId })), somePlaintext);
      assert.equal(server.session!.state, `session ${i}`);
    }
  });

  test(`${method.name}: a session without state is kept for 65 s of silence, with window and own ID`, () => {
    const server = sized(serverOf<string>(method, onlyKey(key)));
    openPacket(server, request(0), 0);
    const { sealer } = server.session!;
    server.session!.state = 'busy';
    server.expire(1_000_000);
    assert.equal(server.size, 1, 'it has state');
    openPacket(server, request(1), 1_000_000);
    server.session!.state = undefined;
    server.expire(1_064_999);
    assert.equal(openPacket(server, request(1), 1_064_999), 'repeated');
    assert.equal(openPacket(server, request(2), 1_064_999), somePlaintext);
    assert.equal(server.session!.sealer, sealer, 'its ID and its counter go on');
    server.expire(1_129_998);
    assert.equal(server.size, 1);
    server.expire(1_129_999);
    assert.equal(server.size, 0);
    assert.equal(openPacket(server, request(2), 1_130_000), somePlaintext);
    assert.notEqual(server.session!.sealer, sealer);
  });

  test(`${method.name}: at the cap new sessions are refused until an old one may go`, () => {
    const server = sized(serverOf<string>(method, onlyKey(key), { maxSessions: 3 }));
    for (const sessionId of [1n, 2n, 3n])
      assert.equal(openPacket(server, request(0, { sessionId }), 1000), somePlaintext);
    assert.equal(openPacket(server, request(0, { sessionId: 4n }), 10_000), 'no-room');
    const forged = request(0, { sessionId: 4n });
    forged[50]! ^= 1;
    assert.equal(openPacket(server, forged, 10_000), 'forged', 'only who has the key is told from others');
    assert.equal(
      openPacket(server, request(1, { sessionId: 1n }), 20_000),
      somePlaintext,
      'known ones go on',
    );
    server.session!.state = 'busy';
    openPacket(server, request(1, { sessionId: 2n }), 20_000);
    assert.equal(openPacket(server, request(0, { sessionId: 4n }), 65_999), 'no-room');
    assert.equal(openPacket(server, request(0, { sessionId: 4n }), 67_000), somePlaintext, '3 went');
    assert.equal(openPacket(server, request(0, { sessionId: 3n }), 70_000), 'no-room');
    openPacket(server, request(1, { sessionId: 4n }), 80_000);
    assert.equal(openPacket(server, request(0, { sessionId: 3n }), 85_000), somePlaintext, '2 went');
    assert.equal(openPacket(server, request(1, { sessionId: 1n }), 85_000), 'repeated', '1 is busy');
    assert.equal(server.size, 3);
  });

  test(`${method.name}: a client that begins sessions without end leaves a fifth to others, who always get in`, () => {
    let client = 0;
    const clientShare = (): number => client;
    const server = sized(serverOf(method, onlyKey(key), { maxSessions: 100, clientShare }));
    const begins = (id: number): boolean =>
      openPacket(server, request(0, { sessionId: BigInt(id) }), 1000) === somePlaintext;
    const count = (from: number): number =>
      Array.from({ length: 200 }, (_, i) => begins(from + i)).filter(Boolean).length;
    assert.equal(count(1000), 80);
    client = 1;
    assert.equal(count(2000), 16, 'four fifths of what is left');
    client = 2;
    assert.equal(count(3000), 4);
    assert.equal(server.size, 100);
    server.expire(66_000);
    assert.equal(server.size, 0);
    client = 0;
    assert.equal(count(4000), 80, 'what has gone is given back to whom it was of');
  });

  test(`${method.name}: 100,000 packets of random bytes are all refused, and begin no session`, () => {
    const server = sized(serverOf(method, onlyKey(key)));
    openPacket(server, request(0));
    const verdicts = new Set<PacketVerdict>();
    const block = Block.allocate(1 << 16);
    for (let i = 0; i < 100_000; i += 1) {
      if (i % 1000 === 0) block.bytes.set(randomBytes(block.size));
      const from = (i * 61) % 60_000;
      // Most are too short for any cryptography but one that costs nothing; BLAKE3 takes its time.
      const size = i % 10 === 0 ? i % 300 : i % 48;
      verdicts.add(server.open(block, from, from + size, 0));
    }
    assert.deepEqual([...verdicts].toSorted(), ['forged', 'short']);
    assert.equal(server.size, 1);
  });

  test(`${method.name}: 2,000 authentic packets of random bodies are read or refused, and nothing is thrown`, () => {
    const server = serverOf(method, onlyKey(key));
    const verdicts = new Set<string>();
    for (let i = 0; i < 2000; i += 1) {
      const body = Buffer.from(packetBody(i));
      const opened = openPacket(server, request(i, { body }));
      verdicts.add(/^[0-9a-f]*$/.test(opened) ? 'accepted' : opened);
    }
    assert.deepEqual([...verdicts].toSorted(), ['accepted', 'malformed', 'short', 'stale']);
  });
}

test("a server's session ID is never the client's", () => {
  const key = randomBytes(16);
  const client = fromHex('00000000000000aa');
  const own = fromHex('00000000000000bb');
  const sources = fakeSources(now, new Uint8Array(8), client, client, own);
  const server = serverOf(aes128, onlyKey(key), { sources });
  openPacket(server, peer(aes128, [key], { sessionId: 0xaan })(0));
  assert.deepEqual(sources.random, []);
  const response = sealPacket(server.session!.sealer, fromHex(somePlaintext));
  const { opener } = clientOf(aes128, onlyKey(key), fakeSources(now, client));
  assert.equal(openPacket(opener, response), somePlaintext);
});

for (const method of methods2022.filter(({ hasIdentityHeaders }) => hasIdentityHeaders)) {
  const [ipsk, alice, bob] = [0, 1, 2].map(() => randomBytes(method.keySize)) as [Buffer, Buffer, Buffer];
  const users = [
    { name: 'alice', key: alice },
    { name: 'bob', key: bob },
  ];
  const credentials = { key: ipsk, identityKeys: [], users };
  const ofAlice = peer(method, [ipsk, alice]);
  const ofBob = peer(method, [ipsk, bob]);

  test(`${method.name}: two users with the same session ID have sessions of their own`, () => {
    const server = serverOf<string>(method, credentials);
    assert.equal(openPacket(server, ofAlice(0)), somePlaintext);
    assert.equal(server.session!.user, 0);
    server.session!.state = 'of alice';
    assert.equal(openPacket(server, ofBob(0)), somePlaintext);
    assert.equal(server.session!.user, 1);
    assert.equal(server.session!.state, undefined);
    assert.equal(openPacket(server, ofBob(7)), somePlaintext);
    assert.equal(openPacket(server, ofAlice(7)), somePlaintext, "bob's window is not alice's");
    assert.equal(server.session!.state, 'of alice');
    assert.equal(openPacket(server, ofAlice(7)), 'repeated');
  });

  test(`${method.name}: a user that begins sessions without end is refused, and another always gets in`, () => {
    const server = serverOf<string>(method, credentials, { maxSessions: 100, clientShare: () => 0 });
    const begins = (from: typeof ofAlice, id: number): string =>
      openPacket(server, from(0, { sessionId: BigInt(id) }), 1000);
    const most = 12 + 61; // session-shares.ts
    for (let id = 1; id <= most; id++) assert.equal(begins(ofAlice, id), somePlaintext);
    for (let id = most + 1; id <= 200; id++) assert.equal(begins(ofAlice, id), 'no-room');
    for (let id = 1; id <= 24; id++) assert.equal(begins(ofBob, id), somePlaintext);
    assert.equal(openPacket(server, ofAlice(1, { sessionId: 1n }), 1000), somePlaintext, 'known ones go on');
  });

  test(`${method.name}: each user's answers open for that user only`, () => {
    const server = serverOf(method, credentials);
    for (const [key, other] of [
      [alice, bob],
      [bob, alice],
    ]) {
      const client = clientOf(method, { key: key!, identityKeys: [ipsk], users: [] });
      openPacket(server, sealPacket(client.sealer, fromHex(somePlaintext)));
      const response = sealPacket(server.session!.sealer, fromHex(somePlaintext));
      assert.equal(openPacket(client.opener, response), somePlaintext);
      const stranger = clientOf(method, { key: other!, identityKeys: [ipsk], users: [] });
      assert.equal(openPacket(stranger.opener, response), 'forged');
    }
  });

  test(`${method.name}: nobody's identity, none, or one too many is forged`, () => {
    const server = sized(serverOf(method, credentials));
    const stranger = randomBytes(method.keySize);
    const payload = randomBytes(100);
    for (const keys of [[ipsk, stranger], [ipsk, ipsk], [ipsk], [alice], [ipsk, ipsk, alice]])
      assert.equal(openPacket(server, peer(method, keys)(0, { payload })), 'forged');
    assert.equal(openPacket(serverOf(method, onlyKey(ipsk)), ofAlice(0)), 'forged');
    assert.equal(server.size, 0);
  });

  test(`${method.name}: no part of a request with an identity is one, nor is one with a bit flipped`, () => {
    const server = sized(serverOf(method, credentials));
    const packet = ofAlice(0);
    for (const [what, other] of damaged(packet)) {
      const smallest = 16 + 16 + 11 + 5 + 16;
      assert.equal(openPacket(server, other), other.length < smallest ? 'short' : 'forged', what);
    }
    assert.equal(server.size, 0);
    assert.equal(openPacket(server, packet), somePlaintext);
  });
}

test('1,000 users are told apart', () => {
  const ipsk = randomBytes(16);
  const users = Array.from({ length: 1000 }, (_, i) => ({ name: `${i}`, key: randomBytes(16) }));
  const server = serverOf(aes128, { key: ipsk, identityKeys: [], users }, { maxSessions: 1000 });
  for (const [i, user] of users.entries()) {
    assert.equal(openPacket(server, peer(aes128, [ipsk, user.key])(0)), somePlaintext);
    assert.equal(server.session!.user, i);
  }
});

test('identity keys and users are refused where the method has none', () => {
  const method = findMethod('2022-blake3-chacha20-poly1305')!;
  const key = randomBytes(32);
  const users = [{ name: 'a', key }];
  assert.throws(() => serverOf(method, { key, identityKeys: [], users }), RangeError);
  assert.throws(() => clientOf(method, { key, identityKeys: [key], users: [] }), RangeError);
});

/** The server knows how many sessions it remembers; the relay does not ask. */
function sized<State>(server: ServerPackets<State>): ServerPackets<State> & { size: number } {
  assert.ok('size' in server);
  return server as ServerPackets<State> & { size: number };
}

/** Bytes of any kind, with a good beginning more often than not. */
function packetBody(i: number): Uint8Array {
  const body = randomBytes(i % 60);
  const good = Buffer.from(`00${now.toString(16).padStart(16, '0')}0000`, 'hex');
  good.copy(body, 0, 0, [0, 1, 9, 10, 11][i % 5]);
  if (i % 2 === 0 && body.length > 11) body[11] = [1, 3, 4, 5][(i >> 1) % 4]!;
  return body;
}
