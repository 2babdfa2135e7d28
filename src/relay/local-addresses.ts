/**
 * Which addresses are this host's own, at this moment: the kernel is asked (isLocalAddress), and its answer holds for a second,
 * for a flow may go on at any rate. Only datagrams whose port is the listener's own come here.
 */
import { SyscallError } from '../errors.js';
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

  /** Whether the sockaddr at `bytes[at]` is of this host. True when it cannot be told: who asks fears a loop. */
  has(bytes: Buffer, at: number, nowMs: number): boolean {
    const place = this.table.findSockaddr(bytes, at);
    if (place >= 0) {
      const known = this.table.at(place)!;
      if (known.untilMs > nowMs) return known.isLocal;
      this.table.remove(place);
    }
    if (this.table.full) this.table = new AddressTable(capacity);
    this.table.findSockaddr(bytes, at);
    const isLocal = ask(bytes, at);
    this.table.insert({ isLocal, untilMs: nowMs + holdMs });
    return isLocal;
  }
}

function ask(bytes: Buffer, at: number): boolean {
  try {
    return isLocalAddress(endpointAt(bytes, at));
  } catch (error) {
    if (error instanceof SyscallError) return true; // without a descriptor
    throw error;
  }
}
