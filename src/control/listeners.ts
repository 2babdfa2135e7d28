/** Opens the listening sockets, before any worker runs: what cannot be listened on refuses the start. */
import { isIP } from 'node:net';
import type { Config } from '../config/config.js';
import { ConfigError, SyscallError, UsageError } from '../errors.js';
import { close } from '../linux/libc.js';
import { Endpoint } from '../linux/sockaddr.js';
import { listenTcp, type ListenOptions } from '../linux/socket.js';
import type { ListenerPlan } from '../relay/plan.js';
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

/**
 * One set of listeners a worker. With several workers each has sockets of its own in one SO_REUSEPORT group.
 *
 * @throws {UsageError} that names address, port and what to do.
 */
export async function openListeners(
  config: Config,
  mark: number,
  dns: Dns,
  warn: (text: string) => void,
): Promise<ListenerPlan[][]> {
  const places = config.command === 'ss-redir' ? redirPlaces(config) : await serverPlaces(config, dns);
  for (const place of places) place.mark = mark;
  leaveIpv4ToItsOwn(places);
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
    throw new UsageError(explain(error, endpoint), { cause: error });
  }
}

function explain(error: SyscallError, endpoint: Endpoint): string {
  const { code, syscall } = error;
  if (code === 'EADDRINUSE') return `cannot listen at ${endpoint}: the port is in use by another program`;
  if (code === 'EADDRNOTAVAIL') return `cannot listen at ${endpoint}: this host does not have that address`;
  if (code === 'EACCES')
    return `cannot listen at ${endpoint}: ports below 1024 need root or CAP_NET_BIND_SERVICE`;
  if (code === 'EPERM' && syscall.includes('TRANSPARENT')) {
    return `TPROXY needs CAP_NET_ADMIN or CAP_NET_RAW (${error.message}): run as root, or grant it in the unit`;
  }
  if (code === 'EPERM' && syscall.includes('SO_MARK')) {
    return `marking our own traffic needs CAP_NET_ADMIN or CAP_NET_RAW (${error.message}): run as root, grant it in the unit, or go without by --outbound-fwmark 0`;
  }
  return `cannot listen at ${endpoint}: ${error.message}`;
}
