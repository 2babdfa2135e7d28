/** The one table of command-line options. Parsing, --help and the configuration all read it. */
import type { Command } from '../config/config.js';
import { noOneTimeAuth } from '../config/schema.js';
import { nftOptions } from './options-nft.js';
import { setupOptions } from './options-setup.js';

/** Whatever has a command line. */
export type Program = Command | 'ss-nft' | 'ss-setup';

export interface Option {
  readonly long: string;
  readonly short?: string;
  /** What stands for the argument in --help; absent for a switch. */
  readonly argument?: string;
  /** May be given several times; the values add up. Elsewhere the last one counts. */
  readonly repeat?: true;
  readonly commands: readonly Program[];
  /** Of the configuration file. */
  readonly key?: string;
  /** Of a switch that stands for a value of its key other than true. */
  readonly sets?: string;
  /** The default as --help says it. */
  readonly fallback?: string;
  readonly help: string;
  /** The feature, not in this version, that the option belongs to: refused by name. */
  readonly later?: string;
  /** Why it is refused for good. */
  readonly refused?: string;
}

const both = ['ss-redir', 'ss-server'] as const;
const redir = ['ss-redir'] as const;
const server = ['ss-server'] as const;

export const options: readonly Option[] = [
  // Addresses
  {
    short: 's',
    long: 'server',
    argument: 'HOST',
    repeat: true,
    commands: redir,
    key: 'server',
    help: 'server: HOST, HOST:PORT or [IPV6]:PORT; give it again for more servers',
  },
  {
    short: 's',
    long: 'server',
    argument: 'HOST',
    repeat: true,
    commands: server,
    key: 'server',
    fallback: 'all addresses',
    help: 'address to listen on: HOST, HOST:PORT or [IPV6]:PORT; give it again for more',
  },
  {
    short: 'p',
    long: 'server-port',
    argument: 'PORT',
    commands: redir,
    key: 'server_port',
    help: 'port of the servers that are given without one',
  },
  {
    short: 'p',
    long: 'server-port',
    argument: 'PORT',
    commands: server,
    key: 'server_port',
    help: 'port to listen on',
  },
  {
    short: 'l',
    long: 'local-port',
    argument: 'PORT',
    commands: redir,
    key: 'local_port',
    help: 'port that the rules redirect to',
  },
  {
    short: 'b',
    long: 'local-address',
    argument: 'ADDRESS',
    commands: redir,
    key: 'local_address',
    fallback: '127.0.0.1, or ::1 if all servers are IPv6',
    help: 'address to listen on; REDIRECT for a LAN needs :: or 0.0.0.0',
  },
  {
    short: 'b',
    long: 'local-address',
    argument: 'ADDRESS',
    commands: server,
    key: 'local_address',
    help: 'source address of outgoing connections',
  },
  {
    short: 'i',
    long: 'interface',
    argument: 'NAME',
    commands: server,
    key: 'interface',
    help: 'network interface of outgoing connections',
  },
  {
    short: 'd',
    long: 'nameserver',
    argument: 'ADDRESSES',
    commands: server,
    key: 'nameserver',
    fallback: "the system's",
    help: 'name servers, separated by commas',
  },

  // Secrets
  {
    short: 'k',
    long: 'password',
    argument: 'PASSWORD',
    commands: both,
    key: 'password',
    help: 'password; everybody on this host can see it here, prefer the file',
  },
  {
    long: 'key',
    argument: 'BASE64',
    commands: both,
    key: 'key',
    help: 'the key itself in base64; wins over a password',
  },
  {
    short: 'm',
    long: 'method',
    argument: 'METHOD',
    commands: both,
    key: 'method',
    fallback: 'chacha20-ietf-poly1305',
    help: 'aes-{128,192,256}-gcm, [x]chacha20-ietf-poly1305 or one of 2022-blake3-*',
  },

  // Files and limits
  {
    short: 'c',
    long: 'config',
    argument: 'FILE',
    commands: redir,
    fallback: "if nothing is set here: /etc/ss-redir/config.conf, or shadowsocks-libev's",
    help: 'configuration file, JSON or INI',
  },
  {
    short: 'c',
    long: 'config',
    argument: 'FILE',
    commands: server,
    fallback: 'if nothing is set here: shadowsocks-libev/config.json in ~/.config or /etc',
    help: 'configuration file, JSON or INI',
  },
  {
    long: 'instance',
    argument: 'NAME',
    commands: both,
    help: 'configuration NAME.conf or NAME.json in /etc/ss-redir, or /etc/shadowsocks-libev/NAME.json',
  },
  {
    short: 't',
    long: 'timeout',
    argument: 'SECONDS',
    commands: redir,
    key: 'timeout',
    fallback: '600',
    help: 'for handshakes and for connections closed in one direction',
  },
  {
    short: 't',
    long: 'timeout',
    argument: 'SECONDS',
    commands: server,
    key: 'timeout',
    fallback: '60',
    help: 'for handshakes and for connections closed in one direction',
  },
  {
    long: 'idle-timeout',
    argument: 'SECONDS',
    commands: both,
    key: 'idle_timeout',
    fallback: '86400, or the timeout if longer',
    help: 'for connections open in both directions on which nothing moves',
  },
  {
    short: 'n',
    long: 'nofile',
    argument: 'NUMBER',
    commands: both,
    key: 'nofile',
    help: 'limit of open files, above 1024',
  },
  {
    long: 'workers',
    argument: 'NUMBER|auto',
    commands: both,
    key: 'workers',
    fallback: '1',
    help: 'threads that move data; auto: one a processor',
  },
  {
    long: 'max-connections',
    argument: 'NUMBER',
    commands: both,
    key: 'max_connections',
    fallback: '8192',
    help: 'connections at a time; further clients wait',
  },
  {
    long: 'max-dns-queries',
    argument: 'NUMBER',
    commands: both,
    key: 'max_dns_queries',
    fallback: '512',
    help: 'name queries at a time; more are refused',
  },

  // How connections are taken and made
  {
    short: 'T',
    long: 'tcp-tproxy',
    commands: redir,
    key: 'tcp_tproxy',
    help: 'TCP arrives by TPROXY instead of REDIRECT',
  },
  {
    short: '6',
    long: 'ipv6-first',
    commands: both,
    key: 'ipv6_first',
    help: 'prefer IPv6 addresses of names',
  },
  {
    long: 'outbound-fwmark',
    argument: 'MARK',
    commands: both,
    key: 'outbound_fwmark',
    fallback: '0x02000000',
    help: 'mark of our own connections, which the rules let pass; 0: none',
  },
  { long: 'fast-open', commands: both, key: 'fast_open', help: 'TCP fast open, where the kernel allows it' },
  {
    long: 'reuse-port',
    commands: both,
    key: 'reuse_port',
    help: 'SO_REUSEPORT: several processes may listen on the port',
  },
  { long: 'no-delay', commands: both, key: 'no_delay', help: 'keep TCP_NODELAY on' },
  { long: 'mptcp', commands: both, key: 'mptcp', help: 'Multipath TCP, where the kernel allows it' },
  {
    long: 'tcp-incoming-sndbuf',
    argument: 'BYTES',
    commands: both,
    key: 'tcp_incoming_sndbuf',
    fallback: "the kernel's",
    help: 'send buffer towards clients',
  },
  {
    long: 'tcp-incoming-rcvbuf',
    argument: 'BYTES',
    commands: both,
    key: 'tcp_incoming_rcvbuf',
    fallback: "the kernel's",
    help: 'receive buffer towards clients',
  },
  {
    long: 'tcp-outgoing-sndbuf',
    argument: 'BYTES',
    commands: both,
    key: 'tcp_outgoing_sndbuf',
    fallback: "the kernel's",
    help: 'send buffer the other way',
  },
  {
    long: 'tcp-outgoing-rcvbuf',
    argument: 'BYTES',
    commands: both,
    key: 'tcp_outgoing_rcvbuf',
    fallback: "the kernel's",
    help: 'receive buffer the other way',
  },

  // UDP
  {
    short: 'u',
    long: 'tcp-and-udp',
    commands: both,
    key: 'mode',
    sets: 'tcp_and_udp',
    help: 'relay UDP as well',
  },
  {
    short: 'U',
    long: 'udp-only',
    commands: both,
    key: 'mode',
    sets: 'udp_only',
    help: 'relay UDP and no TCP',
  },
  {
    long: 'udp-timeout',
    argument: 'SECONDS',
    commands: both,
    key: 'udp_timeout',
    fallback: '300',
    help: 'of a silent UDP association; at least 60, or 65 with 2022 methods',
  },
  {
    long: 'udp-max-associations',
    argument: 'NUMBER',
    commands: both,
    key: 'udp_max_associations',
    fallback: '3/8 of the descriptors',
    help: 'at a time; the one silent for longest makes room',
  },
  {
    long: 'mtu',
    argument: 'BYTES',
    commands: both,
    key: 'mtu',
    fallback: 'off',
    help: 'tell of packets that this MTU makes fragments of; all are relayed',
  },

  // Beside others on this host
  {
    short: 'a',
    long: 'user',
    argument: 'USER',
    commands: both,
    key: 'user',
    help: 'become USER once listening, keeping CAP_NET_RAW alone',
  },
  {
    short: 'f',
    long: 'pid-file',
    argument: 'FILE',
    commands: both,
    help: 'serve in the background, process number in FILE',
  },
  {
    long: 'rules',
    commands: redir,
    help: 'bring the rules of the gateway section along, held by ss-nft hold, until a stop',
  },
  {
    long: 'fail',
    argument: 'closed|open',
    commands: redir,
    fallback: "the gateway section's, or closed",
    help: 'with --rules, after a crash: rules stay and refuse, or go and all is direct',
  },

  // The command itself
  { short: 'v', long: 'verbose', commands: both, key: 'verbose', help: 'a line for each connection' },
  { long: 'doctor', commands: redir, help: 'look for what is wrong on this host and with the servers' },
  { long: 'json', commands: redir, help: 'with --doctor: as JSON' },
  { long: 'check', commands: both, help: 'check configuration and command line, start nothing' },
  { short: 'h', long: 'help', commands: both, help: 'this text' },
  { short: 'V', long: 'version', commands: both, help: 'name and version' },

  // Known, and not in this version
  {
    long: 'plugin',
    argument: 'NAME',
    commands: both,
    key: 'plugin',
    help: 'SIP003 plugin',
    later: 'running a plugin',
  },
  {
    long: 'plugin-opts',
    argument: 'OPTIONS',
    commands: both,
    key: 'plugin_opts',
    help: 'options of the plugin',
    later: 'running a plugin',
  },
  {
    long: 'acl',
    argument: 'FILE',
    commands: server,
    key: 'acl',
    help: 'access control list',
    later: 'the access control list',
  },
  {
    long: 'manager-address',
    argument: 'ADDRESS',
    commands: server,
    key: 'manager_address',
    help: 'where ss-manager listens',
    later: 'reporting to ss-manager',
  },
  {
    long: 'nftables-sets',
    argument: 'SETS',
    commands: server,
    key: 'nftables_sets',
    help: 'sets to put clients into that fail to authenticate',
    later: 'filling nftables sets',
  },

  // Gone
  {
    short: 'A',
    long: 'one-time-auth',
    commands: both,
    help: 'refused: the AEAD methods authenticate by themselves',
    refused: noOneTimeAuth,
  },

  ...nftOptions,
  ...setupOptions,
];

export function optionsOf(command: Program): readonly Option[] {
  return options.filter((option) => option.commands.includes(command));
}
