/** The secrets of one server, as the data plane uses them. */

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
