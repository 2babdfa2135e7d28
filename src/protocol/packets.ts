/** Which packet codec a method has. */
import type { AeadBackend } from '../crypto/aead.js';
import type { Credentials } from '../crypto/credentials.js';
import type { Method } from '../crypto/methods.js';
import { RecentSalts } from '../crypto/recent-salts.js';
import type { SaltFilter } from '../crypto/replay.js';
import { systemSources, type PacketSources } from './packet-sources.js';
import type { ClientPacketSession, ServerPackets } from './packet.js';
import { AeadPacketOpener, AeadPacketSealer, AeadServerPackets } from './udp-aead.js';
import { ClientPacketSession2022 } from './udp-2022-client.js';
import { AesOpening, AesSealing, ChachaEnvelope } from './udp-2022-envelope.js';
import { ServerPackets2022, type ServerKeys2022 } from './udp-2022-server.js';

/** Begins a session with the server. */
export type ClientPackets = () => ClientPacketSession;

export function createClientPackets(
  backend: AeadBackend,
  method: Method,
  credentials: Credentials,
  sources: PacketSources = systemSources,
): ClientPackets {
  const { key, identityKeys } = credentials;
  checkIdentities(method, identityKeys.length);
  if (method.edition === 'aead') {
    const salts = new RecentSalts();
    const session = {
      sealer: new AeadPacketSealer(backend, method, key, sources, salts),
      opener: new AeadPacketOpener(backend, method, key, salts),
    };
    return () => session;
  }
  if (isChacha(method)) {
    const envelope = new ChachaEnvelope(backend, key, sources);
    return () => new ClientPacketSession2022(envelope, envelope, sources);
  }
  const sealing = new AesSealing(backend, method, key, identityKeys);
  const opening = new AesOpening(backend, method, key);
  return () => new ClientPacketSession2022(sealing, opening, sources);
}

export interface ServerPacketsOptions {
  /**
   * 2017: the salts seen, and those of our own packets. A memory for packets alone: it may have to hold a hundred thousand a
   * second, which would drive out those of streams.
   */
  readonly salts: SaltFilter;
  /** 2022: how many sessions are remembered. At the cap new ones are refused: an old one's replay might pass otherwise. */
  readonly maxSessions: number;
  /**
   * 2022 without users: whose share of these sessions the packet that is being opened would take, a number below `clientShares`.
   * Asked when a session begins. Default: all have one share.
   */
  readonly clientShare?: () => number;
}

/** Chosen so that two clients seldom share one. */
export const clientShares = 4096;

export function createServerPackets<State>(
  backend: AeadBackend,
  method: Method,
  credentials: Credentials,
  { salts, maxSessions, clientShare = () => 0 }: ServerPacketsOptions,
  sources: PacketSources = systemSources,
): ServerPackets<State> {
  checkIdentities(method, credentials.users.length);
  if (method.edition === 'aead')
    return new AeadServerPackets(backend, method, credentials.key, sources, salts);
  const keys = serverKeys(backend, method, credentials, clientShare, sources);
  return new ServerPackets2022(keys, sources, maxSessions);
}

function serverKeys(
  backend: AeadBackend,
  method: Method,
  { key, users }: Credentials,
  clientShare: () => number,
  sources: PacketSources,
): ServerKeys2022 {
  const clients = { count: clientShares, current: clientShare };
  if (isChacha(method)) {
    const envelope = new ChachaEnvelope(backend, key, sources);
    return { opening: envelope, sealings: [envelope], owners: clients };
  }
  const keys = users.length > 0 ? users.map((user) => user.key) : [key];
  const sealings = keys.map((each) => new AesSealing(backend, method, each));
  const opening = new AesOpening(backend, method, key, users);
  if (users.length === 0) return { opening, sealings, owners: clients };
  return { opening, sealings, owners: { count: users.length, current: () => opening.user } };
}

/**
 * Changes the users of a server that has some and goes on having some, with the same method. The sessions of those whose key
 * stays go on, and `onForgotten` gets what the relay keeps with the others.
 */
export function changeUsers<State>(
  packets: ServerPackets<State>,
  backend: AeadBackend,
  method: Method,
  { before, now }: { readonly before: Credentials; readonly now: Credentials },
  onForgotten: (state: State) => void,
): void {
  if (!(packets instanceof ServerPackets2022)) throw new TypeError(`${method.name} has no users`);
  const keys = serverKeys(backend, method, now, () => 0, systemSources);
  const userNow = (user: number): number =>
    now.users.findIndex(({ key }) => Buffer.compare(key, before.users[user]!.key) === 0);
  packets.changeUsers(keys, userNow, onForgotten);
}

function isChacha(method: Method): boolean {
  return method.cipher === 'chacha20-poly1305';
}

function checkIdentities(method: Method, count: number): void {
  if (count > 0 && !method.hasIdentityHeaders)
    throw new RangeError(`${method.name} has no identity headers, got ${count} identity keys or users`);
}
