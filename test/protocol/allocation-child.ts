/** What allocation.test.ts measures: seals records and opens them again; prints the bytes of heap that one record takes. */
import { selectBackend } from '../../src/crypto/aead.js';
import { findMethod } from '../../src/crypto/methods.js';
import { Block } from '../../src/linux/memory.js';
import type { StreamDecoder, StreamEncoder } from '../../src/protocol/stream.js';
import { StreamDecoder2022 } from '../../src/protocol/tcp-2022.js';
import { ResponseEncoder2022, ResponseHeader } from '../../src/protocol/tcp-2022-response.js';
import { AeadStreamDecoder, AeadStreamEncoder } from '../../src/protocol/tcp-aead.js';
import { HeapMeter } from '../helpers/heap-meter.js';

const rounds = 10;
const recordsPerRound = 20_000;
const payloadSize = 100;

const method = findMethod(process.argv[2]!)!;
const key = new Uint8Array(method.keySize);
const salt = new Uint8Array(method.saltSize).fill(1);
const backend = selectBackend();
const { encoder, decoder } = method.edition === 'aead' ? aeadStreams() : streams2022();
// Large enough for an address beyond 2^31, as a buffer pool's always is: V8 boxes such a number on its way into a call.
const source = Block.allocate(1 << 20);
const target = Block.allocate(1 << 20);

let records = 0;
const meter = new HeapMeter(recordsPerRound);
meter.begin(records);
while (meter.count < rounds) {
  encoder.seal(source, payloadSize);
  decoder.open(source, encoder.start, encoder.end, target, 0);
  if (decoder.produced !== payloadSize) throw new Error(`${decoder.produced} bytes came out`);
  records += 1;
  meter.look(records);
}
process.stdout.write(JSON.stringify(meter.bytesPerOperation));

function aeadStreams(): { encoder: StreamEncoder; decoder: StreamDecoder } {
  return {
    encoder: new AeadStreamEncoder(backend, method, key, salt),
    decoder: new AeadStreamDecoder(backend, method, key),
  };
}

function streams2022(): { encoder: StreamEncoder; decoder: StreamDecoder } {
  const requestSalt = new Uint8Array(method.saltSize);
  const parts = { backend, method, key, requestSalt, now: () => 0 };
  return {
    encoder: new ResponseEncoder2022({ ...parts, salt }),
    decoder: new StreamDecoder2022(new ResponseHeader(parts)),
  };
}
