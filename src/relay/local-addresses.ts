/**
 * Which addresses no datagram is relayed to, lest it come back, and none from: this host's own, at this moment, and those of
 * nobody in particular (broadcast, multicast, unspecified). The kernel is asked for its own (isLocalAddress), and the answer
 * holds for a second, for a flow may go on at any rate.
 */
import { SyscallError } from '../errors.js';
import type { Endpoint } from '../linux/sockaddr.js';
import { isLocalAddress } from '../linux/socket.js';
import { AddressTable } from './address-table.js';
import { endpointAt } from './udp-address.js';

const holdMs = 1000;
const capacity = 256;

interface Answer {
  isLocal: boolean;
  untilMs: number;
}

export class LocalAddresses {
  private table = new AddressTable<Answer>(capacity);
  private readonly whenUnknown: boolean;

  /** @param whenUnknown what is said when the kernel cannot be asked: that takes a descriptor. */
  constructor(whenUnknown: boolean) {
    this.whenUnknown = whenUnknown;
  }

  /** Whether the sockaddr at `bytes[at]` is one of these. */
  has(bytes: Buffer, at: number, nowMs: number): boolean {
    const place = this.table.findSockaddr(bytes, at);
    if (place >= 0) {
      const known = this.table.at(place)!;
      if (known.untilMs > nowMs) return known.isLocal;
      this.table.remove(place);
    }
    if (this.table.full) this.table = new AddressTable(capacity);
    this.table.findSockaddr(bytes, at);
    const isLocal = this.ask(endpointAt(bytes, at));
    this.table.insert({ isLocal, untilMs: nowMs + holdMs });
    return isLocal;
  }

  /** At this moment. Not for every datagram. */
  ask(endpoint: Endpoint): boolean {
    try {
      return isOfNobody(endpoint) || isLocalAddress(endpoint);
    } catch (error) {
      if (error instanceof SyscallError) return this.whenUnknown;
      throw error;
    }
  }
}

/** 0.0.0.0/8, multicast and what is above it (RFC 1122, 5771, 919); `::` and ff00::/8 (RFC 4291). */
function isOfNobody({ address, isIpv4 }: Endpoint): boolean {
  if (isIpv4) return address[0] === 0 || address[0]! >= 224;
  return address[0] === 0xff || address.every((byte) => byte === 0);
}
