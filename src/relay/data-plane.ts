/** The program of a worker thread: builds what its connections share from the plan, then sits in the reactor. */
import { parentPort, workerData } from 'node:worker_threads';
import { selectBackend } from '../crypto/aead.js';
import { findMethod } from '../crypto/methods.js';
import { SaltFilter } from '../crypto/replay.js';
import { BufferPool } from '../engine/pool.js';
import { Reactor } from '../engine/reactor.js';
import { runReactor } from '../engine/worker.js';
import { Scatter } from '../linux/scatter.js';
import { Endpoint } from '../linux/sockaddr.js';
import type { RelayContext } from './context.js';
import { Limits } from './limits.js';
import { Listener } from './listener.js';
import { Names } from './names.js';
import type { FromWorker, Plan, ToWorker } from './plan.js';
import { PoolTrimmer } from './pool-trimmer.js';
import { Redir, redirectTarget, tproxyTarget } from './redir.js';
import { Server } from './server.js';
import { startUdpRedir, startUdpServer } from './udp-plane.js';
import { Upstreams } from './upstream.js';
import { WorkerLog } from './worker-log.js';

/** Records read and sealed in one go. */
const recordsPerBatch = 4;
/** Room for a batch: 4 × (2 + 16 + 16383 + 16) bytes behind the headroom of 320, in whole pages. */
const blockSize = 17 * 4096;
/** A connection holds a block for each direction, and only while its bytes cannot go on. */
const blocksPerConnection = 2;
const maxBlocks = 8192;
/** Room for any record but its last byte: 32 + 2 + 16 + 16383 + 16, in whole pages. */
const restSize = 5 * 4096;

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
runReactor(context.reactor, plan.control, port, (message) => onMessage(message as ToWorker));

function buildContext(): RelayContext {
  const reactor = new Reactor();
  const blocks = new BufferPool(
    blockSize,
    Math.min(maxBlocks, 16 + blocksPerConnection * plan.maxConnections),
  );
  const rests = new BufferPool(restSize, 1 + plan.maxConnections);
  for (const pool of [blocks, rests]) new PoolTrimmer(reactor, pool).start();
  return {
    reactor,
    blocks,
    rests,
    scatter: new Scatter(recordsPerBatch),
    backend: selectBackend((warning) => log.error(warning)),
    method: findMethod(plan.methodName)!,
    masterKey: plan.masterKey,
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
  const server = plan.command === 'ss-server' ? new Server(context, new SaltFilter(plan.salts!)) : undefined;
  const target = plan.tproxy ? tproxyTarget : redirectTarget;
  return plan.listeners.map(({ fd, port: listenPort, tos }) => {
    const relay = server ?? new Redir(context, upstreams, target, listenPort, tos);
    return new Listener(context, fd, (client, address) => relay.onConnection(client, address));
  });
}

function startListeners(): void {
  for (const listener of listeners.splice(0)) listener.start();
  const { udp } = plan;
  if (udp === undefined || udpStarted) return;
  udpStarted = true;
  const { reactor, backend, method, masterKey, names, connectOptions } = context;
  const credentials = { key: masterKey, identityKeys: [], users: [] };
  const parts = { reactor, log, backend, method, credentials, socketOptions: connectOptions };
  if (plan.command === 'ss-redir') startUdpRedir(udp, parts, udpUpstreams);
  else startUdpServer(udp, parts, names, () => {});
}

function onMessage(message: ToWorker): void {
  if (message.type === 'resolved') return context.names.answer(message.id, message.resolution);
  const endpoints = message.servers.map((server) => Endpoint.parse(server.address, server.port));
  for (const each of [upstreams, udpUpstreams])
    each.set(endpoints.filter((endpoint) => endpoint !== undefined));
  startListeners(); // ss-redir accepts once it knows where to go; earlier clients wait in the kernel's queue
}
