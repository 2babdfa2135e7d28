/** Clients and servers of the 2022 edition for tests of UDP packets, with a clock that stands still. */
import { randomBytes } from 'node:crypto';
import { selectBackend, type AeadBackend } from '../../src/crypto/aead.js';
import type { Credentials } from '../../src/crypto/credentials.js';
import { methods, type Method } from '../../src/crypto/methods.js';
import { createSaltMemory, SaltFilter } from '../../src/crypto/replay.js';
import { systemSources, type PacketSources } from '../../src/protocol/packet-sources.js';
import type { ServerPackets } from '../../src/protocol/packet.js';
import { createClientPackets, createServerPackets } from '../../src/protocol/packets.js';
import { packet2022, someAddress, type Packet2022 } from './packet-peer.js';

export const methods2022 = methods.filter(({ edition }) => edition === '2022');
export const now = 1_700_000_000;

/** What packet2022 says when it is not told otherwise, in hex. */
export const somePlaintext = Buffer.concat([someAddress, Buffer.from('payload')]).toString('hex');

const openssl = selectBackend();

export interface SettableClock extends PacketSources {
  now: number;
}

/** The system's random bytes and padding. */
export function settableClock(): SettableClock {
  return {
    ...systemSources,
    now,
    unixSeconds() {
      return this.now;
    },
  };
}

export function serverOf<State>(
  method: Method,
  credentials: Credentials,
  {
    sources = settableClock(),
    maxSessions = 100,
    backend = openssl,
    clientShare = () => 0,
  }: ServerOptions = {},
): ServerPackets<State> {
  const salts = new SaltFilter(createSaltMemory(randomBytes(8), 1000));
  return createServerPackets(backend, method, credentials, { salts, maxSessions, clientShare }, sources);
}

export interface ServerOptions {
  sources?: PacketSources;
  maxSessions?: number;
  backend?: AeadBackend;
  clientShare?: () => number;
}

export function clientOf(
  method: Method,
  credentials: Credentials,
  sources: PacketSources = settableClock(),
  backend: AeadBackend = openssl,
) {
  return createClientPackets(backend, method, credentials, sources)();
}

/** Makes packets of one kind, with the fields that a test does not give. */
export function peer(method: Method, keys: readonly Uint8Array[], common: Partial<Packet2022> = {}) {
  return (packetId: bigint | number, fields: Partial<Packet2022> = {}): Uint8Array =>
    packet2022({ method, keys, sessionId: 1n, packetId, time: now, ...common, ...fields });
}
