/** What happened to datagrams that did not go through, counted by kind; the main thread reads along. */
import type { PacketVerdict } from '../protocol/packet.js';

export const dropKinds = [
  // A packet of the other side, by the codec's verdict.
  'short',
  'forged',
  'stale',
  'repeated',
  'malformed',
  'unknown-session',
  /** 2022: its user, or its client's network, has begun so many sessions that the rest is for others. */
  'no-room',
  /** Authentic, but its address is of no use here: a name where an IP address must be, or the other family. */
  'misaddressed',
  /** Came to the TPROXY port itself, or by REDIRECT: nobody knows where it was going. */
  'no-destination',
  /** No server, or none of its addresses, or a name that does not resolve. */
  'unreachable',
  /** Larger than a datagram can be once it is sealed. */
  'too-large',
  /** No descriptor for its session. */
  'no-socket',
  /** Lost in this host's own socket buffer, which was full. */
  'socket-full',
  /** The kernel did not take it. */
  'unsent',
  /** Waited for a name with too many others. */
  'overflow',
] as const;

export type DropKind = (typeof dropKinds)[number];

const index = Object.fromEntries(dropKinds.map((kind, i) => [kind, i])) as Record<DropKind, number>;

export class UdpCounters {
  private readonly drops: Float64Array;

  /** @param memory from `createUdpCounters`, shared by all workers and the main thread. */
  constructor(memory: SharedArrayBuffer) {
    this.drops = new Float64Array(memory);
  }

  count(kind: DropKind | Exclude<PacketVerdict, 'accepted'>, number = 1): void {
    this.drops[index[kind]]! += number;
  }

  of(kind: DropKind): number {
    return this.drops[index[kind]]!;
  }

  /** `forged 3, repeated 1`; undefined when nothing was dropped. */
  describe(): string | undefined {
    const parts = dropKinds.filter((kind) => this.of(kind) > 0).map((kind) => `${kind} ${this.of(kind)}`);
    return parts.length === 0 ? undefined : parts.join(', ');
  }
}

export function createUdpCounters(): SharedArrayBuffer {
  return new SharedArrayBuffer(dropKinds.length * Float64Array.BYTES_PER_ELEMENT);
}
