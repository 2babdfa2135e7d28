/** The client's side of one 2022 UDP session: its requests, and the responses to them. */
import type { PacketCipher } from '../crypto/aead.js';
import { tagSize } from '../crypto/methods.js';
import type { Block } from '../linux/memory.js';
import { PacketWindow } from './packet-window.js';
import type { PacketSources } from './packet-sources.js';
import type { ClientPacketSession, PacketOpener, PacketVerdict } from './packet.js';
import type { OpeningEnvelope, SealingEnvelope } from './udp-2022-envelope.js';
import { PacketSealer2022 } from './udp-2022-sealer.js';
import { BodyReader, rememberMs, responseHeadSize, sessionIdSize } from './udp-2022.js';

/** A server that restarts, or forgets us, answers under a new ID. Few do so within a minute. */
const maxServerSessions = 16;

const minResponseAddress = 1 + 4 + 2; // an IP address

interface ServerSession {
  readonly idHigh: number;
  readonly idLow: number;
  readonly cipher: PacketCipher;
  readonly window: PacketWindow;
  lastSeenMs: number;
}

export class ClientPacketSession2022 implements ClientPacketSession {
  readonly sealer: PacketSealer2022;
  readonly opener: ResponseOpener;

  constructor(sealing: SealingEnvelope, opening: OpeningEnvelope, sources: PacketSources) {
    const sessionId = Buffer.alloc(sessionIdSize);
    sources.fillRandom(sessionId, 0, sessionIdSize);
    this.sealer = new PacketSealer2022(sealing, sources, sessionId);
    this.opener = new ResponseOpener(opening, sources, sessionId);
  }
}

export class ResponseOpener implements PacketOpener {
  from = 0;
  to = 0;
  private readonly envelope: OpeningEnvelope;
  private readonly reader: BodyReader;
  private readonly minSize: number;
  private readonly idHigh: number;
  private readonly idLow: number;
  private readonly servers: ServerSession[] = [];

  /** @param sessionId the client's. */
  constructor(envelope: OpeningEnvelope, sources: PacketSources, sessionId: Buffer) {
    this.envelope = envelope;
    this.reader = new BodyReader(sources, sessionId);
    this.minSize = envelope.size + responseHeadSize + minResponseAddress + tagSize;
    this.idHigh = sessionId.readInt32BE(0);
    this.idLow = sessionId.readInt32BE(4);
  }

  get skewSeconds(): number {
    return this.reader.skewSeconds;
  }

  open(block: Block, from: number, to: number, nowMs: number): PacketVerdict {
    const { envelope } = this;
    if (to - from < this.minSize) return 'short';
    if (!envelope.reveal(block, from, to)) return 'forged';
    const { bytes } = block;
    const header = from + envelope.headerAt;
    const idHigh = bytes.readInt32BE(header);
    const idLow = bytes.readInt32BE(header + 4);
    const packetHigh = bytes.readInt32BE(header + 8);
    const packetLow = bytes.readInt32BE(header + 12);

    const known = this.find(idHigh, idLow);
    if (known !== undefined && !known.window.isNew(packetHigh, packetLow)) return 'repeated';
    const cipher = known?.cipher ?? envelope.sessionCipher(bytes.subarray(header, header + sessionIdSize));
    if (!envelope.openBody(block, from, to, cipher)) return 'forged';
    const verdict = this.reader.read(bytes, from + envelope.size, to - tagSize);
    if (verdict !== 'accepted') return verdict;
    // Both directions would have one key and the same nonces: no server may do that (SIP022, section 3.2).
    if (idHigh === this.idHigh && idLow === this.idLow) return 'malformed';

    const session = known ?? this.remember(idHigh, idLow, cipher, nowMs);
    if (session === undefined) return 'unknown-session';
    session.window.add(packetHigh, packetLow);
    session.lastSeenMs = nowMs;
    this.from = this.reader.from;
    this.to = to - tagSize;
    return 'accepted';
  }

  private find(idHigh: number, idLow: number): ServerSession | undefined {
    const { servers } = this;
    for (let i = 0; i < servers.length; i += 1) {
      const session = servers[i]!;
      if (session.idLow === idLow && session.idHigh === idHigh) return session;
    }
    return undefined;
  }

  /** In the place of the one that has been silent longest, if there are too many. Undefined if even that one spoke lately. */
  private remember(
    idHigh: number,
    idLow: number,
    cipher: PacketCipher,
    nowMs: number,
  ): ServerSession | undefined {
    const { servers } = this;
    const session = { idHigh, idLow, cipher, window: new PacketWindow(), lastSeenMs: nowMs };
    if (servers.length < maxServerSessions) {
      servers.push(session);
      return session;
    }
    const oldest = servers.reduce((a, b) => (a.lastSeenMs <= b.lastSeenMs ? a : b));
    if (nowMs - oldest.lastSeenMs < rememberMs) return undefined;
    servers[servers.indexOf(oldest)] = session;
    return session;
  }
}
