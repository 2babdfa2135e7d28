/** Opens the listening sockets, before any worker runs: what cannot be listened on refuses the start. */
import { isIP } from 'node:net';
import type { Config } from '../config/config.js';
import { ConfigError, SyscallError, UsageError } from '../errors.js';
import { close } from '../linux/libc.js';
import { Endpoint } from '../linux/sockaddr.js';
import { listenUdp, type UdpListenOptions } from '../linux/datagram.js';
import { listenTcp, type ListenOptions } from '../linux/socket.js';
import type { ListenerPlan } from '../relay/plan.js';
import type { UdpListenerPlan } from '../relay/udp-plane.js';
import type { Dns } from './dns.js';

/** shadowsocks-libev's queue of unconfirmed Fast Open connections. */
const fastOpenQueue = 5;

/** Where to listen: every address with its port, and in ss-redir the marked ports of `dscp` too. */
interface Place {
  endpoint: Endpoint;
  tos: number;
  ipv6Only?: boolean;
  mark?: number;
}

export interface Listeners {
  /** One set a worker. */
  tcp: ListenerPlan[][];
  /** For one worker: all datagrams of a client must meet in one session. */
  udp: UdpListenerPlan[];
}

/**
 * TCP: one set of listeners a worker. With several workers each has sockets of its own in one SO_REUSEPORT group.
 *
 * @throws {UsageError} that names address, port and what to do.
 */
export async function openListeners(
  config: Config,
  mark: number,
  dns: Dns,
  warn: (text: string) => void,
): Promise<Listeners> {
  const places = config.command === 'ss-redir' ? redirPlaces(config) : await serverPlaces(config, dns);
  for (const place of places) place.mark = mark;
  leaveIpv4ToItsOwn(places);
  return {
    tcp: config.tcp ? openTcp(config, places, warn) : Array.from({ length: config.workers }, () => []),
    udp: config.udp ? places.map((place) => openUdp(config, place)) : [],
  };
}

function openTcp(config: Config, places: Place[], warn: (text: string) => void): ListenerPlan[][] {
  const reusePort = config.reusePort || config.workers > 1;
  if (reusePort && !config.reusePort) for (const place of places) probe(config, place, warn);
  return Array.from({ length: config.workers }, () =>
    places.map((place) => ({
      fd: open(config, place, reusePort, warn),
      port: place.endpoint.port,
      tos: place.tos,
    })),
  );
}

function openUdp(config: Config, { endpoint, tos, ipv6Only = false, mark = 0 }: Place): UdpListenerPlan {
  const isRedir = config.command === 'ss-redir';
  const anyAddress = endpoint.host === '::' || endpoint.host === '0.0.0.0';
  const options: UdpListenOptions = {
    transparent: isRedir,
    packetInfo: !isRedir && anyAddress,
    ipv6Only,
    reusePort: config.reusePort,
    mark,
  };
  try {
    return { fd: listenUdp(endpoint, options), port: endpoint.port, tos, ipv6: !endpoint.isIpv4 };
  } catch (error) {
    if (!(error instanceof SyscallError)) throw error;
    throw new UsageError(explain(error, endpoint, 'UDP'), { cause: error });
  }
}

function redirPlaces(config: Config): Place[] {
  const main = { endpoint: Endpoint.parse(config.localAddress, config.localPort)!, tos: 0 };
  const marked = config.dscp
    .filter(({ port }) => port !== config.localPort)
    .map(({ port, tos }) => ({ endpoint: Endpoint.parse(config.localAddress, port)!, tos }));
  const ownTos = config.dscp.find(({ port }) => port === config.localPort)?.tos ?? 0;
  return [{ ...main, tos: ownTos }, ...marked];
}

async function serverPlaces(config: Config, dns: Dns): Promise<Place[]> {
  const places: Place[] = [];
  for (const { host, port } of config.servers) {
    const address = isIP(host) === 0 ? await firstAddress(host, dns) : host;
    places.push({ endpoint: Endpoint.parse(address, port)!, tos: 0 });
  }
  return places;
}

/** Files for shadowsocks-libev often list both `::` and `0.0.0.0`: then `::` must not take the port for both. */
function leaveIpv4ToItsOwn(places: Place[]): void {
  for (const place of places) {
    const { endpoint } = place;
    place.ipv6Only =
      endpoint.host === '::' &&
      places.some(({ endpoint: other }) => other.host === '0.0.0.0' && other.port === endpoint.port);
  }
}

async function firstAddress(host: string, dns: Dns): Promise<string> {
  try {
    return (await dns.resolve(host)).addresses[0]!;
  } catch (error) {
    throw new ConfigError(`server "${host}", the address to listen on: ${(error as Error).message}`);
  }
}

/** The sockets of a group would join whoever else listens with SO_REUSEPORT: find out with one that does not. */
function probe(config: Config, place: Place, warn: (text: string) => void): void {
  close(open(config, place, false, warn));
}

function open(
  config: Config,
  { endpoint, ipv6Only = false, mark = 0 }: Place,
  reusePort: boolean,
  warn: (text: string) => void,
): number {
  const options: ListenOptions = {
    transparent: config.tcpTproxy,
    ipv6Only,
    reusePort,
    mptcp: config.command === 'ss-server' && config.mptcp,
    fastOpenQueue: config.command === 'ss-server' && config.fastOpen ? fastOpenQueue : 0,
    mark,
    sendBuffer: config.tcpIncomingSndbuf,
    receiveBuffer: config.tcpIncomingRcvbuf,
  };
  try {
    return listenTcp(endpoint, options, warn);
  } catch (error) {
    if (!(error instanceof SyscallError)) throw error;
    throw new UsageError(explain(error, endpoint, 'TCP'), { cause: error });
  }
}

function explain(error: SyscallError, endpoint: Endpoint, protocol: 'TCP' | 'UDP'): string {
  const { code, syscall } = error;
  const where = `cannot listen at ${endpoint} (${protocol})`;
  if (code === 'EADDRINUSE') return `${where}: the port is in use by another program`;
  if (code === 'EADDRNOTAVAIL') return `${where}: this host does not have that address`;
  if (code === 'EACCES') return `${where}: ports below 1024 need root or CAP_NET_BIND_SERVICE`;
  if (code === 'EPERM' && syscall.includes('TRANSPARENT')) {
    const what = protocol === 'UDP' ? 'UDP' : 'TPROXY';
    return `${what} needs CAP_NET_ADMIN or CAP_NET_RAW (${error.message}): run as root, or grant it in the unit`;
  }
  if (code === 'EPERM' && syscall.includes('SO_MARK')) {
    return `marking our own traffic needs CAP_NET_ADMIN or CAP_NET_RAW (${error.message}): run as root, grant it in the unit, or go without by --outbound-fwmark 0`;
  }
  return `${where}: ${error.message}`;
}
