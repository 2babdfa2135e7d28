/**
 * What allocation.test.ts measures: source → pair of ss-redir → pair of ss-server → sink, both pairs in this thread's reactor,
 * source and sink in threads of their own. Prints the bytes of heap that one batch takes in one pair.
 */
import { Worker } from 'node:worker_threads';
import { AeadStreamDecoder, AeadStreamEncoder } from '../../src/protocol/tcp-aead.js';
import type { Block } from '../../src/linux/memory.js';
import { Pair } from '../../src/relay/pair.js';
import { HeapMeter } from '../helpers/heap-meter.js';
import { Rig, socketPair } from '../helpers/relay-rig.js';
import type { PeerTask } from './allocation-peer.js';

const rounds = 20;
const batchesPerRound = 2_000;

class CountingEncoder extends AeadStreamEncoder {
  batches = 0;
  bytes = 0;

  override seal(block: Block, length: number): void {
    this.batches += 1;
    this.bytes += length;
    super.seal(block, length);
  }
}

class CountingDecoder extends AeadStreamDecoder {
  batches = 0;

  override open(source: Block, from: number, to: number, target: Block, at: number): void {
    this.batches += 1;
    super.open(source, from, to, target, at);
  }
}

const rig = new Rig();
const { context, reactor } = rig;
const { backend, method, credentials } = context;
const masterKey = credentials.key;
const [left, middle, right] = [socketPair(), socketPair(), socketPair()];
const salt = (fill: number): Uint8Array => new Uint8Array(method.saltSize).fill(fill);
const encoder = new CountingEncoder(backend, method, masterKey, salt(1));
const decoder = new CountingDecoder(backend, method, masterKey);
startPair(left.accepted, middle.connected, encoder, new AeadStreamDecoder(backend, method, masterKey));
startPair(
  right.connected,
  middle.accepted,
  new AeadStreamEncoder(backend, method, masterKey, salt(2)),
  decoder,
);

const stop = new SharedArrayBuffer(4);
const ends = [
  startPeer({ fd: left.connected, sends: true, stop }),
  startPeer({ fd: right.accepted, sends: false, stop }),
];

const meter = new HeapMeter(batchesPerRound);
meter.begin(0);
reactor.run(() => {
  meter.look(encoder.batches + decoder.batches);
  return meter.count === rounds;
});
for (const end of ends) end.unref();
Atomics.store(new Int32Array(stop), 0, 1);
const result = {
  bytesPerBatch: meter.bytesPerOperation,
  batches: encoder.batches + decoder.batches,
  moved: encoder.bytes,
};
process.stdout.write(JSON.stringify(result));

function startPair(
  plainFd: number,
  cipherFd: number,
  own: AeadStreamEncoder,
  peers: AeadStreamDecoder,
): void {
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
