/**
 * What udp-allocation.test.ts measures: clients → ss-redir's UDP relay → server and back, the relay alone in this thread.
 * Prints the bytes of heap that a datagram takes, in either direction.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { HeapMeter } from '../helpers/heap-meter.js';
import type { Scenario } from '../helpers/relay-rig.js';
import { UdpRig } from '../helpers/udp-rig.js';
import type { PeerTask } from './udp-allocation-peer.js';

const rounds = 6;
const datagramsPerRound = 20_000;

const method = process.argv[2]!;
const [flows, remotePort] = process.argv.slice(3).map(Number) as [number, number];
const stop = new SharedArrayBuffer(4);
const server = startPeer({ role: 'server', method, remotePort, port: 0, flows, stop });
const [serverPort] = (await once(server, 'message')) as [number];

const rig = new UdpRig({ method });
const redir = rig.startRedir([Endpoint.parse('127.0.0.1', serverPort)!]);
let datagrams = 0;
const { datagrams: memory } = rig.udp;
const used = memory.used.bind(memory);
memory.used = (count) => {
  datagrams += count;
  used(count);
};
const clients = startPeer({ role: 'clients', method, remotePort, port: redir.port, flows, stop });

const meter = new HeapMeter(datagramsPerRound);
meter.begin(datagrams);
rig.run(
  (function* (): Scenario {
    yield () => {
      meter.look(datagrams);
      return meter.count >= rounds;
    };
  })(),
  100_000,
);
Atomics.store(new Int32Array(stop), 0, 1);
await Promise.all([once(server, 'exit'), once(clients, 'exit')]);
process.stdout.write(JSON.stringify({ bytes: meter.bytesPerOperation, datagrams }));

function startPeer(workerData: PeerTask): Worker {
  return new Worker(new URL('./udp-allocation-peer.js', import.meta.url), { workerData });
}
