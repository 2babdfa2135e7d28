// The programs that tests set against each other, and how each is told the same things. Settings come in libev's JSON
// keys, with the servers' `users` of AEAD-2022; peers that spell them otherwise get them translated here.
import { fileURLToPath } from 'node:url';
import { findCommand } from './packages.js';
import { peerProgram, peerTitle, whyNoPeer as whyNotBuilt, type BuiltPeer } from './peer-builds.js';

/** Those with libev's programs, ss-redir above all. */
export type Kind = 'ours' | 'debian';
export type PeerKind = Kind | BuiltPeer;
/** Those that have a client other than a transparent one. */
export type ClientKind = Exclude<PeerKind, 'ours'>;
export type Program = 'ss-redir' | 'ss-server' | 'ss-local' | 'ss-tunnel';

/** Keys of libev's JSON configuration. */
export type Config = Record<string, unknown>;

/** A program to start: its command line gets the configuration's file behind `-c`. */
export interface Run {
  label: string;
  command: string[];
  config: Config;
  /** Where it listens when it is ready. */
  tcpPort?: number;
  udpPort?: number;
}

/** Of a program whose configuration has libev's `mode`. */
export function portsOf(config: Config, port: number): Pick<Run, 'tcpPort' | 'udpPort'> {
  const { mode = 'tcp_only' } = config;
  return { ...(mode !== 'udp_only' && { tcpPort: port }), ...(mode !== 'tcp_only' && { udpPort: port }) };
}

/** Where a UDP tunnel listens, and where it leads. */
export interface Tunnel {
  port: number;
  target: { host: string; port: number };
}

/** Why tests with this peer have to be skipped, in one line, or false. */
export function whyNoPeer(kind: PeerKind): string | false {
  if (kind === 'ours') return false;
  if (kind === 'debian') return findCommand('ss-server') ? false : 'needs shadowsocks-libev';
  return whyNotBuilt(kind);
}

/** What a table of results calls it. */
export function titleOf(kind: PeerKind): string {
  if (kind === 'ours') return 'ours';
  return kind === 'debian' ? 'shadowsocks-libev' : peerTitle(kind);
}

const standIn = process.env['SS_REDIR_TEST_OURS'] as ClientKind | undefined;

/**
 * SS_REDIR_TEST_OURS=debian puts Debian's programs in the place of ours; a built peer's name puts its server in the place of
 * our ss-server. That is how the tests themselves are tested: those on which the peer is known to be wrong must then fail.
 */
export function commandLine(program: Program, kind: Kind, node: string = process.execPath): string[] {
  if (kind === 'debian' || standIn === 'debian') return [findCommand(program) ?? program];
  return [node, fileURLToPath(new URL(`../../src/bin/${program}.js`, import.meta.url))];
}

/** A server with `config`, which says where it listens. */
export function serverRun(kind: PeerKind, config: Config, node?: string): Run {
  if (kind === 'ours' && standIn) return serverRun(standIn, config);
  const ports = portsOf(config, Number(config['server_port']));
  if (kind === 'rust') {
    const command = [peerProgram('rust', 'ssserver')];
    return { label: 'rust ssserver', command, config: rustServer(config), ...ports };
  }
  if (kind === 'sing-box') return { ...singBox('server', singBoxServer(config)), ...ports };
  return { label: `${kind} ss-server`, command: commandLine('ss-server', kind, node), config, ...ports };
}

/** A SOCKS5 listener for TCP on the configuration's local address and port, and beside it a tunnel for UDP. */
export function clientRuns(kind: ClientKind, config: Config, tunnel: Tunnel): Run[] {
  const ports = { tcpPort: Number(config['local_port']), udpPort: tunnel.port };
  if (kind === 'rust') {
    const command = [peerProgram('rust', 'sslocal')];
    return [{ label: 'rust sslocal', command, config: rustClient(config, tunnel), ...ports }];
  }
  if (kind === 'sing-box') return [{ ...singBox('client', singBoxClient(config, tunnel)), ...ports }];

  const { host, port } = tunnel.target;
  const socks = { ...config, mode: 'tcp_only' };
  const through = {
    ...config,
    mode: 'udp_only',
    local_port: tunnel.port,
    tunnel_address: `${host.includes(':') ? `[${host}]` : host}:${port}`,
  };
  const { tcpPort, udpPort } = ports;
  return [
    { label: 'debian ss-local', command: commandLine('ss-local', kind), config: socks, tcpPort },
    { label: 'debian ss-tunnel', command: commandLine('ss-tunnel', kind), config: through, udpPort },
  ];
}

// Unless told otherwise both built peers forbid the kernel to cut datagrams, and lose what is larger than the MTU.
const rustFragments = { outbound_udp_allow_fragmentation: true, inbound_udp_allow_fragmentation: true };
const singBoxFragments = { udp_fragment: true };

// crates/shadowsocks-service/src/config.rs: users stand in `servers` only.
function rustServer({ mode, ...server }: Config): Config {
  return { mode, servers: [server], ...rustFragments };
}

// The same: `locals` in the place of local_address and local_port.
function rustClient(config: Config, { port, target }: Tunnel): Config {
  const { local_address: address, local_port: socksPort, mode: _, ...rest } = config;
  const local = { local_address: address };
  return {
    ...rest,
    ...rustFragments,
    locals: [
      { ...local, local_port: socksPort, protocol: 'socks', mode: 'tcp_only' },
      {
        ...local,
        local_port: port,
        protocol: 'tunnel',
        mode: 'udp_only',
        forward_address: target.host,
        forward_port: target.port,
      },
    ],
  };
}

function singBox(role: string, config: Config): Run {
  return { label: `sing-box ${role}`, command: [peerProgram('sing-box', 'sing-box'), 'run'], config };
}

const singBoxLog = { level: 'warn', timestamp: true };

function singBoxServer(config: Config): Config {
  const inbound = {
    type: 'shadowsocks',
    listen: config['server'],
    listen_port: config['server_port'],
    method: config['method'],
    password: config['password'],
    ...singBoxFragments,
    ...(config['users'] !== undefined && { users: config['users'] }),
  };
  return { log: singBoxLog, inbounds: [inbound], outbounds: [{ type: 'direct', ...singBoxFragments }] };
}

function singBoxClient(config: Config, { port, target }: Tunnel): Config {
  const listen = config['local_address'];
  return {
    log: singBoxLog,
    inbounds: [
      { type: 'socks', listen, listen_port: config['local_port'] },
      {
        type: 'direct',
        listen,
        listen_port: port,
        network: 'udp',
        ...singBoxFragments,
        override_address: target.host,
        override_port: target.port,
      },
    ],
    outbounds: [
      {
        type: 'shadowsocks',
        server: config['server'],
        server_port: config['server_port'],
        method: config['method'],
        password: config['password'],
        ...singBoxFragments,
      },
    ],
  };
}
