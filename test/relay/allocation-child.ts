/**
 * What allocation.test.ts measures: source → pair of ss-redir → pair of ss-server → sink, both pairs in this thread's reactor,
 * source and sink in threads of their own. Prints the bytes of heap that one batch takes in one pair.
 */
import { Worker } from 'node:worker_threads';
import type { StreamDecoder, StreamEncoder } from '../../src/protocol/stream.js';
import { StreamDecoder2022 } from '../../src/protocol/tcp-2022.js';
import { ResponseEncoder2022, ResponseHeader } from '../../src/protocol/tcp-2022-response.js';
import { AeadStreamDecoder, AeadStreamEncoder } from '../../src/protocol/tcp-aead.js';
import { Pair } from '../../src/relay/pair.js';
import { HeapMeter } from '../helpers/heap-meter.js';
import { Rig, socketPair } from '../helpers/relay-rig.js';
import type { PeerTask } from './allocation-peer.js';

const rounds = 20;
const batchesPerRound = 2_000;

const rig = new Rig({ method: process.argv[2]! });
const { context, reactor } = rig;
const { backend, method, credentials } = context;
const { key } = credentials;
const [left, middle, right] = [socketPair(), socketPair(), socketPair()];
const salt = (fill: number): Uint8Array => new Uint8Array(method.saltSize).fill(fill);
const encoder = createEncoder(salt(1));
const decoder = createDecoder();
const counts = { batches: 0, bytes: 0 };
count();
startPair(left.accepted, middle.connected, encoder, createDecoder());
startPair(right.connected, middle.accepted, createEncoder(salt(2)), decoder);

const stop = new SharedArrayBuffer(4);
const ends = [
  startPeer({ fd: left.connected, sends: true, stop }),
  startPeer({ fd: right.accepted, sends: false, stop }),
];

const meter = new HeapMeter(batchesPerRound);
meter.begin(0);
reactor.run(() => {
  meter.look(counts.batches);
  return meter.count === rounds;
});
for (const end of ends) end.unref();
Atomics.store(new Int32Array(stop), 0, 1);
const result = {
  bytesPerBatch: meter.bytesPerOperation,
  batches: counts.batches,
  moved: counts.bytes,
};
process.stdout.write(JSON.stringify(result));

function createEncoder(own: Uint8Array): StreamEncoder {
  if (method.edition === 'aead') return new AeadStreamEncoder(backend, method, key, own);
  return new ResponseEncoder2022({ backend, method, key, salt: own, requestSalt: salt(3), now: () => 0 });
}

/** Of a stream of the same kind: neither pair here is what begins a connection. */
function createDecoder(): StreamDecoder {
  if (method.edition === 'aead') return new AeadStreamDecoder(backend, method, key);
  const header = new ResponseHeader({ backend, method, key, requestSalt: salt(3), now: () => 0 });
  return new StreamDecoder2022(header);
}

function count(): void {
  const { seal } = encoder;
  const { open } = decoder;
  encoder.seal = (block, length) => {
    counts.batches += 1;
    counts.bytes += length;
    seal.call(encoder, block, length);
  };
  decoder.open = (source, from, to, target, at) => {
    counts.batches += 1;
    open.call(decoder, source, from, to, target, at);
  };
}

function startPair(plainFd: number, cipherFd: number, own: StreamEncoder, peers: StreamDecoder): void {
  const parts = { plainFd, cipherFd, encoder: own, decoder: peers, plainName: 'plain', cipherName: 'cipher' };
  new Pair(context, parts, { onClosed: pairOnEnd, onForged: pairOnEnd }).start({
    plain: false,
    cipher: false,
  });
}

function startPeer(workerData: PeerTask): Worker {
  return new Worker(new URL('./allocation-peer.js', import.meta.url), { workerData });
}

function pairOnEnd(reason: unknown): never {
  throw new Error(`the pair ended: ${reason}`);
}
