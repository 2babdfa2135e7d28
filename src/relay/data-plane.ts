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
import type { FromWorker, Plan, ServerAddress, ServerKeys, ToWorker } from './plan.js';
import { PoolTrimmer } from './pool-trimmer.js';
import { Redir, redirectTarget, tproxyTarget } from './redir.js';
import { Server } from './server.js';
import { startUdpRedir, startUdpServer } from './udp-plane.js';
import type { UdpRedir } from './udp-redir.js';
import { Upstreams } from './upstream.js';
import { UserCounters } from './user-counters.js';
import { WorkerLog } from './worker-log.js';

/** A connection holds a block for each direction, and only while its bytes cannot go on. */
const blocksPerConnection = 2;
const maxBlocks = 8192;

const port = parentPort!;
const plan = workerData as Plan;
const post = (message: FromWorker): void => port.postMessage(message);

const log = new WorkerLog(plan.verbose, (level, text) => post({ type: 'log', level, text }));
const contextOf = contextMaker();
const context = contextOf(plan);
/** ss-redir: of the servers that have a method or keys of their own. */
const otherAccesses = (plan.otherKeys ?? []).map((keys) => new Access(contextOf(keys)));
const upstreams = new Upstreams();
/** A server may carry TCP and no UDP, or the other way round. */
const udpUpstreams = new Upstreams();
let udpStarted = false;
let udpRedir: UdpRedir | undefined;
const listeners = createListeners();
if (plan.command === 'ss-server') startListeners();
post({ type: 'ready' });
runReactor(context.reactor, plan.control, port, (message) => onMessage(message as ToWorker), context.limits);

/** All contexts of a worker are one, but for method and keys, and what an edition wants of its own. */
function contextMaker(): (keys: ServerKeys) => RelayContext {
  const reactor = new Reactor();
  const blocks = new BufferPool(
    blockSize,
    Math.min(maxBlocks, 16 + blocksPerConnection * plan.maxConnections),
  );
  new PoolTrimmer(reactor, blocks).start();
  new LogSummary(reactor, log).start();
  const editions = new Map<Edition, Pick<RelayContext, 'rests' | 'scatter'>>();
  const backend = selectBackend((warning) => log.error(warning));
  const userCounters = plan.userMemory && new UserCounters(plan.userMemory);
  const connectOptions = {
    mark: plan.mark,
    mptcp: plan.mptcp,
    fastOpen: plan.fastOpen,
    tos: 0,
    sendBuffer: plan.outgoingSendBuffer,
    receiveBuffer: plan.outgoingReceiveBuffer,
    bind4: plan.bind4 === undefined ? undefined : Endpoint.parse(plan.bind4, 0),
    bind6: plan.bind6 === undefined ? undefined : Endpoint.parse(plan.bind6, 0),
    interface: plan.interface,
  };
  const limits = new Limits(plan.maxConnections);
  const names = new Names((id, host) => post({ type: 'resolve', id, host }));

  return ({ methodName, credentials }) => {
    const method = findMethod(methodName)!;
    const parts = editions.get(method.edition) ?? createEditionParts(reactor, method);
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
      timeouts: plan.timeouts,
      connectOptions,
      noDelay: plan.noDelay,
      limits,
      names,
      log,
    };
  };
}

function createEditionParts(reactor: Reactor, { edition }: Method): Pick<RelayContext, 'rests' | 'scatter'> {
  const rests = new BufferPool(restSize[edition], 1 + plan.maxConnections);
  new PoolTrimmer(reactor, rests).start();
  return { rests, scatter: new Scatter(recordsPerBatch[edition]) };
}

function createListeners(): Listener[] {
  const server = plan.command === 'ss-server' ? new Server(context, plan.salts!) : undefined;
  const target = plan.tproxy ? tproxyTarget : redirectTarget;
  return plan.listeners.map(({ fd, port: listenPort, tos, shared }) => {
    const relay = server ?? new Redir(context, upstreams, target, listenPort, tos);
    return new Listener(context, fd, (client, address) => relay.onConnection(client, address), shared);
  });
}

function startListeners(): void {
  for (const listener of listeners.splice(0)) listener.start();
  const { udp } = plan;
  if (udp === undefined || udpStarted) return;
  udpStarted = true;
  const { reactor, backend, method, credentials, names, connectOptions, userCounters } = context;
  const parts = { reactor, log, backend, method, credentials, socketOptions: connectOptions };
  if (plan.command === 'ss-redir')
    udpRedir = startUdpRedir(udp, parts, new Access(context), udpUpstreams, upstreams);
  else startUdpServer(udp, parts, names, userCounters);
}

function onMessage(message: ToWorker): void {
  if (message.type === 'resolved') return context.names.answer(message.id, message.resolution);
  upstreams.set(endpointsOf(message.servers, 'tcp'));
  udpUpstreams.set(endpointsOf(message.servers, 'udp'));
  udpRedir?.onServers();
  startListeners(); // ss-redir accepts once it knows where to go; earlier clients wait in the kernel's queue
}

function endpointsOf(servers: readonly ServerAddress[], protocol: 'tcp' | 'udp'): Endpoint[] {
  return servers.flatMap(({ address, port: serverPort, keys, without }) => {
    const endpoint = without === protocol ? undefined : Endpoint.parse(address, serverPort);
    if (endpoint === undefined) return [];
    return keys === undefined ? endpoint : new ServerEndpoint(endpoint, otherAccesses[keys]!);
  });
}
