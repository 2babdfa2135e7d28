import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { selectBackend } from '../../src/crypto/aead.js';
import { nobleBackend } from '../../src/crypto/noble.js';
import { Block } from '../../src/linux/memory.js';
import type { PacketVerdict } from '../../src/protocol/packet.js';
import { clientOf, methods2022, now, peer, serverOf, somePlaintext } from '../helpers/packet-2022.js';
import { damaged, fakeSources, onlyKey, openPacket, sealPacket } from '../helpers/packet-vectors.js';
import { fromHex } from '../helpers/vectors.js';

const clientSessionId = 0xaabbccdd00112233n;
const clientIdBytes = fromHex('aabbccdd00112233');

for (const method of methods2022) {
  const key = randomBytes(method.keySize);
  const response = peer(method, [key], { sessionId: 9n, clientSessionId });
  const client = (backend = selectBackend()) =>
    clientOf(method, onlyKey(key), fakeSources(now, clientIdBytes), backend).opener;

  for (const backend of [selectBackend(), nobleBackend]) {
    test(`${method.name}, ${backend.name}: no part of a response is one, nor is one with a bit flipped`, () => {
      const smallest = 16 + 19 + 7 + 16 + (method.hasIdentityHeaders ? 0 : 24);
      const packet = response(0);
      const opener = client(backend);
      for (const [what, other] of damaged(packet))
        assert.equal(openPacket(opener, other), other.length < smallest ? 'short' : 'forged', what);
      assert.equal(openPacket(opener, packet), somePlaintext);
    });
  }

  test(`${method.name}: clocks may differ by 30 s either way and not by 31`, () => {
    for (const [skew, expected] of [
      [-31, 'stale'],
      [-30, somePlaintext],
      [-29, somePlaintext],
      [29, somePlaintext],
      [30, somePlaintext],
      [31, 'stale'],
    ] as const) {
      const opener = client();
      assert.equal(openPacket(opener, response(0, { time: now + skew })), expected, `${skew} s`);
      assert.equal(opener.skewSeconds, skew);
    }
  });

  test(`${method.name}: answers to other sessions are refused, and use up no ID`, () => {
    const opener = client();
    for (const other of [0n, clientSessionId ^ 1n, clientSessionId ^ (1n << 63n), 9n])
      assert.equal(
        openPacket(opener, response(0, { clientSessionId: other })),
        'unknown-session',
        `${other}`,
      );
    assert.equal(openPacket(opener, response(0)), somePlaintext);
  });

  test(`${method.name}: a request sent back, or a server that takes our session ID for its own, is malformed`, () => {
    const session = clientOf(method, onlyKey(key), fakeSources(now, clientIdBytes, randomBytes(24)));
    const request = sealPacket(session.sealer, Buffer.concat([fromHex(somePlaintext), randomBytes(40)]));
    assert.equal(openPacket(session.opener, request), 'malformed');
    assert.equal(openPacket(session.opener, response(0, { sessionId: clientSessionId })), 'malformed');
  });

  test(`${method.name}: authentic answers with a wrong type, padding or address are malformed`, () => {
    const opener = client();
    for (const [what, packet] of Object.entries({
      'type of a request': response(0, { type: 0 }),
      'unknown type': response(0, { type: 255 }),
      'padding to the end': response(0, { paddingSize: 14 }),
      'padding beyond the body': response(0, { paddingSize: 15 }),
      'padding of 65,535': response(0, { paddingSize: 65_535 }),
      'unknown ATYP': response(0, { address: fromHex('02c000020103e8') }),
      'name of length 0': response(0, { address: fromHex('030003e8') }),
      'address cut': response(0, { address: fromHex('04c000020103e8') }),
    }))
      assert.equal(openPacket(opener, packet), 'malformed', what);
    assert.equal(openPacket(opener, response(0)), somePlaintext);
  });

  test(`${method.name}: answers may come in any order, but once`, () => {
    const opener = client();
    for (const id of [0, 1, 2, 5, 3, 4])
      assert.equal(openPacket(opener, response(id)), somePlaintext, `${id}`);
    for (const id of [0, 1, 2, 5, 3, 4]) assert.equal(openPacket(opener, response(id)), 'repeated', `${id}`);
    assert.equal(openPacket(opener, response(9000)), somePlaintext);
    assert.equal(openPacket(opener, response(9000 - 2048)), 'repeated');
  });

  test(`${method.name}: sixteen servers' sessions are known at a time, each with a window of its own`, () => {
    const opener = client();
    const sixteen = Array.from({ length: 16 }, (_, i) => BigInt(i + 1));
    const others = sixteen.filter((id) => id !== 2n);
    for (const sessionId of sixteen)
      assert.equal(openPacket(opener, response(0, { sessionId }), 0), somePlaintext, `${sessionId}`);
    for (const sessionId of sixteen)
      assert.equal(openPacket(opener, response(0, { sessionId }), 0), 'repeated', `${sessionId}`);
    assert.equal(openPacket(opener, response(0, { sessionId: 17n }), 1000), 'unknown-session');
    for (const sessionId of others)
      assert.equal(openPacket(opener, response(1, { sessionId }), 60_000), somePlaintext, `${sessionId}`);
    assert.equal(openPacket(opener, response(0, { sessionId: 17n }), 64_999), 'unknown-session');
    assert.equal(
      openPacket(opener, response(0, { sessionId: 17n }), 65_000),
      somePlaintext,
      'in the place of 2',
    );
    assert.equal(openPacket(opener, response(0, { sessionId: 17n }), 65_000), 'repeated');
    for (const sessionId of others)
      assert.equal(openPacket(opener, response(1, { sessionId }), 65_000), 'repeated', `${sessionId}`);
    assert.equal(openPacket(opener, response(5, { sessionId: 2n }), 66_000), 'unknown-session');
  });

  test(`${method.name}: no forged, stale or malformed answer takes a server session's place`, () => {
    const opener = client();
    for (let i = 0; i < 10; i += 1) {
      const sessionId = BigInt(100 + i);
      const forged = response(0, { sessionId });
      forged[forged.length - 1]! ^= 1;
      assert.equal(openPacket(opener, forged), 'forged');
      assert.equal(openPacket(opener, response(0, { sessionId, time: now - 40 })), 'stale');
      assert.equal(openPacket(opener, response(0, { sessionId, type: 0 })), 'malformed');
    }
    for (const sessionId of [1n, 2n, 3n, 4n])
      assert.equal(openPacket(opener, response(0, { sessionId })), somePlaintext);
  });

  test(`${method.name}: sessions of one client have IDs of their own, and do not open each other's answers`, () => {
    const credentials = onlyKey(key);
    const [first, second] = [clientOf(method, credentials), clientOf(method, credentials)];
    const server = serverOf(method, credentials);
    openPacket(server, sealPacket(first.sealer, fromHex(somePlaintext)));
    const ofFirst = server.session!;
    openPacket(server, sealPacket(second.sealer, fromHex(somePlaintext)));
    assert.notEqual(server.session, ofFirst);
    const answer = sealPacket(ofFirst.sealer, fromHex(somePlaintext));
    assert.equal(openPacket(second.opener, answer), 'unknown-session');
    assert.equal(openPacket(first.opener, answer), somePlaintext);
  });

  test(`${method.name}: 100,000 packets of random bytes are no answers`, () => {
    const opener = client();
    openPacket(opener, response(0));
    const verdicts = new Set<PacketVerdict>();
    const block = Block.allocate(1 << 16);
    for (let i = 0; i < 100_000; i += 1) {
      if (i % 1000 === 0) block.bytes.set(randomBytes(block.size));
      const from = (i * 61) % 60_000;
      const size = i % 10 === 0 ? i % 300 : i % 58;
      verdicts.add(opener.open(block, from, from + size, 0));
    }
    assert.deepEqual([...verdicts].toSorted(), ['forged', 'short']);
  });
}
