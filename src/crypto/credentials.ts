/** The secrets of one server, as the data plane uses them. */
import { pskHash } from './keys-2022.js';

export interface User {
  readonly name: string;
  /** 2022: the user's PSK. */
  readonly key: Uint8Array;
}

export interface Credentials {
  /** 2017: the master key. 2022: the PSK that sessions are derived from; in a server with users, its identity PSK. */
  readonly key: Uint8Array;
  /** 2022 client: the identity PSKs before the user's, in order (SIP023); empty without. */
  readonly identityKeys: readonly Uint8Array[];
  /** 2022 server: its users; empty when there is only `key`. */
  readonly users: readonly User[];
}

/** Finds a user by what an identity header holds of him: the hash of his PSK (SIP023). */
export class UserIndex {
  private readonly indexes = new Map<string, number>();

  constructor(users: readonly User[]) {
    users.forEach(({ key }, i) => this.indexes.set(nameOf(pskHash(key)), i));
  }

  /** Index of the user in the list; -1 when there is none. */
  find(hash: Uint8Array): number {
    return this.indexes.get(nameOf(hash)) ?? -1;
  }
}

function nameOf(hash: Uint8Array): string {
  return String.fromCharCode(...hash);
}
