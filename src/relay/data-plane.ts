/** The program of a worker thread: builds what its connections share from the plan, then sits in the reactor. */
import { parentPort, workerData } from 'node:worker_threads';
import { selectBackend } from '../crypto/aead.js';
import { findMethod } from '../crypto/methods.js';
import { BufferPool } from '../engine/pool.js';
import { Reactor } from '../engine/reactor.js';
import { runReactor } from '../engine/worker.js';
import { Scatter } from '../linux/scatter.js';
import { Endpoint } from '../linux/sockaddr.js';
import type { RelayContext } from './context.js';
import { blockSize, recordsPerBatch, restSize } from './geometry.js';
import { Limits } from './limits.js';
import { Listener } from './listener.js';
import { Names } from './names.js';
import type { FromWorker, Plan, ToWorker } from './plan.js';
import { PoolTrimmer } from './pool-trimmer.js';
import { Redir, redirectTarget, tproxyTarget } from './redir.js';
import { Server } from './server.js';
import { startUdpRedir, startUdpServer } from './udp-plane.js';
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
const context = buildContext();
const upstreams = new Upstreams();
/** A server may carry TCP and no UDP, or the other way round. */
const udpUpstreams = new Upstreams();
let udpStarted = false;
const listeners = createListeners();
if (plan.command === 'ss-server') startListeners();
post({ type: 'ready' });
runReactor(context.reactor, plan.control, port, (message) => onMessage(message as ToWorker), context.limits);

function buildContext(): RelayContext {
  const reactor = new Reactor();
  const method = findMethod(plan.methodName)!;
  const blocks = new BufferPool(
    blockSize,
    Math.min(maxBlocks, 16 + blocksPerConnection * plan.maxConnections),
  );
  const rests = new BufferPool(restSize[method.edition], 1 + plan.maxConnections);
  for (const pool of [blocks, rests]) new PoolTrimmer(reactor, pool).start();
  return {
    reactor,
    blocks,
    rests,
    scatter: new Scatter(recordsPerBatch[method.edition]),
    backend: selectBackend((warning) => log.error(warning)),
    method,
    credentials: plan.credentials,
    userCounters: plan.userMemory && new UserCounters(plan.userMemory),
    timeouts: plan.timeouts,
    connectOptions: {
      mark: plan.mark,
      mptcp: plan.mptcp,
      fastOpen: plan.fastOpen,
      tos: 0,
      sendBuffer: plan.outgoingSendBuffer,
      receiveBuffer: plan.outgoingReceiveBuffer,
      bind4: plan.bind4 === undefined ? undefined : Endpoint.parse(plan.bind4, 0),
      bind6: plan.bind6 === undefined ? undefined : Endpoint.parse(plan.bind6, 0),
      interface: plan.interface,
    },
    noDelay: plan.noDelay,
    limits: new Limits(plan.maxConnections),
    names: new Names((id, host) => post({ type: 'resolve', id, host })),
    log,
  };
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
  if (plan.command === 'ss-redir') startUdpRedir(udp, parts, udpUpstreams, upstreams);
  else startUdpServer(udp, parts, names, userCounters);
}

function onMessage(message: ToWorker): void {
  if (message.type === 'resolved') return context.names.answer(message.id, message.resolution);
  const endpoints = message.servers.map((server) => Endpoint.parse(server.address, server.port));
  for (const each of [upstreams, udpUpstreams])
    each.set(endpoints.filter((endpoint) => endpoint !== undefined));
  startListeners(); // ss-redir accepts once it knows where to go; earlier clients wait in the kernel's queue
}
