/**
 * All 2022 UDP packets that come to one port of a server. A session is found by user and client session ID, never by where
 * the packet came from: its replies go to wherever the newest one came from (the relay's work).
 *
 * Nothing is remembered of a packet before all of it has been checked: neither a session nor its packet ID.
 */
import type { PacketCipher } from '../crypto/aead.js';
import { tagSize } from '../crypto/methods.js';
import type { Block } from '../linux/memory.js';
import { minAddressSize } from './address.js';
import type { PacketSources } from './packet-sources.js';
import { PacketWindow } from './packet-window.js';
import type { PacketSealer, PacketVerdict, ServerPackets, ServerPacketSession } from './packet.js';
import { SessionShares } from './session-shares.js';
import { SessionTable, type TableEntry } from './session-table.js';
import type { OpeningEnvelope, SealingEnvelope } from './udp-2022-envelope.js';
import { PacketSealer2022 } from './udp-2022-sealer.js';
import { BodyReader, rememberMs, requestHeadSize, sessionIdSize } from './udp-2022.js';

/** At the cap, how often at most all sessions are looked at for one that may go. */
const sweepMs = 1000;

class ServerSession<State> implements ServerPacketSession<State>, TableEntry {
  next: this | undefined = undefined;
  state: State | undefined = undefined;
  lastSeenMs = 0;
  readonly window = new PacketWindow();
  user: number;
  /** Whose share of the memory it takes. */
  owner: number;
  readonly idHigh: number;
  readonly idLow: number;
  /** Opens the client's packets. */
  readonly cipher: PacketCipher;
  readonly sealer: PacketSealer;

  constructor(
    user: number,
    owner: number,
    clientSessionId: Buffer,
    cipher: PacketCipher,
    sealer: PacketSealer,
  ) {
    this.user = user;
    this.owner = owner;
    this.idHigh = clientSessionId.readInt32BE(0);
    this.idLow = clientSessionId.readInt32BE(4);
    this.cipher = cipher;
    this.sealer = sealer;
  }
}

/** Of sessions: the users, or the clients' networks. */
export interface SessionOwners {
  readonly count: number;
  /** Whose packet is being opened, a number below `count`. */
  readonly current: () => number;
}

/** What a server's keys make. */
export interface ServerKeys2022 {
  readonly opening: OpeningEnvelope;
  /** For each user in order, or one where there are none. */
  readonly sealings: readonly SealingEnvelope[];
  readonly owners: SessionOwners;
}

export class ServerPackets2022<State> implements ServerPackets<State> {
  from = 0;
  to = 0;
  session: ServerSession<State> | undefined = undefined;
  readonly sealer = undefined;
  private keys: ServerKeys2022;
  private readonly sources: PacketSources;
  private readonly maxSessions: number;
  private shares: SessionShares;
  private readonly reader: BodyReader;
  private minSize: number;
  private sessions: SessionTable<ServerSession<State>>;
  private nextSweepMs = -Infinity;
  /** Of each user: no session begins with a packet that was stamped before this second. */
  private notBefore: readonly number[] = [];

  /** @param maxSessions those that are remembered, whether the relay still keeps something with them or not. */
  constructor(keys: ServerKeys2022, sources: PacketSources, maxSessions: number) {
    this.keys = keys;
    this.sources = sources;
    this.maxSessions = maxSessions;
    this.shares = new SessionShares(maxSessions, keys.owners.count);
    this.reader = new BodyReader(sources);
    this.minSize = keys.opening.size + requestHeadSize + minAddressSize + tagSize;
    this.sessions = new SessionTable(this.random());
  }

  /**
   * Other users. Sessions of those who stay go on, with what has been seen of them; the rest are forgotten.
   *
   * @param userNow what number a user has now, -1 for one who is gone.
   * @param onForgotten gets what the relay keeps with a session that is forgotten.
   */
  changeUsers(
    keys: ServerKeys2022,
    userNow: (user: number) => number,
    onForgotten: (state: State) => void,
  ): void {
    const { sessions, notBefore } = this;
    const now = this.sources.unixSeconds();
    const since = keys.sealings.map(() => now);
    for (let user = 0; user < this.keys.sealings.length; user++) {
      const then = userNow(user);
      if (then >= 0) since[then] = notBefore[user] ?? -Infinity;
    }
    this.notBefore = since;
    this.keys = keys;
    this.minSize = keys.opening.size + requestHeadSize + minAddressSize + tagSize;
    this.shares = new SessionShares(this.maxSessions, keys.owners.count);
    this.sessions = new SessionTable(this.random());
    sessions.removeWhere((session) => {
      const user = userNow(session.user);
      if (user >= 0) {
        session.user = session.owner = user;
        this.shares.add(user);
        this.sessions.add(session);
      } else if (session.state !== undefined) {
        onForgotten(session.state);
      }
      return true;
    });
  }

  get skewSeconds(): number {
    return this.reader.skewSeconds;
  }

  /** How many sessions are remembered. */
  get size(): number {
    return this.sessions.size;
  }

  open(block: Block, from: number, to: number, nowMs: number): PacketVerdict {
    const { opening } = this.keys;
    if (to - from < this.minSize) return 'short';
    if (!opening.reveal(block, from, to)) return 'forged';
    const { bytes } = block;
    const header = from + opening.headerAt;
    const idHigh = bytes.readInt32BE(header);
    const idLow = bytes.readInt32BE(header + 4);
    const packetHigh = bytes.readInt32BE(header + 8);
    const packetLow = bytes.readInt32BE(header + 12);

    const known = this.sessions.find(opening.user, idHigh, idLow);
    if (known !== undefined && !known.window.isNew(packetHigh, packetLow)) return 'repeated';
    const cipher = known?.cipher ?? opening.sessionCipher(bytes.subarray(header, header + sessionIdSize));
    if (!opening.openBody(block, from, to, cipher)) return 'forged';
    const verdict = this.reader.read(bytes, from + opening.size, to - tagSize);
    if (verdict !== 'accepted') return verdict;

    if (known === undefined && this.isFromBefore(opening.user)) return 'repeated';
    const session = known ?? this.begin(bytes, header, cipher, nowMs);
    if (session === undefined) return 'no-room';
    session.window.add(packetHigh, packetLow);
    session.lastSeenMs = nowMs;
    this.session = session;
    this.from = this.reader.from;
    this.to = to - tagSize;
    return 'accepted';
  }

  /** Of keys that were there before, and not in between, nobody knows any more what has been seen. */
  private isFromBefore(user: number): boolean {
    const since = this.notBefore[Math.max(user, 0)] ?? -Infinity;
    return this.sources.unixSeconds() + this.reader.skewSeconds < since;
  }

  /** For keys that are new to a server which has been serving. */
  refuseOlder(): void {
    const now = this.sources.unixSeconds();
    this.notBefore = this.keys.sealings.map(() => now);
  }

  expire(nowMs: number): void {
    this.sessions.removeWhere((session) => {
      if (session.state !== undefined || nowMs - session.lastSeenMs < rememberMs) return false;
      this.shares.remove(session.owner);
      return true;
    });
  }

  /** Undefined when there is no room: a session that was heard of lately is not given up for a new one. */
  private begin(
    bytes: Buffer,
    header: number,
    cipher: PacketCipher,
    nowMs: number,
  ): ServerSession<State> | undefined {
    const { opening, sealings, owners } = this.keys;
    const owner = owners.current();
    if (!this.shares.hasRoom(owner) && nowMs >= this.nextSweepMs) {
      this.nextSweepMs = nowMs + sweepMs;
      this.expire(nowMs);
    }
    if (!this.shares.hasRoom(owner)) return undefined;

    const clientSessionId = Buffer.from(bytes.subarray(header, header + sessionIdSize));
    // Were it the same, both directions would have one key and the same nonces.
    let sessionId = this.random();
    while (sessionId.equals(clientSessionId)) sessionId = this.random();
    const { user } = opening;
    const sealing = sealings[Math.max(user, 0)]!;
    const sealer = new PacketSealer2022(sealing, this.sources, sessionId, clientSessionId);
    const session = new ServerSession<State>(user, owner, clientSessionId, cipher, sealer);
    this.shares.add(owner);
    this.sessions.add(session);
    return session;
  }

  private random(): Buffer {
    const bytes = Buffer.alloc(sessionIdSize);
    this.sources.fillRandom(bytes, 0, sessionIdSize);
    return bytes;
  }
}
