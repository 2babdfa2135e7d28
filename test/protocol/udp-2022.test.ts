import assert from 'node:assert/strict';
import { test } from 'node:test';
import { selectBackend } from '../../src/crypto/aead.js';
import type { Credentials } from '../../src/crypto/credentials.js';
import { findMethod } from '../../src/crypto/methods.js';
import { nobleBackend } from '../../src/crypto/noble.js';
import type { PacketSealer } from '../../src/protocol/packet.js';
import { systemSources } from '../../src/protocol/packet-sources.js';
import { clientOf, methods2022, now, peer, serverOf } from '../helpers/packet-2022.js';
import {
  fakeSources,
  fromBase64,
  onlyKey,
  openPacket,
  packetVectors,
  sealPacket,
  type Udp2022Vector,
} from '../helpers/packet-vectors.js';
import { fromHex, toHex } from '../helpers/vectors.js';

const backends = [selectBackend(), nobleBackend];

test('there are vectors of every method, with none, one and two identity keys', () => {
  const names = new Set(packetVectors.ss2022_udp.map(({ method }) => method));
  assert.deepEqual([...names].toSorted(), methods2022.map(({ name }) => name).toSorted());
  assert.deepEqual(
    [...new Set(packetVectors.ss2022_udp.map((vector) => vector.ipsks_b64.length))],
    [0, 1, 2],
  );
});

for (const backend of backends) {
  test(`${backend.name}: requests are sealed as in the vectors`, () => {
    for (const vector of vectorsOf('request')) {
      const sources = fakeSources(vector.timestamp, fromHex(vector.session_id_hex));
      const { sealer } = clientOf(methodOf(vector), clientCredentials(vector), sources, backend);
      assert.equal(sealAs(vector, sealer, sources), vector.packet_hex, vector.id);
    }
  });

  test(`${backend.name}: responses are sealed as in the vectors`, () => {
    for (const vector of vectorsOf('response')) {
      const sources = fakeSources(now, new Uint8Array(8), fromHex(vector.session_id_hex));
      const server = serverOf(methodOf(vector), serverCredentials(vector), { sources, backend });
      const keys = [...vector.ipsks_b64.slice(-1), vector.psk_b64].map(fromBase64);
      const sessionId = BigInt(`0x${vector.client_session_id_hex}`);
      const verdict = openPacket(server, peer(methodOf(vector), keys, { sessionId })(0));
      assert.equal(verdict, openedHex, vector.id);
      sources.now = vector.timestamp;
      assert.equal(sealAs(vector, server.session!.sealer, sources), vector.packet_hex, vector.id);
    }
  });

  test(`${backend.name}: requests of the vectors are opened`, () => {
    for (const vector of vectorsOf('request')) {
      if (vector.ipsks_b64.length > 1) continue; // for a relay, not for a server
      const server = serverOf(methodOf(vector), serverCredentials(vector), { backend });
      const expected = vector.address_hex + vector.payload_hex;
      assert.equal(openPacket(server, fromHex(vector.packet_hex)), expected, vector.id);
      assert.equal(server.session!.user, vector.ipsks_b64.length - 1, vector.id);
    }
  });

  test(`${backend.name}: requests that a relay passed on are opened by the server behind it`, () => {
    const relayed = packetVectors.ss2022_udp.filter((vector) => vector.after_first_relay !== undefined);
    assert.equal(relayed.length, 2);
    for (const vector of relayed) {
      const behind = { ...vector, ipsks_b64: vector.ipsks_b64.slice(1) };
      const server = serverOf(methodOf(vector), serverCredentials(behind), { backend });
      const expected = vector.address_hex + vector.payload_hex;
      assert.equal(openPacket(server, fromHex(vector.after_first_relay!.packet_hex)), expected, vector.id);
    }
  });

  test(`${backend.name}: responses of the vectors are opened`, () => {
    for (const vector of vectorsOf('response')) {
      const sources = fakeSources(now, fromHex(vector.client_session_id_hex!));
      const { opener } = clientOf(methodOf(vector), clientCredentials(vector), sources, backend);
      const expected = vector.address_hex + vector.payload_hex;
      assert.equal(openPacket(opener, fromHex(vector.packet_hex)), expected, vector.id);
    }
  });

  test(`${backend.name}: packets are accepted and refused as in the vectors`, () => {
    const verdicts = new Map<string, string>();
    for (const check of packetVectors.ss2022_udp_checks) {
      const method = findMethod(check.method)!;
      const credentials = onlyKey(fromBase64(check.psk_b64));
      const sources = fakeSources(check.now, fromHex(check.client_session_id_hex), new Uint8Array(8));
      const opener =
        check.role === 'server'
          ? serverOf(method, credentials, { sources, backend })
          : clientOf(method, credentials, sources, backend).opener;
      const opened = openPacket(opener, fromHex(check.packet_hex));
      const accepted = /^[0-9a-f]+$/.test(opened);
      assert.equal(accepted, check.expect === 'accept', check.id);
      if (!accepted) verdicts.set(check.id.split('/')[2]!, opened);
    }
    assert.deepEqual(Object.fromEntries(verdicts), {
      'timestamp-plus-31': 'stale',
      'timestamp-minus-31': 'stale',
      'type-wrong': 'malformed',
      'padding-beyond-body': 'malformed',
      'client-session-mismatch': 'unknown-session',
      'atyp-unknown': 'malformed',
      'body-truncated': 'short',
    });
  });
}

for (const method of methods2022) {
  const key = new Uint8Array(method.keySize).fill(5);

  test(`${method.name}: packets get through both ways at every size of payload`, () => {
    const client = clientOf(method, onlyKey(key));
    const server = serverOf(method, onlyKey(key));
    for (const size of [0, 1, 15, 16, 17, 128, 512, 1200, 1472, 4096, 9000, 65_000]) {
      const plaintext = Buffer.concat([address(443), Buffer.alloc(size, size)]);
      const request = sealPacket(client.sealer, plaintext);
      assert.equal(openPacket(server, request), toHex(plaintext), `request of ${size} bytes`);
      const response = sealPacket(server.session!.sealer, plaintext);
      assert.equal(openPacket(client.opener, response), toHex(plaintext), `response of ${size} bytes`);
    }
  });

  test(`${method.name}: only DNS and empty payloads are padded, by 1 to 900 bytes, never beyond 1,452`, () => {
    const client = clientOf(method, onlyKey(key));
    const server = serverOf(method, onlyKey(key));
    openPacket(server, sealPacket(client.sealer, address(53)));
    for (const sealer of [client.sealer, server.session!.sealer]) {
      const bare = bareSize(sealer, method.name);
      const paddings = (port: number, size: number, count: number) =>
        Array.from({ length: count }, () => {
          const packet = sealPacket(sealer, Buffer.concat([address(port), Buffer.alloc(size, 1)]));
          return packet.length - bare - size;
        });
      assert.deepEqual(new Set(paddings(443, 1, 50)), new Set([0]));
      for (const [port, size] of [
        [53, 40],
        [443, 0],
        [53, 0],
      ] as const) {
        const sizes = paddings(port, size, 600);
        assert.ok(Math.min(...sizes) >= 1 && Math.min(...sizes) < 50, `port ${port}: ${Math.min(...sizes)}`);
        assert.ok(
          Math.max(...sizes) <= 900 && Math.max(...sizes) > 850,
          `port ${port}: ${Math.max(...sizes)}`,
        );
      }
      const full = 1452 - bare;
      assert.deepEqual(new Set(paddings(53, full - 1, 20)), new Set([1]));
      assert.deepEqual(new Set(paddings(53, full, 20)), new Set([0]));
      assert.deepEqual(new Set(paddings(53, full + 1, 20)), new Set([0]));
      assert.ok(Math.max(...paddings(53, full - 100, 300)) <= 100);
    }
  });

  test(`${method.name}: packet IDs go on past 2^32`, () => {
    const client = clientOf(method, onlyKey(key));
    const server = serverOf(method, onlyKey(key));
    skipTo(client.sealer, '00000001fffffffe');
    const packets = Array.from({ length: 4 }, () => sealPacket(client.sealer, address(443)));
    for (const packet of packets) assert.equal(openPacket(server, packet), toHex(address(443)));
    for (const packet of packets) assert.equal(openPacket(server, packet), 'repeated');
    const again = peer(method, [key], { sessionId: sessionIdOf(client.sealer) });
    assert.equal(openPacket(server, again(2n ** 33n)), 'repeated');
    assert.equal(openPacket(server, again(2n ** 33n + 1n)), 'repeated');
    assert.equal(openPacket(server, again(2n ** 33n + 2n)), openedHex);
  });

  test(`${method.name}: what is no address is not sealed`, () => {
    const { sealer } = clientOf(method, onlyKey(key));
    assert.throws(() => sealPacket(sealer, fromHex('05c000020103e8')), RangeError);
  });
}

test('padding is zeros, whatever stood in the block before', () => {
  const bytes = new Uint8Array(20).fill(0xee);
  systemSources.fillPadding(bytes, 5, 15);
  assert.equal(toHex(bytes), 'ee'.repeat(5) + '00'.repeat(10) + 'ee'.repeat(5));
});

test('the clock of packets counts whole seconds', () => {
  const before = Math.floor(Date.now() / 1000);
  const seconds = systemSources.unixSeconds();
  assert.ok(Number.isInteger(seconds) && seconds >= before && seconds <= before + 1);
});

/** Address and payload of the packets that `peer` makes. */
const openedHex = '01c000020103e8' + toHex(Buffer.from('payload'));

function vectorsOf(direction: 'request' | 'response'): Udp2022Vector[] {
  return packetVectors.ss2022_udp.filter((vector) => vector.direction === direction);
}

function methodOf(vector: Udp2022Vector) {
  return findMethod(vector.method)!;
}

function clientCredentials({ psk_b64: psk, ipsks_b64: ipsks }: Udp2022Vector): Credentials {
  return { key: fromBase64(psk), identityKeys: ipsks.map(fromBase64), users: [] };
}

/** Of the last server in the chain. */
function serverCredentials({ psk_b64: psk, ipsks_b64: ipsks }: Udp2022Vector): Credentials {
  const key = fromBase64(psk);
  const ipsk = ipsks.at(-1);
  if (ipsk === undefined) return onlyKey(key);
  return { key: fromBase64(ipsk), identityKeys: [], users: [{ name: 'user', key }] };
}

/** Seals the vector's packet with its padding, nonce and packet ID, in hex. */
function sealAs(
  vector: Udp2022Vector,
  sealer: PacketSealer,
  sources: ReturnType<typeof fakeSources>,
): string {
  sources.padding = fromHex(vector.padding_hex);
  if (!methodOf(vector).hasIdentityHeaders) sources.random.push(fromHex(vector.nonce_hex));
  skipTo(sealer, vector.packet_id_hex);
  return toHex(sealPacket(sealer, fromHex(vector.address_hex + vector.payload_hex)));
}

function skipTo(sealer: PacketSealer, packetIdHex: string): void {
  const id = Buffer.from(packetIdHex, 'hex');
  assert.ok('nextHigh' in sealer && 'nextLow' in sealer);
  Object.assign(sealer, { nextHigh: id.readInt32BE(0), nextLow: id.readInt32BE(4) });
}

function sessionIdOf(sealer: PacketSealer): bigint {
  const { idHigh, idLow } = sealer as unknown as { idHigh: number; idLow: number };
  return (BigInt(idHigh >>> 0) << 32n) | BigInt(idLow >>> 0);
}

function address(port: number): Buffer {
  return Buffer.from([1, 192, 0, 2, 1, port >> 8, port & 0xff]);
}

/** Of a packet with an IPv4 address, without payload or padding (protocol overhead as SIP022 adds up). */
function bareSize(sealer: PacketSealer, method: string): number {
  const isResponse = (sealer as unknown as { type: number }).type === 1;
  return (isResponse ? 51 : 43) + 7 + (method.includes('chacha20') ? 24 : 0);
}
