/** Opens the listening sockets, before any worker runs: what cannot be listened on refuses the start. */
import { isIP } from 'node:net';
import type { Config } from '../config/config.js';
import { ConfigError, SyscallError, UsageError } from '../errors.js';
import { close } from '../linux/libc.js';
import { Endpoint } from '../linux/sockaddr.js';
import { adoptUdp, listenUdp, type UdpListenOptions } from '../linux/datagram.js';
import { adoptTcp, hasIpv6, listenTcp, type ListenOptions, localEndpoint } from '../linux/socket.js';
import type { ListenerPlan } from '../relay/plan.js';
import type { UdpListenerPlan } from '../relay/udp-plane.js';
import { type PassedSocket, storeName } from '../systemd/listen-fds.js';
import type { Notifier } from '../systemd/notify.js';
import type { Dns } from './dns.js';
import { PassedSockets, shareOut } from './passed.js';
import { lacking, lackingMark } from './privileges.js';

/** shadowsocks-libev's queue of unconfirmed Fast Open connections. */
const fastOpenQueue = 5;

/** Where to listen: every address with its port, and in ss-redir the marked ports of `dscp` too. */
interface Place {
  endpoint: Endpoint;
  tos: number;
  ipv6Only?: boolean;
  mark?: number;
  /** From the service manager; an empty list where another place's sockets serve this one, too. */
  passedTcp?: PassedSocket[] | undefined;
  passedUdp?: PassedSocket[] | undefined;
}

export interface Listeners {
  /** One set a worker. */
  tcp: ListenerPlan[][];
  /** For one worker: all datagrams of a client must meet in one session. */
  udp: UdpListenerPlan[];
}

/** What the service manager has passed, and how to tell it what it shall keep for the next start. */
export interface Manager {
  passed: readonly PassedSocket[];
  notifier: Notifier;
}

/**
 * TCP: one set of listeners a worker. With several workers each has sockets of its own in one SO_REUSEPORT group; those of
 * a socket unit are shared. What is opened here goes into the manager's store, so that a restart refuses nobody.
 *
 * @throws {UsageError} that names address, port and what to do.
 */
export async function openListeners(
  config: Config,
  mark: number,
  dns: Dns,
  warn: (text: string) => void,
  manager?: Manager,
): Promise<Listeners> {
  const places = config.command === 'ss-redir' ? redirPlaces(config) : await serverPlaces(config, dns);
  for (const place of places) place.mark = mark;
  if (!hasIpv6()) takeIpv4Instead(places, warn);
  leaveIpv4ToItsOwn(places);
  if (manager !== undefined) await distribute(config, places, manager, warn);
  const listeners = {
    tcp: config.tcp ? openTcp(config, places, warn) : Array.from({ length: config.workers }, () => []),
    udp: config.udp ? places.flatMap((place) => openUdp(config, place, warn)) : [],
  };
  if (manager !== undefined) store(listeners, manager);
  return listeners;
}

/** Gives each place its passed sockets. What the store has kept for an address of the past must be gone before we bind. */
async function distribute(
  config: Config,
  places: Place[],
  { passed, notifier }: Manager,
  warn: (text: string) => void,
): Promise<void> {
  const sockets = new PassedSockets(passed);
  for (const place of places) {
    const { endpoint, ipv6Only = false } = place;
    if (config.tcp) place.passedTcp = sockets.take({ kind: 'tcp', endpoint, ipv6Only });
    if (config.udp) place.passedUdp = sockets.take({ kind: 'udp', endpoint, ipv6Only });
  }
  sockets.refuseStrange(config, warn);
  const stale = sockets.dropStored();
  for (const name of stale) notifier.remove(name);
  if (stale.length > 0) await notifier.barrier();
}

/** The manager knows a socket that it has already, and one that its socket unit made shall not be kept twice. */
function store({ tcp, udp }: Listeners, { passed, notifier }: Manager): void {
  const known = new Set(passed.map(({ fd }) => fd));
  for (const [kind, plans] of [
    ['tcp', tcp.flat()],
    ['udp', udp],
  ] as const) {
    for (const { fd } of plans) {
      if (known.has(fd)) continue;
      notifier.store(fd, storeName(kind, localEndpoint(fd)!));
    }
  }
}

function openTcp(config: Config, places: Place[], warn: (text: string) => void): ListenerPlan[][] {
  const reusePort = config.reusePort || config.workers > 1;
  for (const place of places) {
    if (place.passedTcp !== undefined) adoptListeners(config, place, warn);
    else if (reusePort && !config.reusePort) probe(config, place, warn);
  }
  const perPlace = places.map((place) => openTcpAt(config, place, reusePort, warn));
  return Array.from({ length: config.workers }, (_, worker) => perPlace.flatMap((sets) => sets[worker]!));
}

/** The listeners of one place, a set a worker. */
function openTcpAt(
  config: Config,
  place: Place,
  reusePort: boolean,
  warn: (text: string) => void,
): ListenerPlan[][] {
  const { passedTcp, tos } = place;
  const { workers } = config;
  if (passedTcp === undefined) {
    const { port } = place.endpoint;
    return Array.from({ length: workers }, () => [{ fd: open(config, place, reusePort, warn), port, tos }]);
  }
  if (passedTcp.length === 0) return Array.from({ length: workers }, () => []);
  const shared = passedTcp.length < workers;
  return shareOut(passedTcp, workers).map((sockets) =>
    sockets.map(({ fd, endpoint: { port } }) => ({ fd, port, tos, shared })),
  );
}

function adoptListeners(config: Config, place: Place, warn: (text: string) => void): void {
  for (const { fd, endpoint, ipv6 } of place.passedTcp!) {
    refused(config, endpoint, 'TCP', () => adoptTcp(fd, ipv6, tcpOptions(config, place)));
    tellOfAddress(endpoint, place, warn);
  }
}

function tellOfAddress(own: Endpoint, { endpoint }: Place, warn: (text: string) => void): void {
  if (!own.equals(endpoint))
    warn(`listening at ${own}, as the socket unit has it, in the place of ${endpoint}`);
}

function openUdp(config: Config, place: Place, warn: (text: string) => void): UdpListenerPlan[] {
  const { endpoint, tos, passedUdp } = place;
  if (passedUdp === undefined) {
    const fd = refused(config, endpoint, 'UDP', () =>
      listenUdp(endpoint, udpOptions(config, place, endpoint)),
    );
    return [{ fd, port: endpoint.port, tos, ipv6: !endpoint.isIpv4 }];
  }
  return passedUdp.map(({ fd, endpoint: own, ipv6 }) => {
    refused(config, own, 'UDP', () => adoptUdp(fd, ipv6, udpOptions(config, place, own)));
    tellOfAddress(own, place, warn);
    return { fd, port: own.port, tos, ipv6 };
  });
}

function udpOptions(
  config: Config,
  { ipv6Only = false, mark = 0 }: Place,
  endpoint: Endpoint,
): UdpListenOptions {
  const isRedir = config.command === 'ss-redir';
  const anyAddress = endpoint.host === '::' || endpoint.host === '0.0.0.0';
  return {
    transparent: isRedir,
    packetInfo: !isRedir && anyAddress,
    ipv6Only,
    reusePort: config.reusePort,
    mark,
  };
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

/** Where IPv6 is not in the kernel (ipv6.disable=1, or not built), `::` can only mean all addresses of IPv4. */
function takeIpv4Instead(places: Place[], warn: (text: string) => void): void {
  for (const place of places) {
    if (place.endpoint.host !== '::') continue;
    warn(
      `this kernel has no IPv6: listening at 0.0.0.0:${place.endpoint.port} in place of ${place.endpoint}`,
    );
    place.endpoint = Endpoint.parse('0.0.0.0', place.endpoint.port)!;
  }
  const known = new Set<string>();
  for (const place of places.splice(0)) {
    if (known.has(String(place.endpoint))) continue; // the file had listed both
    known.add(String(place.endpoint));
    places.push(place);
  }
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

function open(config: Config, place: Place, reusePort: boolean, warn: (text: string) => void): number {
  const options = { ...tcpOptions(config, place), reusePort };
  return refused(config, place.endpoint, 'TCP', () => listenTcp(place.endpoint, options, warn));
}

function tcpOptions(config: Config, { ipv6Only = false, mark = 0 }: Place): ListenOptions {
  return {
    transparent: config.tcpTproxy,
    ipv6Only,
    mptcp: config.command === 'ss-server' && config.mptcp,
    fastOpenQueue: config.command === 'ss-server' && config.fastOpen ? fastOpenQueue : 0,
    mark,
    sendBuffer: config.tcpIncomingSndbuf,
    receiveBuffer: config.tcpIncomingRcvbuf,
  };
}

/** Runs what listens; a system call that fails refuses the start, with the reason. */
function refused<T>(config: Config, endpoint: Endpoint, protocol: 'TCP' | 'UDP', listen: () => T): T {
  try {
    return listen();
  } catch (error) {
    if (!(error instanceof SyscallError)) throw error;
    throw new UsageError(explain(config, error, endpoint, protocol), { cause: error });
  }
}

function explain(config: Config, error: SyscallError, endpoint: Endpoint, protocol: 'TCP' | 'UDP'): string {
  const { code, syscall } = error;
  const where = `cannot listen at ${endpoint} (${protocol})`;
  if (code === 'EADDRINUSE') return `${where}: the port is in use by another program`;
  if (code === 'EADDRNOTAVAIL') return `${where}: this host does not have that address`;
  if (code === 'EACCES') return `${where}: ports below 1024 need root or CAP_NET_BIND_SERVICE`;
  if (code === 'EPERM' && syscall.includes('TRANSPARENT')) {
    const what = protocol === 'UDP' ? 'UDP by TPROXY (IP_TRANSPARENT)' : 'TCP by TPROXY (IP_TRANSPARENT)';
    return `${lacking(config, what)}; or let a socket unit listen (Transparent=yes)`;
  }
  if (code === 'EPERM' && syscall.includes('SO_MARK')) return lackingMark(config);
  return `${where}: ${error.message}`;
}
