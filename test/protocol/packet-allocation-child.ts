/**
 * What packet-allocation.test.ts measures: requests and responses, sealed and opened; prints the bytes of heap that one packet
 * takes.
 */
import { selectBackend } from '../../src/crypto/aead.js';
import { findMethod } from '../../src/crypto/methods.js';
import { createSaltMemory, SaltFilter } from '../../src/crypto/replay.js';
import { Block } from '../../src/linux/memory.js';
import { createClientPackets, createServerPackets } from '../../src/protocol/packets.js';
import type { PacketOpener, PacketSealer } from '../../src/protocol/packet.js';
import { HeapMeter } from '../helpers/heap-meter.js';
import { someAddress } from '../helpers/packet-peer.js';

const rounds = 10;
const packetsPerRound = 20_000;
const payloadSize = 512;
const sessionCount = 50;

const method = findMethod(process.argv[2]!)!;
const withUsers = process.argv[3] === 'users';
const key = new Uint8Array(method.keySize).fill(1);
const userKey = new Uint8Array(method.keySize).fill(2);
const backend = selectBackend();
const begin = createClientPackets(backend, method, {
  key: withUsers ? userKey : key,
  identityKeys: withUsers ? [key] : [],
  users: [],
});
const salts = new SaltFilter(createSaltMemory(new Uint8Array(8), 1000));
const server = createServerPackets<object>(
  backend,
  method,
  { key, identityKeys: [], users: withUsers ? [{ name: 'user', key: userKey }] : [] },
  { salts, maxSessions: 1000 },
);
const clients = Array.from({ length: sessionCount }, begin);
// Large enough for an address beyond 2^31, as a buffer pool's always is: V8 boxes such a number on its way into a call.
const block = Block.allocate(1 << 20);
const to = 2000 + someAddress.length + payloadSize;

let packets = 0;
const meter = new HeapMeter(packetsPerRound);
meter.begin(packets);
while (meter.count < rounds) {
  const { sealer, opener } = clients[(packets >> 1) % sessionCount]!;
  carry(sealer, server);
  carry(server.sealer ?? server.session!.sealer, opener);
  packets += 2;
  meter.look(packets);
}
process.stdout.write(JSON.stringify(meter.bytesPerOperation));

function carry(sealer: PacketSealer, opener: PacketOpener): void {
  block.bytes.set(someAddress, 2000);
  sealer.seal(block, 2000, to);
  const verdict = opener.open(block, sealer.start, sealer.end, packets);
  if (verdict !== 'accepted' || opener.to - opener.from !== to - 2000) throw new Error(verdict);
}
