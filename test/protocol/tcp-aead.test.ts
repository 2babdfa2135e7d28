import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { selectBackend, type AeadBackend, type Sealer } from '../../src/crypto/aead.js';
import { masterKeyFromPassword, sessionSubkey } from '../../src/crypto/keys.js';
import { findMethod, methods as allMethods, type Method } from '../../src/crypto/methods.js';
import { nobleBackend } from '../../src/crypto/noble.js';
import { randomBytes as saltOfOurs } from '../../src/crypto/random.js';
import { createSaltMemory, SaltFilter } from '../../src/crypto/replay.js';
import { ProtocolError, type ProtocolErrorCode } from '../../src/errors.js';
import { Block } from '../../src/linux/memory.js';
import { AeadStreamDecoder, AeadStreamEncoder } from '../../src/protocol/tcp-aead.js';
import { decodePlainly } from '../helpers/plain-decoder.js';
import { fromHex, toHex, vectors, type BigVector, type StreamVector } from '../helpers/vectors.js';

const openssl = selectBackend();
const backends = [openssl, nobleBackend];
const methods = allMethods.filter((method) => method.edition === 'aead');
const maxPayload = 0x3fff;
const nothing = new Uint8Array(0);

test('the backends that are compared are two', () => {
  assert.deepEqual(
    backends.map((backend) => backend.name),
    ['openssl', 'noble'],
  );
});

for (const backend of backends) {
  test(`${backend.name}: streams are encoded as in the vectors, with the address as header and as payload`, () => {
    for (const { id, method, key, stream } of streamVectors()) {
      const chunks = stream.plaintext_chunks_hex.map(fromHex);
      const whole = encoder(backend, method, key, fromHex(stream.salt_hex));
      assert.equal(toHex(encodeRecords(whole, chunks)), stream.stream_hex, id);
      if (stream.address_hex === undefined) continue;

      const address = fromHex(stream.address_hex);
      const client = encoder(backend, method, key, fromHex(stream.salt_hex), address);
      chunks[0] = chunks[0]!.subarray(address.length);
      assert.equal(toHex(encodeRecords(client, chunks)), stream.stream_hex, id);
    }
  });

  test(`${backend.name}: streams of the vectors are decoded, and end at a boundary`, () => {
    for (const { id, method, key, stream } of streamVectors()) {
      const decoder = new AeadStreamDecoder(backend, method, key);
      assert.equal(
        toHex(decode(decoder, [fromHex(stream.stream_hex)])),
        stream.plaintext_chunks_hex.join(''),
        id,
      );
      assert.equal(decoder.atBoundary, true, id);
    }
  });

  test(`${backend.name}: 300 records, and records of 0x3FFF bytes, are encoded and decoded as in the vectors`, () => {
    for (const vector of vectors.aead_tcp_big) {
      const method = findMethod(vector.method)!;
      const key = masterKeyFromPassword(vector.password, method.keySize);
      const records = bigRecords(vector);
      const stream = encodeRecords(encoder(backend, method, key, fromHex(vector.salt_hex)), records);
      assert.equal(stream.length, vector.stream_length, vector.id);
      assert.equal(sha256(stream), vector.stream_sha256, vector.id);
      const decoder = new AeadStreamDecoder(backend, method, key);
      assert.equal(sha256(decode(decoder, [stream])), vector.plaintext_sha256, vector.id);
    }
  });
}

test('a stream cut in two at any byte decodes to the same payload', () => {
  for (const { id, method, key, stream } of streamVectors()) {
    const bytes = fromHex(stream.stream_hex);
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      const decoder = new AeadStreamDecoder(openssl, method, key);
      const payload = decode(decoder, [bytes.subarray(0, cut), bytes.subarray(cut)]);
      assert.equal(toHex(payload), stream.plaintext_chunks_hex.join(''), `${id} cut at ${cut}`);
    }
  }
});

test('a stream that comes byte by byte decodes to the same payload', () => {
  for (const { id, method, key, stream } of streamVectors()) {
    const bytes = fromHex(stream.stream_hex);
    const decoder = new AeadStreamDecoder(openssl, method, key);
    const payload = decode(
      decoder,
      Array.from(bytes, (_, i) => bytes.subarray(i, i + 1)),
    );
    assert.equal(toHex(payload), stream.plaintext_chunks_hex.join(''), id);
  }
});

test('a stream that ends early ends at a boundary only behind a record, and gives the records before', () => {
  for (const { id, method, key, stream } of streamVectors()) {
    const bytes = fromHex(stream.stream_hex);
    const sizes = stream.plaintext_chunks_hex.map((hex) => hex.length / 2);
    let end = method.saltSize;
    const boundaries = new Set([0, ...sizes.map((size) => (end += size + 34))]);
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      const decoder = new AeadStreamDecoder(openssl, method, key);
      const payload = decode(decoder, [bytes.subarray(0, cut)]);
      assert.equal(decoder.atBoundary, boundaries.has(cut), `${id} ends at ${cut}`);
      const plain = decodePlainly(method, key, bytes.subarray(0, cut));
      assert.equal(toHex(payload), toHex(Buffer.concat(plain.payloads)), `${id} ends at ${cut}`);
      assert.equal(plain.complete, boundaries.has(cut), `the twin, ${id} ends at ${cut}`);
    }
  }
});

test('`wanted` is what is missing to salt and first length, to a length, to a payload', () => {
  const method = findMethod('aes-256-gcm')!;
  const key = randomBytes(32);
  const stream = encodeRecords(encoder(openssl, method, key), [randomBytes(100), randomBytes(5)]);
  const decoder = new AeadStreamDecoder(openssl, method, key);
  const source = blockOf(stream);
  const target = Block.allocate(stream.length);
  const steps: number[] = [];
  let from = 0;
  while (from < stream.length) {
    const { wanted } = decoder;
    steps.push(wanted);
    decoder.open(source, from, from + wanted - 1, target, 0);
    assert.equal(decoder.consumed, 0, 'one byte less is not enough');
    decoder.open(source, from, from + wanted, target, 0);
    assert.equal(decoder.consumed, wanted);
    from += wanted;
  }
  assert.deepEqual(steps, [32 + 18, 100 + 16, 18, 5 + 16]);
});

test('a flipped bit at any byte is refused as forged, and only the records before it come out', () => {
  for (const method of methods) {
    const key = randomBytes(method.keySize);
    const records = [Buffer.from('0123456'), Buffer.from('abc')];
    const stream = encodeRecords(encoder(openssl, method, key), records);
    const secondAt = method.saltSize + 7 + 34;
    for (let i = 0; i < stream.length; i += 1) {
      const changed = Uint8Array.from(stream);
      changed[i]! ^= 1 << (i % 8);
      const decoder = new AeadStreamDecoder(openssl, method, key);
      const target = Block.allocate(stream.length);
      refused('FORGED', () => decoder.open(blockOf(changed), 0, changed.length, target, 0), `byte ${i}`);
      const good = i < secondAt ? '' : '0123456';
      assert.equal(target.bytes.toString('latin1', 0, decoder.produced), good, `byte ${i}`);
    }
  }
});

test('another password, another method of the same key size, and garbage are refused as forged', () => {
  const method = findMethod('aes-256-gcm')!;
  const other = findMethod('chacha20-ietf-poly1305')!;
  const key = randomBytes(32);
  const stream = encodeRecords(encoder(openssl, method, key), [Buffer.from('text')]);
  refused('FORGED', () => decode(new AeadStreamDecoder(openssl, method, randomBytes(32)), [stream]));
  refused('FORGED', () => decode(new AeadStreamDecoder(openssl, other, key), [stream]));
  refused('FORGED', () => decode(new AeadStreamDecoder(openssl, method, key), [randomBytes(50)]));
});

test('a record length of 0x3FFF is taken; 0x4000, 0x8001 and 0xFFFF are refused, not masked', () => {
  for (const method of methods) {
    const key = randomBytes(method.keySize);
    const good = handMade(method, key, [{ length: maxPayload, payload: randomBytes(maxPayload) }]);
    assert.equal(decode(new AeadStreamDecoder(openssl, method, key), [good]).length, maxPayload);
    for (const length of [0x4000, 0x8001, 0xffff]) {
      const first = handMade(method, key, [{ length, payload: randomBytes(length & maxPayload) }]);
      const message = new RegExp(`record length ${length}, expected 1\\.\\.16383`);
      refused('BAD_LENGTH', () => decode(new AeadStreamDecoder(openssl, method, key), [first]), message);
      const second = handMade(method, key, [
        { length: 1, payload: randomBytes(1) },
        { length, payload: randomBytes(length & maxPayload) },
      ]);
      refused('BAD_LENGTH', () => decode(new AeadStreamDecoder(openssl, method, key), [second]), message);
    }
  }
});

test('records of length 0 are passed over, however many, and nothing is kept of them', () => {
  const method = findMethod('chacha20-ietf-poly1305')!;
  const key = randomBytes(32);
  const empty = { length: 0, payload: nothing };
  const records = [
    ...Array.from({ length: 500 }, () => empty),
    { length: 2, payload: Buffer.from('ok') },
    empty,
  ];
  const stream = handMade(method, key, records);
  const decoder = new AeadStreamDecoder(openssl, method, key);
  const target = Block.allocate(stream.length);
  decoder.open(blockOf(stream), 0, stream.length, target, 0);
  assert.equal(decoder.consumed, stream.length);
  assert.equal(target.bytes.toString('latin1', 0, decoder.produced), 'ok');
  assert.equal(decoder.atBoundary, true);
  const piecewise = new AeadStreamDecoder(openssl, method, key);
  assert.equal(
    toHex(
      decode(
        piecewise,
        Array.from(stream, (byte) => Uint8Array.of(byte)),
      ),
    ),
    toHex(Buffer.from('ok')),
  );
});

test('an address spread over several records comes out as one piece of payload', () => {
  const method = findMethod('aes-128-gcm')!;
  const key = randomBytes(16);
  const address = fromHex('030b6578616d706c652e636f6d01bb');
  const stream = encodeRecords(
    encoder(openssl, method, key),
    Array.from(address, (byte) => Uint8Array.of(byte)),
  );
  assert.equal(toHex(decode(new AeadStreamDecoder(openssl, method, key), [stream])), toHex(address));
});

test('a repeated salt is refused at the first length, before any payload comes out', () => {
  for (const method of methods) {
    const key = randomBytes(method.keySize);
    const filter = new SaltFilter(createSaltMemory(randomBytes(8)));
    const accept = (salt: Uint8Array): boolean => filter.accept(salt);
    const stream = encodeRecords(encoder(openssl, method, key), [Buffer.from('text')]);
    assert.equal(decode(new AeadStreamDecoder(openssl, method, key, accept), [stream]).length, 4);
    refused('REPEATED_SALT', () =>
      decode(new AeadStreamDecoder(openssl, method, key, accept), [stream.subarray(0, method.saltSize + 18)]),
    );
  }
});

test('the salt is asked about once, with its bytes, and only after the first tag was right', () => {
  const method = findMethod('aes-256-gcm')!;
  const key = randomBytes(32);
  const stream = encodeRecords(encoder(openssl, method, key), [Buffer.from('one'), Buffer.from('two')]);
  const asked: string[] = [];
  const accept = (salt: Uint8Array): boolean => asked.push(toHex(salt)) > 0;

  const forged = Uint8Array.from(stream);
  forged[32 + 17]! ^= 1;
  refused('FORGED', () => decode(new AeadStreamDecoder(openssl, method, key, accept), [forged]));
  assert.deepEqual(asked, []);

  const decoder = new AeadStreamDecoder(openssl, method, key, accept);
  decode(decoder, [stream.subarray(0, 32 + 17)]);
  assert.deepEqual(asked, []);
  decode(
    new AeadStreamDecoder(openssl, method, key, accept),
    Array.from(stream, (byte) => Uint8Array.of(byte)),
  );
  assert.deepEqual(asked, [toHex(stream.subarray(0, 32))]);

  const badLength = handMade(method, key, [{ length: 0x4000, payload: nothing }]);
  refused('BAD_LENGTH', () => decode(new AeadStreamDecoder(openssl, method, key, accept), [badLength]));
  assert.equal(asked.length, 2, 'its sender knew the key, so its salt is remembered');
});

test('a replay filter that saw a forged stream still takes the honest one with the same salt', () => {
  const method = findMethod('chacha20-ietf-poly1305')!;
  const key = randomBytes(32);
  const filter = new SaltFilter(createSaltMemory(randomBytes(8)));
  const accept = (salt: Uint8Array): boolean => filter.accept(salt);
  const stream = encodeRecords(encoder(openssl, method, key), [Buffer.from('text')]);
  const forged = Uint8Array.from(stream);
  forged.fill(0, 32);
  refused('FORGED', () => decode(new AeadStreamDecoder(openssl, method, key, accept), [forged]));
  assert.equal(decode(new AeadStreamDecoder(openssl, method, key, accept), [stream]).length, 4);
});

test('100,000 streams with salts as ss-redir draws them: none is taken for a repeat unless it comes again', () => {
  const method = findMethod('aes-128-gcm')!;
  const key = randomBytes(16);
  const filter = new SaltFilter(createSaltMemory(randomBytes(8)));
  const accept = (salt: Uint8Array): boolean => filter.accept(salt);
  const block = Block.allocate(4096);
  const target = Block.allocate(4096);
  const open = (): void =>
    new AeadStreamDecoder(openssl, method, key, accept).open(block, start, end, target, 0);
  let [start, end] = [0, 0];
  for (let connection = 0; connection < 100_000; connection += 1) {
    const sender = encoder(openssl, method, key, saltOfOurs(method.saltSize));
    sender.seal(block, 4);
    [start, end] = [sender.start, sender.end];
    open();
    // Opened into another block, so the stream is still there.
    if (connection % 100 === 0) refused('REPEATED_SALT', open, `connection ${connection}`);
  }
});

test('random records in random pieces decode as the plain twin decodes them', () => {
  for (let round = 0; round < 60; round += 1) {
    const method = methods[round % methods.length]!;
    const key = randomBytes(method.keySize);
    const records = Array.from({ length: 1 + random(6) }, () =>
      randomBytes(random(8) === 0 ? 1 + random(maxPayload) : 1 + random(90)),
    );
    const stream = encodeRecords(encoder(openssl, method, key), records);
    const plain = decodePlainly(method, key, stream);
    assert.equal(toHex(Buffer.concat(plain.payloads)), toHex(Buffer.concat(records)));
    const pieces = [];
    for (let at = 0; at < stream.length;) {
      const size = 1 + random(random(2) === 0 ? 40 : 20_000);
      pieces.push(stream.subarray(at, at + size));
      at += size;
    }
    const decoder = new AeadStreamDecoder(backends[round % 2]!, method, key);
    assert.equal(toHex(decode(decoder, pieces)), toHex(Buffer.concat(plain.payloads)), `round ${round}`);
    assert.equal(decoder.atBoundary, true);
  }
});

test('a batch over several slots is one run of bytes, of full records but the last', () => {
  const full = maxPayload;
  for (const method of methods) {
    for (const length of [1, full - 1, full, full + 1, 2 * full, 3 * full + 17, 4 * full]) {
      const key = randomBytes(method.keySize);
      const payload = randomBytes(length);
      const subject = encoder(openssl, method, key);
      const block = Block.allocate(subject.headroom + 5 * subject.stride);
      lay(subject, block, payload);
      subject.seal(block, length);
      const plain = decodePlainly(method, key, block.bytes.subarray(subject.start, subject.end));
      assert.equal(plain.complete, true);
      const sizes = plain.payloads.map((part) => part.length);
      const expected = Array.from({ length: Math.ceil(length / full) }, (_, i) =>
        Math.min(full, length - i * full),
      );
      assert.deepEqual(sizes, expected, `${method.name}, ${length} bytes`);
      assert.equal(Buffer.compare(Buffer.concat(plain.payloads), payload), 0);
    }
  }
});

test('a header goes with the first payload in one record, or alone, and has room up to 259 bytes', () => {
  const method = findMethod('aes-256-gcm')!;
  for (const headerSize of [7, 19, 259]) {
    for (const payloadSize of [0, 1, 1000, maxPayload - headerSize]) {
      const key = randomBytes(32);
      const header = randomBytes(headerSize);
      const payload = randomBytes(payloadSize);
      const subject = encoder(openssl, method, key, randomBytes(32), header);
      assert.equal(subject.room, maxPayload - headerSize);
      const block = Block.allocate(subject.headroom + subject.stride);
      lay(subject, block, payload);
      subject.seal(block, payloadSize);
      assert.ok(subject.start >= 0);
      assert.equal(subject.room, Infinity);
      const plain = decodePlainly(method, key, block.bytes.subarray(subject.start, subject.end));
      assert.equal(plain.payloads.length, 1);
      assert.equal(toHex(plain.payloads[0]!), toHex(Buffer.concat([header, payload])));
    }
  }
});

test('what would be an empty record, or more than the first one holds, is a RangeError', () => {
  const method = findMethod('aes-256-gcm')!;
  const key = randomBytes(32);
  const server = encoder(openssl, method, key);
  const block = Block.allocate(server.headroom + 3 * server.stride);
  assert.throws(() => server.seal(block, 0), RangeError);
  const client = encoder(openssl, method, key, randomBytes(32), new Uint8Array(7));
  assert.throws(() => client.seal(block, maxPayload - 6), RangeError);
  client.seal(block, 0);
  assert.throws(() => client.seal(block, 0), RangeError);
  assert.throws(() => encoder(openssl, method, key, randomBytes(31)), /salt has 32 bytes, got 31/);
  assert.throws(
    () => encoder(openssl, method, key, randomBytes(32), new Uint8Array(260)),
    /at most 259 bytes, got 260/,
  );
});

function* streamVectors(): Generator<{ id: string; method: Method; key: Uint8Array; stream: StreamVector }> {
  for (const vector of vectors.aead_tcp) {
    const method = findMethod(vector.method)!;
    const key = masterKeyFromPassword(vector.password, method.keySize);
    assert.equal(toHex(key), vector.key_hex);
    yield { id: `${vector.id}/request`, method, key, stream: vector.request };
    if (vector.response) yield { id: `${vector.id}/response`, method, key, stream: vector.response };
  }
}

/** By the construction rules in the vectors. */
function bigRecords(vector: BigVector): Uint8Array[] {
  const address = fromHex('017f00000146a0'); // 127.0.0.1:18080
  if (vector.id.endsWith('/max-chunk')) {
    const shake = createHash('shake256', { outputLength: maxPayload })
      .update('ss-vectors/1:max-chunk')
      .digest();
    return [Buffer.concat([address, Buffer.from('y')]), shake, Buffer.from('z')];
  }
  const rest = Array.from({ length: 299 }, (_, i) => new Uint8Array(1 + (i % 7)).fill(i & 255));
  return [Buffer.concat([address, Buffer.from('x')]), ...rest];
}

function encoder(
  backend: AeadBackend,
  method: Method,
  key: Uint8Array,
  salt: Uint8Array = randomBytes(method.saltSize),
  header?: Uint8Array,
): AeadStreamEncoder {
  return new AeadStreamEncoder(backend, method, key, salt, header);
}

/** One `seal` for each record, in a block with rubbish in it. */
function encodeRecords(subject: AeadStreamEncoder, records: Uint8Array[]): Uint8Array {
  const block = Block.allocate(subject.headroom + subject.stride);
  const parts = records.map((record) => {
    block.bytes.fill(0xee);
    block.bytes.set(record, subject.headroom);
    subject.seal(block, record.length);
    return Uint8Array.from(block.bytes.subarray(subject.start, subject.end));
  });
  return Buffer.concat(parts);
}

function lay(subject: AeadStreamEncoder, block: Block, payload: Uint8Array): void {
  for (let at = 0, slot = 0; at < payload.length; at += subject.maxPayload, slot += 1) {
    block.bytes.set(payload.subarray(at, at + subject.maxPayload), subject.headroom + slot * subject.stride);
  }
}

/** A stream as no honest sender makes it: each record with the length it claims and the payload it has. */
function handMade(
  method: Method,
  key: Uint8Array,
  records: { length: number; payload: Uint8Array }[],
): Uint8Array {
  const salt = randomBytes(method.saltSize);
  const sealer = nobleBackend.sealer(method, sessionSubkey(key, salt));
  const parts: Uint8Array[] = [salt];
  for (const { length, payload } of records) {
    parts.push(sealed(sealer, Uint8Array.of(length >> 8, length & 255)), sealed(sealer, payload));
  }
  return Buffer.concat(parts);
}

function sealed(sealer: Sealer, plaintext: Uint8Array): Uint8Array {
  const block = Block.allocate(plaintext.length + 16);
  block.bytes.set(plaintext);
  sealer.seal(block, 0, plaintext.length);
  return block.bytes;
}

/** Feeds the pieces as the relay does: what was not consumed stands in front of what comes next. */
function decode(decoder: AeadStreamDecoder, pieces: Uint8Array[]): Uint8Array {
  const size = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const source = Block.allocate(size);
  const target = Block.allocate(size);
  let from = 0;
  let to = 0;
  let at = 0;
  for (const piece of pieces) {
    source.bytes.set(piece, to);
    to += piece.length;
    if (to - from < decoder.wanted && piece.length === 1) continue; // what `wanted` is for
    decoder.open(source, from, to, target, at);
    from += decoder.consumed;
    at += decoder.produced;
  }
  decoder.open(source, from, to, target, at);
  assert.equal(decoder.consumed, 0, 'a second call has nothing left to do');
  return Uint8Array.from(target.bytes.subarray(0, at));
}

function blockOf(bytes: Uint8Array): Block {
  const block = Block.allocate(bytes.length);
  block.bytes.set(bytes);
  return block;
}

function refused(code: ProtocolErrorCode, action: () => void, message?: string | RegExp): void {
  assert.throws(
    action,
    (error: unknown) =>
      error instanceof ProtocolError &&
      error.code === code &&
      (message instanceof RegExp ? message.test(error.message) : true),
    typeof message === 'string' ? message : undefined,
  );
}

function random(below: number): number {
  return Math.floor(Math.random() * below);
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
