/**
 * What the relay knows of UDP packets: one interface for every edition of the protocol. All work is done in place, in the
 * block that the datagram was received into:
 *
 *     | prefix: salt, headers, padding | address | payload | tag |
 *     ^ start                          ^ from              ^ to  ^ end
 *
 * The relay puts the address (address.ts) right before the payload; a sealer writes what belongs before and behind.
 * Nothing here makes an object for a packet.
 */
import type { Block } from '../linux/memory.js';

/** Why a packet was dropped; none of these is ever answered. */
export type PacketVerdict =
  | 'accepted'
  /** Fewer bytes than any packet has: no cryptography was tried. */
  | 'short'
  /** The tag does not match, or an identity that nobody has. */
  | 'forged'
  /** 2022: its clock differs from ours by more than 30 s; see `skewSeconds`. */
  | 'stale'
  /** 2017: a salt that was seen; 2022: a packet ID that was seen or is behind the window. */
  | 'repeated'
  /** Authentic, but not what a peer may send: type, padding, or address. */
  | 'malformed'
  /** 2022, client: for another session than ours. */
  | 'unknown-session'
  /** 2022, server: its user, or its client's network where there are no users, has begun so many sessions that the rest is for others. */
  | 'no-room';

export interface PacketSealer {
  /** Most bytes that `seal` writes before the address. */
  readonly headroom: number;
  /** Bytes that `seal` writes behind the payload. */
  readonly tailroom: number;
  /** After `seal`: the packet is `block[start..end)`. */
  readonly start: number;
  readonly end: number;
  /** Seals address ‖ payload, which stand at `block[from..to)`. The payload may be empty. */
  seal(block: Block, from: number, to: number): void;
}

export interface PacketOpener {
  /** After an accepted packet: address ‖ payload stand at `block[from..to)`, and the address is well-formed. */
  readonly from: number;
  readonly to: number;
  /** After 'stale': by how many seconds the packet's clock is ahead of ours (negative: behind). */
  readonly skewSeconds: number;
  /** Opens the packet at `block[from..to)` in place. @param nowMs monotonic, in the reactor's milliseconds. */
  open(block: Block, from: number, to: number, nowMs: number): PacketVerdict;
}

/** The client's side of one session: one for each local source address. 2017 methods share one for all. */
export interface ClientPacketSession {
  readonly sealer: PacketSealer;
  readonly opener: PacketOpener;
}

/**
 * The server's side of one 2022 session. It outlives the relay's sockets: its identifier and window stay for as long as a
 * replay of its packets could pass (65 s).
 */
export interface ServerPacketSession<State> {
  readonly sealer: PacketSealer;
  /** Index in Credentials.users; -1 without users. */
  readonly user: number;
  /** What the relay keeps with the session; undefined at first, and set back to undefined by the relay at its end. */
  state: State | undefined;
}

/** All packets that come to one port of a server. */
export interface ServerPackets<State> extends PacketOpener {
  /** After an accepted packet: its session, new or known. Undefined in 2017 methods: their sessions are client addresses. */
  readonly session: ServerPacketSession<State> | undefined;
  /** 2017: seals for every session. Undefined in the 2022 edition, where each session has its own. */
  readonly sealer: PacketSealer | undefined;
  /** Forgets sessions that have no state and have been silent long enough. Call it every few seconds. */
  expire(nowMs: number): void;
}
