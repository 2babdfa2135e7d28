/** What a command runs with, once file, command line and defaults have been put together and checked. */

import type { Credentials } from '../crypto/credentials.js';
import type { Setting, Settings } from './setting.js';

export type Command = 'ss-redir' | 'ss-server';

export interface ServerAddress {
  /** An IP literal without brackets (IPv4-mapped ones as IPv4), or a name. */
  readonly host: string;
  readonly port: number;
}

/** ss-redir: how one server is reached. ss-server: an address to listen on. */
export interface Server extends ServerAddress {
  /** What the configuration calls it. */
  readonly name?: string;
  /** In ss-server the same for all. */
  readonly method: string;
  /** Not enumerable, like that of Config. */
  readonly credentials: Credentials;
  /** Which of the protocols that are relayed it carries. */
  readonly tcp: boolean;
  readonly udp: boolean;
}

/** An additional listening port, whose connections leave with this IP_TOS and IPV6_TCLASS. */
export interface MarkedPort {
  readonly port: number;
  /** The whole byte: DSCP in the upper six bits. */
  readonly tos: number;
}

export interface Config {
  readonly command: Command;
  /** Where the settings were read from; absent when the command line gave everything. */
  readonly configFile?: string;
  /** As --instance says. */
  readonly instance?: string;
  /** --rules: they are brought and taken away with the command. */
  readonly makesRules: boolean;
  /** --fail, over what the gateway section says. */
  readonly fail?: Setting;
  /** Things to tell at start that do not stop it, one line each. */
  readonly warnings: readonly string[];

  /** ss-redir: the servers to choose from. ss-server: the addresses to listen on; `::` means IPv4 too. */
  readonly servers: readonly Server[];
  /** ss-redir: where it listens. An IP literal. */
  readonly localAddress: string;
  /** ss-redir: where it listens; 0 in ss-server. */
  readonly localPort: number;
  readonly dscp: readonly MarkedPort[];
  /** Name servers as dns.setServers takes them; empty for those of the system. */
  readonly nameservers: readonly string[];
  /** ss-server: source addresses of its connections to targets. */
  readonly bindAddress4?: string;
  readonly bindAddress6?: string;
  /** ss-server: SO_BINDTODEVICE of its connections to targets. */
  readonly interface?: string;

  /** Of the first server; in ss-server of all. */
  readonly method: string;
  /** Of the first server, too. Not enumerable, so that printing, serialising, spreading or cloning a Config never carries a secret: read it by name. */
  readonly credentials: Credentials;

  readonly timeoutSeconds: number;
  readonly idleTimeoutSeconds: number;
  readonly workers: number;
  readonly maxConnections: number;
  readonly maxDnsQueries: number;
  /** SO_MARK of our own connections; 0 for none. */
  readonly outboundFwmark: number;
  /** RLIMIT_NOFILE; absent to leave it. */
  readonly nofile?: number;

  /** Which protocols are relayed: one of them at least. */
  readonly tcp: boolean;
  readonly udp: boolean;
  readonly udpTimeoutSeconds: number;
  /** Absent: as many as the descriptor limit leaves room for. */
  readonly udpMaxAssociations?: number;
  /** Of the way to the server, or to the clients: datagrams that do not fit are told of, and go in fragments. 0: not asked. */
  readonly mtu: number;

  readonly tcpTproxy: boolean;
  readonly fastOpen: boolean;
  readonly reusePort: boolean;
  readonly noDelay: boolean;
  readonly mptcp: boolean;
  readonly ipv6First: boolean;
  /** Whom to become once everything that takes root is done: a name or number. */
  readonly user?: string;
  readonly verbose: boolean;
  readonly useSyslog: boolean;

  /** SO_SNDBUF and SO_RCVBUF towards clients (incoming) and servers or targets (outgoing); 0 to leave them. */
  readonly tcpIncomingSndbuf: number;
  readonly tcpIncomingRcvbuf: number;
  readonly tcpOutgoingSndbuf: number;
  readonly tcpOutgoingRcvbuf: number;

  /** What the file says of the rules, as it was written. */
  readonly gateway?: Settings;
}

// As shadowsocks-libev has them.
export const defaultTimeoutSeconds: Readonly<Record<Command, number>> = { 'ss-redir': 600, 'ss-server': 60 };
/** shadowsocks-libev leaves a buffer of less than this to the kernel. */
export const smallestBuffer = 16_383;
/** shadowsocks-libev applies `nofile` only above this. */
export const smallestNofile = 1024;

// Ours.
/** At least this long before a quiet connection is closed that is open in both directions. */
export const minimumIdleTimeoutSeconds = 86_400;
/** Of shadowsocks-rust and shadowsocks-go. libev's is `timeout`, at least 10. */
export const defaultUdpTimeoutSeconds = 300;
/** A NAT mapping that goes sooner breaks voice and games (RFC 4787 wants 2 minutes); 2022 sessions must stay 60 s (SIP022). */
export const minimumUdpTimeoutSeconds = { aead: 60, '2022': 65 } as const;
export const defaultWorkers = 1;
/** The own-traffic bit of the rules. */
export const defaultOutboundFwmark = 0x0200_0000;
/**
 * Two descriptors a connection make 16,384, which leaves room for listeners, name queries and Node itself under a limit of
 * 20,000. A lower RLIMIT_NOFILE lowers the number in force. Idle at 8 KiB each, they hold 64 MiB.
 */
export const defaultMaxConnections = 8192;
/**
 * A name whose servers stay silent is given up after 2 tries of 3 s, so even then 512 let 85 names through a second.
 * c-ares holds a few KiB a query.
 */
export const defaultMaxDnsQueries = 512;
