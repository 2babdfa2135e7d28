import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { selectBackend } from '../../src/crypto/aead.js';
import { findMethod, methods } from '../../src/crypto/methods.js';
import { nobleBackend } from '../../src/crypto/noble.js';
import { createSaltMemory, SaltFilter } from '../../src/crypto/replay.js';
import { Block } from '../../src/linux/memory.js';
import { createClientPackets, createServerPackets } from '../../src/protocol/packets.js';
import { packet2017, someAddress } from '../helpers/packet-peer.js';
import {
  damaged,
  fakeSources,
  onlyKey,
  openPacket,
  packetVectors,
  sealPacket,
} from '../helpers/packet-vectors.js';
import { fromHex, toHex } from '../helpers/vectors.js';

const openssl = selectBackend();
const methods2017 = methods.filter(({ edition }) => edition === 'aead');
const plaintext = Buffer.concat([someAddress, Buffer.from('payload')]);

test('there are vectors of every method', () => {
  const names = new Set(packetVectors.aead_udp.map(({ method }) => method));
  assert.deepEqual([...names].toSorted(), methods2017.map(({ name }) => name).toSorted());
});

for (const backend of [openssl, nobleBackend]) {
  test(`${backend.name}: packets are sealed as in the vectors, by client and by server`, () => {
    for (const vector of packetVectors.aead_udp) {
      const method = findMethod(vector.method)!;
      const credentials = onlyKey(fromHex(vector.key_hex));
      const salt = fromHex(vector.salt_hex);
      const client = createClientPackets(backend, method, credentials, fakeSources(0, salt))().sealer;
      const server = createServerPackets(backend, method, credentials, limits(), fakeSources(0, salt));
      for (const sealer of [client, server.sealer!])
        assert.equal(toHex(sealPacket(sealer, fromHex(vector.plaintext_hex))), vector.packet_hex, vector.id);
    }
  });

  test(`${backend.name}: packets of the vectors are opened, by client and by server`, () => {
    for (const vector of packetVectors.aead_udp) {
      const method = findMethod(vector.method)!;
      const credentials = onlyKey(fromHex(vector.key_hex));
      const client = createClientPackets(backend, method, credentials)().opener;
      const server = createServerPackets(backend, method, credentials, limits());
      for (const opener of [client, server])
        assert.equal(openPacket(opener, fromHex(vector.packet_hex)), vector.plaintext_hex, vector.id);
    }
  });
}

for (const method of methods2017) {
  const key = randomBytes(method.keySize);

  for (const backend of [openssl, nobleBackend]) {
    test(`${method.name}, ${backend.name}: no part of a packet is a packet, nor is one with a bit flipped`, () => {
      const packet = packet2017(method, key, plaintext);
      const smallest = method.saltSize + 5 + 16;
      const opener = clientOf(method, key, backend).opener;
      for (const [what, other] of damaged(packet)) {
        const expected = other.length < smallest ? 'short' : 'forged';
        assert.equal(openPacket(opener, other), expected, what);
      }
      assert.equal(openPacket(opener, packet), toHex(plaintext));
    });
  }

  test(`${method.name}: every size of payload gets through, none and 65,000 bytes included`, () => {
    const { sealer } = clientOf(method, key);
    const { opener } = clientOf(method, key); // another: this one would know its own packets
    for (const size of [0, 1, 15, 16, 17, 128, 512, 1200, 1472, 4096, 9000, 65_000]) {
      const packet = sealPacket(sealer, Buffer.concat([someAddress, randomBytes(size)]));
      assert.equal(packet.length, method.saltSize + someAddress.length + size + 16);
      const opened = openPacket(opener, packet);
      assert.equal(opened.length, 2 * (someAddress.length + size), `${size} bytes`);
      assert.equal(
        toHex(packet2017(method, key, fromHex(opened), packet.subarray(0, method.saltSize))),
        toHex(packet),
      );
    }
  });

  test(`${method.name}: a packet without a whole address is malformed`, () => {
    const { opener } = clientOf(method, key);
    for (const bad of badAddresses)
      assert.equal(openPacket(opener, packet2017(method, key, fromHex(bad))), 'malformed', bad);
  });

  test(`${method.name}: a server accepts a packet once, and forged copies of it before change nothing`, () => {
    const server = createServerPackets(openssl, method, onlyKey(key), limits());
    const packet = packet2017(method, key, plaintext);
    const forged = Uint8Array.from(packet);
    forged[packet.length - 1]! ^= 1;
    assert.equal(openPacket(server, forged), 'forged');
    assert.equal(openPacket(server, packet), toHex(plaintext));
    assert.equal(openPacket(server, packet), 'repeated');
    assert.equal(openPacket(server, forged), 'forged');
  });

  test(`${method.name}: a server refuses its own packet when it comes back`, () => {
    const server = createServerPackets(openssl, method, onlyKey(key), limits());
    const packet = sealPacket(server.sealer!, plaintext);
    assert.equal(openPacket(clientOf(method, key).opener, packet), toHex(plaintext));
    assert.equal(openPacket(server, packet), 'repeated');
  });

  test(`${method.name}: 100,000 packets of random bytes are all refused`, () => {
    const server = createServerPackets(openssl, method, onlyKey(key), limits());
    assert.deepEqual(fuzz(server), ['forged', 'short']);
  });
}

test('a client refuses an answer that comes twice, and its own packet when it comes back', () => {
  for (const method of methods2017) {
    const key = randomBytes(method.keySize);
    const { opener, sealer } = clientOf(method, key);
    const packet = packet2017(method, key, plaintext);
    assert.equal(openPacket(opener, packet), toHex(plaintext));
    assert.equal(openPacket(opener, packet), 'repeated');
    assert.equal(openPacket(opener, sealPacket(sealer, plaintext)), 'repeated');
  }
});

test('all sessions of a client share one codec, and no two packets a salt', () => {
  const [method] = methods2017;
  const begin = createClientPackets(openssl, method!, onlyKey(randomBytes(method!.keySize)));
  assert.equal(begin(), begin());
  const salts = Array.from({ length: 2000 }, () =>
    toHex(sealPacket(begin().sealer, plaintext).subarray(0, 16)),
  );
  assert.equal(new Set(salts).size, 2000);
});

test('identity keys and users are refused', () => {
  const [method] = methods2017;
  const key = randomBytes(method!.keySize);
  const withUsers = { key, identityKeys: [], users: [{ name: 'a', key }] };
  assert.throws(() => createServerPackets(openssl, method!, withUsers, limits()), RangeError);
  const withIdentity = { key, identityKeys: [key], users: [] };
  assert.throws(() => createClientPackets(openssl, method!, withIdentity), RangeError);
});

// ATYP, then what is wrong: an unknown type, a name of length 0, an address cut short; long enough to be opened.
const badAddresses = [
  '00c000020103e8',
  '02c000020103e8',
  '11c000020103e8',
  'ffc000020103e8',
  '030003e80000',
  '03ff6103e80000',
  '01c0000201e8',
  `04${'20'.repeat(17)}`,
];

function clientOf(method: (typeof methods)[number], key: Uint8Array, backend = openssl) {
  return createClientPackets(backend, method, onlyKey(key))();
}

function limits() {
  return { salts: new SaltFilter(createSaltMemory(randomBytes(8), 1000)), maxSessions: 10 };
}

/** Which verdicts 100,000 random packets get. */
function fuzz(server: ReturnType<typeof createServerPackets>): string[] {
  const verdicts = new Set<string>();
  const block = Block.allocate(1 << 16);
  for (let i = 0; i < 100_000; i += 1) {
    if (i % 1000 === 0) block.bytes.set(randomBytes(block.size));
    const from = (i * 61) % 60_000;
    verdicts.add(server.open(block, from, from + (i % 150), 0));
  }
  return [...verdicts].toSorted();
}
