/** The UDP parts of test/vectors/vectors.json, and codecs that are given their clock, random bytes and padding. */
import type { Credentials } from '../../src/crypto/credentials.js';
import { Block } from '../../src/linux/memory.js';
import type { PacketSources } from '../../src/protocol/packet-sources.js';
import type { PacketOpener, PacketSealer, PacketVerdict } from '../../src/protocol/packet.js';
import { toHex, vectors } from './vectors.js';

export interface AeadUdpVector {
  id: string;
  method: string;
  key_hex: string;
  direction: 'request' | 'response';
  salt_hex: string;
  address_hex: string;
  plaintext_hex: string;
  packet_hex: string;
}

export interface Udp2022Vector {
  id: string;
  method: string;
  psk_b64: string;
  ipsks_b64: string[];
  direction: 'request' | 'response';
  now: number;
  session_id_hex: string;
  client_session_id_hex?: string;
  packet_id_hex: string;
  timestamp: number;
  padding_hex: string;
  nonce_hex: string;
  address_hex: string;
  payload_hex: string;
  packet_hex: string;
  after_first_relay?: { packet_hex: string };
}

export interface Udp2022Check {
  id: string;
  role: 'server' | 'client';
  method: string;
  psk_b64: string;
  now: number;
  client_session_id_hex: string;
  expect: 'accept' | 'reject';
  reason: string;
  packet_hex: string;
}

export const packetVectors = vectors as unknown as {
  aead_udp: AeadUdpVector[];
  ss2022_udp: Udp2022Vector[];
  ss2022_udp_checks: Udp2022Check[];
  sliding_window: { id: string; window_size: number; steps: { packet_id_hex: string; accept: boolean }[] }[];
};

export interface FakeSources extends PacketSources {
  now: number;
  /** What `fillRandom` gives, in this order. */
  random: Uint8Array[];
  padding: Uint8Array;
}

export function fakeSources(now = 0, ...random: Uint8Array[]): FakeSources {
  return {
    now,
    random,
    padding: new Uint8Array(0),
    unixSeconds() {
      return this.now;
    },
    fillRandom(target, at, size) {
      const next = this.random.shift();
      if (next?.length !== size) throw new Error(`${size} random bytes asked for, ${next?.length} are next`);
      target.set(next, at);
    },
    paddingSize() {
      return this.padding.length;
    },
    fillPadding(target, from) {
      target.set(this.padding, from);
    },
  };
}

export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(Buffer.from(text, 'base64'));
}

export function onlyKey(key: Uint8Array): Credentials {
  return { key, identityKeys: [], users: [] };
}

const margin = 7;

/** The packet; what stands around it in the block must stay as it was. */
export function sealPacket(sealer: PacketSealer, plaintext: Uint8Array): Uint8Array {
  const from = margin + sealer.headroom;
  const to = from + plaintext.length;
  const block = Block.allocate(to + sealer.tailroom + margin);
  block.bytes.fill(0xee);
  block.bytes.set(plaintext, from);
  sealer.seal(block, from, to);
  const outside = [block.bytes.subarray(0, sealer.start), block.bytes.subarray(sealer.end)];
  if (sealer.start < margin || sealer.end > to + sealer.tailroom) throw new Error('sealed beyond the room');
  if (outside.some((bytes) => bytes.some((byte) => byte !== 0xee)))
    throw new Error('wrote beyond the packet');
  return Uint8Array.from(block.bytes.subarray(sealer.start, sealer.end));
}

/** Address and payload in hex, or why there is none. */
export function openPacket(opener: PacketOpener, packet: Uint8Array, nowMs = 0): PacketVerdict | string {
  const block = Block.allocate(margin + packet.length + margin);
  block.bytes.fill(0xee);
  block.bytes.set(packet, margin);
  const verdict = opener.open(block, margin, margin + packet.length, nowMs);
  const outside = [block.bytes.subarray(0, margin), block.bytes.subarray(margin + packet.length)];
  if (outside.some((bytes) => bytes.some((byte) => byte !== 0xee)))
    throw new Error('wrote beyond the packet');
  return verdict === 'accepted' ? toHex(block.bytes.subarray(opener.from, opener.to)) : verdict;
}

/** Every packet that is this one without its end, or with one bit changed, and which. */
export function* damaged(packet: Uint8Array): Generator<[what: string, packet: Uint8Array]> {
  for (let size = 0; size < packet.length; size += 1) yield [`cut at ${size}`, packet.subarray(0, size)];
  for (let bit = 0; bit < packet.length * 8; bit += 1) {
    const other = Uint8Array.from(packet);
    other[bit >> 3]! ^= 1 << (bit & 7);
    yield [`bit ${bit} flipped`, other];
  }
}
