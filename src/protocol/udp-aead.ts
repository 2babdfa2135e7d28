/**
 * The UDP packet of the 2017 AEAD methods (SIP004), the same in both directions:
 *
 *     | salt    | address ‖ payload | tag |       nonce: all zero
 *     | S       | n                 | 16  |       S: as long as the key
 *
 *     to the server      address: where the payload is to go (address.ts)
 *     from the server    address: where it came from, an IP address
 *
 * The salt is new in every packet and gives it a key of its own (SIP007). There is no session and no clock: a server knows a
 * replay only by the salts that it remembers.
 */
import type { AeadBackend, PacketCipher } from '../crypto/aead.js';
import { sessionSubkeyInto } from '../crypto/keys.js';
import { tagSize, type Method } from '../crypto/methods.js';
import { Block } from '../linux/memory.js';
import { addressSize, minAddressSize } from './address.js';
import type { PacketSources } from './packet-sources.js';
import type { PacketOpener, PacketSealer, PacketVerdict, ServerPackets } from './packet.js';

/** Salts that were seen: SaltFilter in a server, RecentSalts in a client. */
export interface SaltsSeen {
  /** Remembers the salt at `bytes[from..to)`; false when it was there. */
  accept(bytes: Uint8Array, from: number, to: number): boolean;
  add(bytes: Uint8Array, from: number, to: number): void;
}

/** For 12 bytes and for 24. */
const zeroNonce = Block.allocate(24);

export class AeadPacketSealer implements PacketSealer {
  readonly headroom: number;
  readonly tailroom = tagSize;
  start = 0;
  end = 0;
  private readonly masterKey: Uint8Array;
  private readonly sources: PacketSources;
  private readonly salts: SaltsSeen | undefined;
  private readonly subkey: Uint8Array;
  private readonly cipher: PacketCipher;

  /** @param salts remembers what we send, lest our own packet be taken for the other side's when sent back to us. */
  constructor(
    backend: AeadBackend,
    method: Method,
    masterKey: Uint8Array,
    sources: PacketSources,
    salts?: SaltsSeen,
  ) {
    this.headroom = method.saltSize;
    this.masterKey = masterKey;
    this.sources = sources;
    this.salts = salts;
    this.subkey = new Uint8Array(method.keySize);
    this.cipher = backend.packetCipher(method.cipher, this.subkey);
  }

  seal(block: Block, from: number, to: number): void {
    const { subkey, cipher } = this;
    const start = from - this.headroom;
    this.sources.fillRandom(block.bytes, start, this.headroom);
    this.salts?.add(block.bytes, start, from);
    sessionSubkeyInto(subkey, this.masterKey, block.bytes, start);
    cipher.changeKey(subkey);
    cipher.seal(block, from, to - from, zeroNonce, 0);
    this.start = start;
    this.end = to + tagSize;
  }
}

export class AeadPacketOpener implements PacketOpener {
  from = 0;
  to = 0;
  readonly skewSeconds = 0;
  private readonly saltSize: number;
  private readonly masterKey: Uint8Array;
  private readonly salts: SaltsSeen | undefined;
  private readonly subkey: Uint8Array;
  private readonly cipher: PacketCipher;

  /** @param salts those seen; without it a packet that comes twice is accepted twice. */
  constructor(backend: AeadBackend, method: Method, masterKey: Uint8Array, salts?: SaltsSeen) {
    this.saltSize = method.saltSize;
    this.masterKey = masterKey;
    this.salts = salts;
    this.subkey = new Uint8Array(method.keySize);
    this.cipher = backend.packetCipher(method.cipher, this.subkey);
  }

  open(block: Block, from: number, to: number): PacketVerdict {
    const { subkey, cipher } = this;
    const begin = from + this.saltSize;
    const end = to - tagSize;
    if (end - begin < minAddressSize) return 'short';
    sessionSubkeyInto(subkey, this.masterKey, block.bytes, from);
    cipher.changeKey(subkey);
    if (!cipher.open(block, begin, end - begin, zeroNonce, 0)) return 'forged';
    // Only now: a salt that came without the key could be anybody's, and would fill the memory or spoil an honest packet.
    if (this.salts !== undefined && !this.salts.accept(block.bytes, from, begin)) return 'repeated';
    if (addressSize(block.bytes, begin, end) === -1) return 'malformed';
    this.from = begin;
    this.to = end;
    return 'accepted';
  }
}

/** One opener and one sealer for all clients. */
export class AeadServerPackets<State> extends AeadPacketOpener implements ServerPackets<State> {
  readonly session = undefined;
  readonly sealer: PacketSealer;

  constructor(
    backend: AeadBackend,
    method: Method,
    masterKey: Uint8Array,
    sources: PacketSources,
    salts: SaltsSeen,
  ) {
    super(backend, method, masterKey, salts);
    this.sealer = new AeadPacketSealer(backend, method, masterKey, sources, salts);
  }

  /** There are no sessions to forget. */
  expire(): void {}
}
