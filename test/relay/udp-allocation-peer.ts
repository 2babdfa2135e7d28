/** A thread of udp-allocation-child.ts, so that what it allocates is not counted: the clients, or the server that answers them. */
import { parentPort, workerData } from 'node:worker_threads';
import { Endpoint } from '../../src/linux/sockaddr.js';
import type { Scenario } from '../helpers/relay-rig.js';
import { UdpRig } from '../helpers/udp-rig.js';

export interface PeerTask {
  role: 'server' | 'clients';
  method: string;
  /** Server: where its answers come from. */
  remotePort: number;
  /** Clients: where the redir listens. */
  port: number;
  flows: number;
  stop: SharedArrayBuffer;
}

const { role, method, remotePort, port, flows, stop } = workerData as PeerTask;
const rig = new UdpRig({ method });
const stopped = (): boolean => Atomics.load(new Int32Array(stop), 0) !== 0;

if (role === 'server') {
  const server = rig.packetServer();
  server.answersAs = [Endpoint.parse('198.18.0.1', remotePort)!];
  parentPort!.postMessage(server.endpoint.port);
} else {
  const redir = Endpoint.parse('127.0.0.1', port)!;
  const text = 'x'.repeat(512);
  for (const client of Array.from({ length: flows }, () => rig.peer())) {
    client.onGot = () => client.say(redir, text);
    for (let i = 0; i < 4; i++) client.say(redir, text);
  }
}

rig.run(
  (function* (): Scenario {
    yield stopped;
  })(),
  120_000,
);
process.exit(0);
