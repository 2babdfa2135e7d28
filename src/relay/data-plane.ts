/** The program of a worker thread: builds what its connections share from the plan, then sits in the reactor. */
import { parentPort, workerData } from 'node:worker_threads';
import { selectBackend } from '../crypto/aead.js';
import { type Edition, findMethod, type Method } from '../crypto/methods.js';
import { BufferPool } from '../engine/pool.js';
import { Reactor } from '../engine/reactor.js';
import { runReactor } from '../engine/worker.js';
import { Scatter } from '../linux/scatter.js';
import { Endpoint } from '../linux/sockaddr.js';
import { Access, ServerEndpoint } from './access.js';
import type { RelayContext } from './context.js';
import { blockSize, recordsPerBatch, restSize } from './geometry.js';
import { LogSummary } from './log-summary.js';
import { Limits } from './limits.js';
import { Listener } from './listener.js';
import { Names } from './names.js';
import type { FromWorker, NewPlan, Plan, ServerAddress, ServerKeys, ToWorker } from './plan.js';
import { PoolTrimmer } from './pool-trimmer.js';
import { Redir, redirectTarget, tproxyTarget } from './redir.js';
import { Server } from './server.js';
import { startUdpRedir, type UdpParts, UdpServerSide } from './udp-plane.js';
import type { UdpRedir } from './udp-redir.js';
import { Upstreams } from './upstream.js';
import { UserCounters } from './user-counters.js';
import { WorkerLog } from './worker-log.js';

/** A connection holds a block for each direction, and only while its bytes cannot go on. */
const blocksPerConnection = 2;
const maxBlocks = 8192;

const port = parentPort!;
const startPlan = workerData as Plan;
const post = (message: FromWorker): void => port.postMessage(message);

// What stays over a reload.
const log = new WorkerLog(startPlan.verbose, (level, text) => post({ type: 'log', level, text }));
const backend = selectBackend((warning) => log.error(warning));
const reactor = new Reactor();
const blocks = new BufferPool(
  blockSize,
  Math.min(maxBlocks, 16 + blocksPerConnection * startPlan.maxConnections),
);
const editions = new Map<Edition, Pick<RelayContext, 'rests' | 'scatter'>>();
const limits = new Limits(startPlan.maxConnections);
const names = new Names((id, host) => post({ type: 'resolve', id, host }));
const upstreams = new Upstreams();
/** A server may carry TCP and no UDP, or the other way round. */
const udpUpstreams = new Upstreams();
new PoolTrimmer(reactor, blocks).start();
new LogSummary(reactor, log).start();

// What a reload changes. Connections keep what they were begun with.
let plan: NewPlan = startPlan;
let context = contextMaker(plan)(plan);
let access = new Access(context);
/** ss-redir: of the servers that have a method or keys of their own. */
let otherAccesses = createOtherAccesses();
let relays = createRelays();

const listeners = startPlan.listeners.map(
  ({ fd, shared }, i) =>
    new Listener(context, fd, (client, address) => relays[i]!.onConnection(client, address), shared),
);
let udpRedir: UdpRedir | undefined;
let udpServer: UdpServerSide | undefined;
let isUdpStarted = false;
if (plan.command === 'ss-server') startListeners();
post({ type: 'ready' });
runReactor(reactor, startPlan.control, port, (message) => onMessage(message as ToWorker), {
  get open() {
    return limits.open;
  },
  get associations() {
    return udpRedir?.size ?? udpServer?.size ?? 0;
  },
});

/** All contexts of a plan are one, but for method and keys, and what an edition wants of its own. */
function contextMaker(settings: NewPlan): (keys: ServerKeys) => RelayContext {
  const { timeouts, noDelay, userMemory } = settings;
  const userCounters = userMemory && new UserCounters(userMemory);
  const connectOptions = {
    mark: settings.mark,
    mptcp: settings.mptcp,
    fastOpen: settings.fastOpen,
    tos: 0,
    sendBuffer: settings.outgoingSendBuffer,
    receiveBuffer: settings.outgoingReceiveBuffer,
    bind4: settings.bind4 === undefined ? undefined : Endpoint.parse(settings.bind4, 0),
    bind6: settings.bind6 === undefined ? undefined : Endpoint.parse(settings.bind6, 0),
    interface: settings.interface,
  };
  return ({ methodName, credentials }) => {
    const method = findMethod(methodName)!;
    const parts = editions.get(method.edition) ?? createEditionParts(method);
    editions.set(method.edition, parts);
    return {
      reactor,
      blocks,
      rests: parts.rests,
      scatter: parts.scatter,
      backend,
      method,
      credentials,
      userCounters,
      timeouts,
      connectOptions,
      noDelay,
      limits,
      names,
      log,
    };
  };
}

function createEditionParts({ edition }: Method): Pick<RelayContext, 'rests' | 'scatter'> {
  const rests = new BufferPool(restSize[edition], 1 + startPlan.maxConnections);
  new PoolTrimmer(reactor, rests).start();
  return { rests, scatter: new Scatter(recordsPerBatch[edition]) };
}

function createOtherAccesses(): Access[] {
  const contextOf = contextMaker(plan);
  return (plan.otherKeys ?? []).map((keys) => new Access(contextOf(keys)));
}

/** One for each listener. */
function createRelays(): (Redir | Server)[] {
  const server = plan.command === 'ss-server' ? new Server(context, plan.salts!) : undefined;
  const target = plan.tproxy ? tproxyTarget : redirectTarget;
  return startPlan.listeners.map(
    ({ port: listenPort, tos }) => server ?? new Redir(context, upstreams, target, listenPort, tos),
  );
}

function startListeners(): void {
  for (const listener of listeners.splice(0)) listener.start();
  const { udp } = plan;
  if (udp === undefined || isUdpStarted) return;
  isUdpStarted = true;
  if (plan.command === 'ss-redir')
    udpRedir = startUdpRedir(udp, udpParts(), () => access, udpUpstreams, upstreams);
  else udpServer = new UdpServerSide(udp, udpParts(), names, context.userCounters);
}

function udpParts(): UdpParts {
  const { method, credentials, connectOptions } = context;
  return { reactor, log, backend, method, credentials, socketOptions: connectOptions };
}

function onMessage(message: ToWorker): void {
  if (message.type === 'resolved') return names.answer(message.id, message.resolution);
  if (message.type === 'plan') reload(message.plan);
  if (plan.command === 'ss-server') return;
  upstreams.set(endpointsOf(message.servers, 'tcp'));
  udpUpstreams.set(endpointsOf(message.servers, 'udp'));
  udpRedir?.onServers();
  startListeners(); // ss-redir accepts once it knows where to go; earlier clients wait in the kernel's queue
}

function reload(next: NewPlan): void {
  plan = next;
  log.verbose = plan.verbose;
  limits.maxConnections = plan.maxConnections;
  context = contextMaker(plan)(plan);
  access = new Access(context);
  otherAccesses = createOtherAccesses();
  relays = createRelays();
  if (plan.udp === undefined) return;
  udpRedir?.changeLimits(plan.udp);
  udpServer?.reload(plan.udp, udpParts(), context.userCounters);
}

function endpointsOf(servers: readonly ServerAddress[], protocol: 'tcp' | 'udp'): Endpoint[] {
  return servers.flatMap(({ address, port: serverPort, keys, without }) => {
    const endpoint = without === protocol ? undefined : Endpoint.parse(address, serverPort);
    if (endpoint === undefined) return [];
    return keys === undefined ? endpoint : new ServerEndpoint(endpoint, otherAccesses[keys]!);
  });
}
