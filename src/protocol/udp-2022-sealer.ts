/** Seals the packets of one direction of a 2022 UDP session: a client's requests, or a server's responses. */
import type { PacketCipher } from '../crypto/aead.js';
import { tagSize } from '../crypto/methods.js';
import type { Block } from '../linux/memory.js';
import { addressSize } from './address.js';
import type { PacketSources } from './packet-sources.js';
import type { PacketSealer } from './packet.js';
import type { SealingEnvelope } from './udp-2022-envelope.js';
import {
  headerSize,
  maxPadding,
  requestHeadSize,
  requestType,
  responseHeadSize,
  responseType,
  sessionIdSize,
} from './udp-2022.js';

/** What an Ethernet packet has for UDP over IPv6, and more than enough over IPv4: padding must not cause fragments. */
const maxPaddedPacket = 1500 - 40 - 8;

export class PacketSealer2022 implements PacketSealer {
  readonly headroom: number;
  readonly tailroom = tagSize;
  start = 0;
  end = 0;
  private readonly envelope: SealingEnvelope;
  private readonly sources: PacketSources;
  private readonly idHigh: number;
  private readonly idLow: number;
  private readonly type: number;
  private readonly headSize: number;
  /** Of the session that responses are for. */
  private readonly clientIdHigh: number;
  private readonly clientIdLow: number;
  /** Made with the first packet: not every session gets an answer. */
  private cipher: PacketCipher | undefined;
  /** The next packet ID. 2^64 packets take half a million years, at a million a second. */
  private nextHigh = 0;
  private nextLow = 0;

  /** @param clientSessionId for a server, whose own `sessionId` differs from it. */
  constructor(
    envelope: SealingEnvelope,
    sources: PacketSources,
    sessionId: Buffer,
    clientSessionId?: Buffer,
  ) {
    this.envelope = envelope;
    this.sources = sources;
    this.idHigh = sessionId.readInt32BE(0);
    this.idLow = sessionId.readInt32BE(4);
    this.type = clientSessionId === undefined ? requestType : responseType;
    this.headSize = clientSessionId === undefined ? requestHeadSize : responseHeadSize;
    this.clientIdHigh = clientSessionId?.readInt32BE(0) ?? 0;
    this.clientIdLow = clientSessionId?.readInt32BE(4) ?? 0;
    this.headroom = envelope.size + this.headSize + maxPadding;
  }

  /** @throws {RangeError} if no address stands at `from`. */
  seal(block: Block, from: number, to: number): void {
    const { envelope } = this;
    this.cipher ??= this.createCipher();
    const padding = this.paddingSize(block, from, to);
    const body = from - padding - this.headSize;
    const start = body - envelope.size;
    block.at(start, to + tagSize - start);
    this.writeHeader(block.bytes, start + envelope.headerAt);
    this.writeHead(block.bytes, body, padding);
    if (padding > 0) this.sources.fillPadding(block.bytes, from - padding, from);
    envelope.seal(block, start, to, this.cipher);
    this.start = start;
    this.end = to + tagSize;
  }

  /** The session ID is kept as two words: bytes of their own take 200 more. */
  private createCipher(): PacketCipher {
    const sessionId = Buffer.alloc(sessionIdSize);
    sessionId.writeInt32BE(this.idHigh, 0);
    sessionId.writeInt32BE(this.idLow, 4);
    return this.envelope.sessionCipher(sessionId);
  }

  private paddingSize({ bytes }: Block, from: number, to: number): number {
    const size = addressSize(bytes, from, to);
    if (size === -1) throw new RangeError(`no address at ${from} in ${to - from} bytes to seal`);
    const room = Math.min(
      maxPadding,
      maxPaddedPacket - this.envelope.size - this.headSize - (to - from) - tagSize,
    );
    if (room < 1) return 0;
    return this.sources.paddingSize(bytes.readUInt16BE(from + size - 2), to - from - size, room);
  }

  /** Counts a packet: its ID is used up, whatever comes. */
  private writeHeader(bytes: Buffer, at: number): void {
    bytes.writeInt32BE(this.idHigh, at);
    bytes.writeInt32BE(this.idLow, at + 4);
    bytes.writeInt32BE(this.nextHigh, at + sessionIdSize);
    bytes.writeInt32BE(this.nextLow, at + headerSize - 4);
    this.nextLow = (this.nextLow + 1) | 0;
    if (this.nextLow === 0) this.nextHigh = (this.nextHigh + 1) | 0;
  }

  private writeHead(bytes: Buffer, at: number, padding: number): void {
    const seconds = this.sources.unixSeconds();
    bytes[at] = this.type;
    bytes.writeUInt32BE(Math.floor(seconds / 2 ** 32), at + 1);
    bytes.writeUInt32BE(seconds >>> 0, at + 5);
    if (this.type === responseType) {
      bytes.writeInt32BE(this.clientIdHigh, at + 9);
      bytes.writeInt32BE(this.clientIdLow, at + 13);
    }
    bytes.writeUInt16BE(padding, at + this.headSize - 2);
  }
}
