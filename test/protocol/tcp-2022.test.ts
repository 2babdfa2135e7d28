import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { selectBackend, type AeadBackend } from '../../src/crypto/aead.js';
import type { User } from '../../src/crypto/credentials.js';
import { findMethod, methods, type Method } from '../../src/crypto/methods.js';
import { nobleBackend } from '../../src/crypto/noble.js';
import type { SaltVerdict } from '../../src/crypto/salt-pool.js';
import { UserTable } from '../../src/protocol/user-table.js';
import { ProtocolError, type ProtocolErrorCode } from '../../src/errors.js';
import { Block } from '../../src/linux/memory.js';
import type { StreamEncoder } from '../../src/protocol/stream.js';
import { StreamDecoder2022 } from '../../src/protocol/tcp-2022.js';
import { RequestEncoder2022, RequestHeader } from '../../src/protocol/tcp-2022-request.js';
import { ResponseEncoder2022, ResponseHeader } from '../../src/protocol/tcp-2022-response.js';
import { openPlainly, plainRequest, plainResponse, u16 } from '../helpers/plain-2022.js';
import { fromHex, toHex, vectors } from '../helpers/vectors.js';

const openssl = selectBackend();
const backends = [openssl, nobleBackend];
const methods2022 = methods.filter((method) => method.edition === '2022');
const maxPayload = 0xffff;
const seconds = 1_700_000_000;
const address = fromHex('017f00000146a0'); // 127.0.0.1:18080

test('the backends that are compared are two, the methods three', () => {
  assert.deepEqual(
    backends.map((backend) => backend.name),
    ['openssl', 'noble'],
  );
  assert.equal(methods2022.length, 3);
});

// ---- the vectors

for (const backend of backends) {
  test(`${backend.name}: requests are encoded as in the vectors, with 0, 1 and 2 identity headers`, () => {
    const chains = new Set<number>();
    for (const { id, method: name, psk_b64, ipsks_b64, request } of vectors.ss2022_tcp) {
      const method = findMethod(name)!;
      chains.add(ipsks_b64.length);
      const encoder = requestEncoder(backend, method, [...ipsks_b64, psk_b64].map(fromBase64), {
        salt: fromHex(request.salt_hex),
        address: fromHex(request.address_hex),
        now: request.timestamp,
        padding: fromHex(request.padding_hex),
      });
      const chunks = request.plaintext_chunks_hex.map(fromHex);
      const payloads = [fromHex(request.initial_payload_hex), ...chunks];
      assert.equal(toHex(encodeEach(encoder, payloads)), request.stream_hex, id);
    }
    assert.deepEqual([...chains].toSorted(), [0, 1, 2]);
  });

  test(`${backend.name}: responses are encoded as in the vectors`, () => {
    for (const { id, method, psk_b64, response } of vectors.ss2022_tcp) {
      const encoder = new ResponseEncoder2022({
        backend,
        method: findMethod(method)!,
        key: fromBase64(psk_b64),
        salt: fromHex(response.salt_hex),
        requestSalt: fromHex(response.request_salt_hex),
        now: () => response.timestamp,
      });
      assert.equal(
        toHex(encodeEach(encoder, response.plaintext_chunks_hex.map(fromHex))),
        response.stream_hex,
        id,
      );
    }
  });

  test(`${backend.name}: requests of the vectors are decoded, and end at a boundary`, () => {
    for (const { id, subject, stream, plaintext } of requestVectors(backend)) {
      assert.equal(toHex(decode(subject(), [stream])), plaintext, id);
    }
  });

  test(`${backend.name}: responses of the vectors are decoded, and end at a boundary`, () => {
    for (const { id, subject, stream, plaintext } of responseVectors(backend)) {
      const decoder = subject();
      assert.equal(toHex(decode(decoder, [stream])), plaintext, id);
      assert.equal(decoder.atBoundary, true, id);
    }
  });

  test(`${backend.name}: 300 records, and records of 0xFFFF bytes, are encoded and decoded as in the vectors`, () => {
    for (const vector of vectors.ss2022_tcp_big) {
      const method = findMethod(vector.method)!;
      const keys = [fromBase64(vector.psk_b64)];
      const encoder = requestEncoder(backend, method, keys, {
        salt: fromHex(vector.salt_hex),
        now: vector.timestamp,
        padding: fromHex(vector.padding_hex),
      });
      const records = bigRecords(vector.id);
      const stream = encodeEach(encoder, [new Uint8Array(0), ...records]);
      assert.equal(stream.length, vector.stream_length, vector.id);
      assert.equal(sha256(stream), vector.stream_sha256, vector.id);
      const decoder = requestDecoder(backend, method, keys, { now: vector.now });
      assert.equal(
        sha256(decode(decoder, [stream])),
        sha256(Buffer.concat([address, ...records])),
        vector.id,
      );
    }
  });

  test(`${backend.name}: the ${vectors.ss2022_tcp_checks.length} checks of the vectors end as expected`, () => {
    assert.equal(vectors.ss2022_tcp_checks.length, 74);
    for (const check of vectors.ss2022_tcp_checks) {
      const method = findMethod(check.method)!;
      const key = fromBase64(check.psk_b64);
      const users = (check.users_b64 ?? []).map((psk, i) => ({ name: `user ${i}`, key: fromBase64(psk) }));
      const salts: string[] = [];
      const decoder =
        check.role === 'server'
          ? requestDecoder(backend, method, [key], { now: check.now, users, salts })
          : responseDecoder(backend, method, key, fromHex(check.request_salt_hex!), check.now);
      const act = (): unknown => decode(decoder, [fromHex(check.stream_hex)]);
      if (check.expect === 'accept') {
        act();
        continue;
      }
      const code = expectedCode(check.reason);
      refused(code, act, check.id);
      // Where the fixed header passed, the salt is spent; where it did not, nobody may make us remember it.
      const passed = ['BAD_ADDRESS', 'BAD_HEADER'].includes(code) && !check.reason.includes('header type');
      if (check.role === 'server') assert.equal(salts.length, passed ? 1 : 0, check.id);
    }
  });
}

/** The vectors are validly encrypted: a decoder has to fail for the reason itself. */
function expectedCode(reason: string): ProtocolErrorCode {
  if (reason.includes('timestamp')) return 'BAD_CLOCK';
  if (/address|ATYP|domain|only a tag/.test(reason) && !reason.includes('after the address'))
    return 'BAD_ADDRESS';
  if (reason.includes('first payload length')) return 'BAD_LENGTH';
  if (reason.includes('uPSK')) return 'UNKNOWN_USER';
  return 'BAD_HEADER';
}

// ---- cuts

test('a stream cut in two at any byte behind the shortest first read decodes to the same payload', () => {
  for (const { id, subject, stream, plaintext, first } of streamVectors(openssl)) {
    for (let cut = first; cut <= stream.length; cut += 1) {
      const payload = decode(subject(), [stream.subarray(0, cut), stream.subarray(cut)]);
      assert.equal(toHex(payload), plaintext, `${id} cut at ${cut}`);
    }
  }
});

test('a stream whose first read is the shortest one and that goes on byte by byte decodes to the same payload', () => {
  for (const { id, subject, stream, plaintext, first } of streamVectors(openssl)) {
    const bytes = Array.from(stream.subarray(first), (_, i) => stream.subarray(first + i, first + i + 1));
    assert.equal(toHex(decode(subject(), [stream.subarray(0, first), ...bytes])), plaintext, id);
  }
});

test('the shortest first read has 43 or 59 bytes, 59 or 75 with users, 59 or 91 of a response', () => {
  const request = methods2022.map(
    (method) => requestDecoder(openssl, method, [randomBytes(method.keySize)]).wanted,
  );
  assert.deepEqual(request, [43, 59, 59]);
  const withUsers = methods2022.slice(0, 2).map((method) => {
    const users = [{ name: 'one', key: randomBytes(method.keySize) }];
    return requestDecoder(openssl, method, [randomBytes(method.keySize)], { users }).wanted;
  });
  assert.deepEqual(withUsers, [59, 75]);
  const response = methods2022.map(
    (method) =>
      responseDecoder(openssl, method, randomBytes(method.keySize), randomBytes(method.saltSize)).wanted,
  );
  assert.deepEqual(response, [59, 91, 91]);
});

test('a first read that is one byte or more too short is refused, whatever it brings', () => {
  for (const { id, subject, stream, first } of streamVectors(openssl)) {
    for (let size = 1; size < first; size += 1) {
      const decoder = subject();
      refused('SHORT_READ', () => decode(decoder, [stream.subarray(0, size)]), `${id}, ${size} bytes`);
    }
  }
});

test('a stream may end before its first byte and behind a record, and nowhere else', () => {
  for (const { id, subject, stream, first } of streamVectors(openssl)) {
    assert.equal(subject().atBoundary, true, `${id}: nothing came`);
    const ends: number[] = [];
    for (let size = first; size <= stream.length; size += 1) {
      const decoder = subject();
      decode(decoder, [stream.subarray(0, size)]);
      if (decoder.atBoundary) ends.push(size);
    }
    assert.equal(ends.at(-1), stream.length, id);
    // Of every stream of the vectors: the first chunk, then two records (requests), or one (responses).
    assert.equal(ends.length, id.endsWith('/request') ? 3 : 2, id);
  }
});

// ---- what no honest peer sends

for (const method of methods2022) {
  const keys = [randomBytes(method.keySize)];
  const key = keys[0]!;

  test(`${method.name}: every flipped bit of a first flight is refused, and gives nothing away`, () => {
    const { flight, salt } = plainRequest({ method, keys, seconds, address, payload: Buffer.from('first') });
    const answer = plainResponse({ method, key, seconds, requestSalt: salt, payload: Buffer.from('first') });
    for (const [bytes, subject] of [
      [flight, () => requestDecoder(openssl, method, keys)],
      [answer.flight, () => responseDecoder(openssl, method, key, salt)],
    ] as const) {
      for (let bit = 0; bit < bytes.length * 8; bit += 1) {
        const changed = Uint8Array.from(bytes);
        changed[bit >> 3]! ^= 1 << (bit & 7);
        const decoder = subject();
        refused('FORGED', () => open(decoder, changed), `bit ${bit}`);
        assert.equal(decoder.produced, 0, `bit ${bit}`);
      }
    }
  });

  test(`${method.name}: a flipped bit behind the first flight leaves the records before it`, () => {
    const { flight, stream } = plainRequest({ method, keys, seconds, address });
    const bytes = Buffer.concat([
      flight,
      stream.record(Buffer.from('good')),
      stream.record(Buffer.from('bad')),
    ]);
    const secondAt = bytes.length - (18 + 3 + 16);
    for (let at = secondAt; at < bytes.length; at += 1) {
      const changed = Uint8Array.from(bytes);
      changed[at]! ^= 0x80;
      const decoder = requestDecoder(openssl, method, keys);
      const target = Block.allocate(changed.length);
      refused('FORGED', () => open(decoder, changed, target), `byte ${at}`);
      assert.equal(target.bytes.toString('latin1', address.length, decoder.produced), 'good', `byte ${at}`);
    }
  });

  test(`${method.name}: another key, another method and garbage are refused as forged`, () => {
    const { flight } = plainRequest({ method, keys, seconds, address });
    refused('FORGED', () => open(requestDecoder(openssl, method, [randomBytes(method.keySize)]), flight));
    for (const size of [75, 200, 5000])
      refused('FORGED', () => open(requestDecoder(openssl, method, keys), randomBytes(size)));
  });

  test(`${method.name}: a record of 0xFFFF bytes passes, one of length 0 is refused`, () => {
    const { flight, stream } = plainRequest({ method, keys, seconds, address });
    const whole = Buffer.concat([
      flight,
      stream.record(randomBytes(maxPayload)),
      stream.record(Buffer.of(1)),
    ]);
    assert.equal(
      decode(requestDecoder(openssl, method, keys), [whole]).length,
      address.length + maxPayload + 1,
    );
    for (const payload of [Buffer.alloc(0), Buffer.from('text')]) {
      const other = plainRequest({ method, keys, seconds, address });
      const bytes = Buffer.concat([other.flight, other.stream.record(payload, 0)]);
      refused('BAD_LENGTH', () => open(requestDecoder(openssl, method, keys), bytes));
    }
  });

  test(`${method.name}: a variable header of 0xFFFF bytes passes, with padding alone, payload alone, and both`, () => {
    const room = maxPayload - address.length - 2;
    for (const paddingSize of [0, 1, 900, 901, room - 1, room]) {
      const payload = randomBytes(room - paddingSize);
      const padding = randomBytes(paddingSize);
      const { flight } = plainRequest({ method, keys, seconds, address, padding, payload });
      const opened = decode(requestDecoder(openssl, method, keys), [flight]);
      assert.equal(
        toHex(opened),
        toHex(Buffer.concat([address, payload])),
        `${paddingSize} bytes of padding`,
      );
    }
  });

  test(`${method.name}: a variable header that does not add up is refused`, () => {
    const cases: [string, Uint8Array, ProtocolErrorCode][] = [
      ['nothing', Buffer.alloc(0), 'BAD_ADDRESS'],
      ['an address without its last byte', address.subarray(0, -1), 'BAD_ADDRESS'],
      ['a name without its end', fromHex('03ff6162630050'), 'BAD_ADDRESS'],
      ['no padding length', address, 'BAD_HEADER'],
      ['half a padding length', Buffer.concat([address, Buffer.of(0)]), 'BAD_HEADER'],
      ['neither padding nor payload', Buffer.concat([address, u16(0)]), 'BAD_HEADER'],
      ['padding one byte too long', Buffer.concat([address, u16(4), Buffer.alloc(3)]), 'BAD_HEADER'],
      ['padding of 0xFFFF bytes', Buffer.concat([address, u16(0xffff), Buffer.alloc(3)]), 'BAD_HEADER'],
      ['port 0', fromHex('017f0000010000000101'), 'BAD_ADDRESS'],
    ];
    for (const [name, variable, code] of cases) {
      const { flight } = plainRequest({ method, keys, seconds, address, variable });
      refused(code, () => open(requestDecoder(openssl, method, keys), flight), name);
    }
  });

  test(`${method.name}: a clock may be 30 s off either way and no more, up to the ends of u64`, () => {
    const good = [-30, -29, 0, 29, 30].map((skew) => seconds + skew);
    const bad = [
      ...[-31, 31, 2 ** 32, -seconds].map((skew) => seconds + skew),
      2n ** 53n,
      2n ** 63n,
      2n ** 64n - 1n,
      BigInt(seconds) + 2n ** 32n,
      BigInt(seconds) + 2n ** 63n,
    ];
    const requestSalt = randomBytes(method.saltSize);
    const run = (stamp: number | bigint): void => {
      const { flight } = plainRequest({ method, keys, seconds: stamp, address });
      open(requestDecoder(openssl, method, keys), flight);
    };
    const runResponse = (stamp: number | bigint): void => {
      const { flight } = plainResponse({ method, key, seconds: stamp, requestSalt, payload: Buffer.of(1) });
      open(responseDecoder(openssl, method, key, requestSalt), flight);
    };
    for (const stamp of good) {
      run(stamp);
      runResponse(stamp);
    }
    for (const stamp of bad) {
      refused('BAD_CLOCK', () => run(stamp), `${stamp}`);
      refused('BAD_CLOCK', () => runResponse(stamp), `${stamp}`);
    }
  });

  test(`${method.name}: the message about a clock says how far off, which way, and what to check`, () => {
    for (const [skew, message] of [
      [45, /client's clock is 45 s ahead of ours, at most 30 s.*check the clock/],
      [-3600, /client's clock is 3600 s behind ours/],
    ] as const) {
      const { flight } = plainRequest({ method, keys, seconds: seconds + skew, address });
      assert.throws(() => open(requestDecoder(openssl, method, keys), flight), message);
    }
  });

  test(`${method.name}: each bit of the request salt in a response counts`, () => {
    const requestSalt = randomBytes(method.saltSize);
    for (let bit = 0; bit < method.saltSize * 8; bit += 1) {
      const other = Buffer.from(requestSalt);
      other[bit >> 3]! ^= 1 << (bit & 7);
      const { flight } = plainResponse({ method, key, seconds, requestSalt: other, payload: Buffer.of(1) });
      refused(
        'BAD_HEADER',
        () => open(responseDecoder(openssl, method, key, requestSalt), flight),
        `bit ${bit}`,
      );
    }
  });

  test(`${method.name}: a request sent back as an answer, and an answer as a request, are refused by their type`, () => {
    const salt = randomBytes(method.saltSize);
    const { flight } = plainRequest({ method, keys, seconds, address, salt, payload: randomBytes(200) });
    // A response header is longer, so the request's fixed header does not open as one.
    refused('FORGED', () => open(responseDecoder(openssl, method, key, salt), flight));
    for (const type of [0, 2, 255]) {
      const bad = plainResponse({ method, key, seconds, requestSalt: salt, payload: Buffer.of(1), type });
      refused(
        'BAD_HEADER',
        () => open(responseDecoder(openssl, method, key, salt), bad.flight),
        `type ${type}`,
      );
    }
    for (const type of [1, 2, 255]) {
      const bad = plainRequest({ method, keys, seconds, address, type });
      refused('BAD_HEADER', () => open(requestDecoder(openssl, method, keys), bad.flight), `type ${type}`);
    }
  });

  test(`${method.name}: the salt is asked for once, after key, type and clock are right, and its verdict counts`, () => {
    const asked: string[] = [];
    const good = plainRequest({ method, keys, seconds, address });
    for (const bad of [
      plainRequest({ method, keys, seconds: seconds + 31, address }),
      plainRequest({ method, keys, seconds, address, type: 1 }),
      plainRequest({ method, keys: [randomBytes(method.keySize)], seconds, address }),
    ]) {
      const decoder = requestDecoder(openssl, method, keys, { salts: asked });
      assert.throws(() => open(decoder, bad.flight), ProtocolError);
    }
    assert.deepEqual(asked, []);
    const pieces = Array.from({ length: good.flight.length - 75 }, (_, i) =>
      good.flight.subarray(75 + i, 76 + i),
    );
    decode(requestDecoder(openssl, method, keys, { salts: asked }), [good.flight.subarray(0, 75), ...pieces]);
    assert.deepEqual(asked, [toHex(good.salt)]);
    const verdict = (answer: SaltVerdict) => () =>
      open(requestDecoder(openssl, method, keys, { verdict: answer }), good.flight);
    refused('REPEATED_SALT', verdict('repeated'));
    refused('SALTS_FULL', verdict('full'));
  });

  test(`${method.name}: a header or record that claims more than comes is waited for, one that claims less is forged`, () => {
    const flight = (variableSize: number): Buffer =>
      plainRequest({ method, keys, seconds, address, variableSize }).flight;
    const size = address.length + 2 + 3;
    for (const claimed of [size + 1, 1000, maxPayload]) {
      const decoder = requestDecoder(openssl, method, keys);
      open(decoder, flight(claimed));
      assert.deepEqual([decoder.produced, decoder.wanted, decoder.atBoundary], [0, claimed + 16, false]);
    }
    for (const claimed of [0, 1, size - 1])
      refused('FORGED', () => open(requestDecoder(openssl, method, keys), flight(claimed)), `${claimed}`);

    for (const claimed of [5, 100, maxPayload, 3, 1]) {
      const { flight: good, stream } = plainRequest({ method, keys, seconds, address });
      const bytes = Buffer.concat([good, stream.record(Buffer.from('four'), claimed)]);
      const decoder = requestDecoder(openssl, method, keys);
      if (claimed < 4) {
        refused('FORGED', () => open(decoder, bytes), `${claimed}`);
        continue;
      }
      open(decoder, bytes);
      assert.deepEqual([decoder.produced, decoder.wanted], [address.length, claimed + 16]);
      assert.equal(decoder.atBoundary, false);
    }
  });

  test(`${method.name}: random answers, changed or cut anywhere, are decoded or refused, and never more`, () => {
    const requestSalt = randomBytes(method.saltSize);
    for (let round = 0; round < 300; round += 1) {
      const payload = randomBytes(1 + random(2000));
      const { flight, stream } = plainResponse({ method, key, seconds, requestSalt, payload });
      const more = randomBytes(1 + random(2000));
      const bytes = Buffer.concat([flight, stream.record(more)]);
      const isChanged = round % 2 === 0;
      if (isChanged) bytes[random(bytes.length)]! ^= 1 << random(8);
      const cut = responseSize(method) + random(bytes.length - responseSize(method));
      const act = (): Uint8Array =>
        decode(responseDecoder(openssl, method, key, requestSalt), [
          bytes.subarray(0, cut),
          bytes.subarray(cut),
        ]);
      if (isChanged) refused('FORGED', act);
      else assert.equal(toHex(act()), toHex(Buffer.concat([payload, more])));
    }
  });

  test(`${method.name}: random bytes behind a good header, and random cuts of good streams, never do more than throw`, () => {
    for (let round = 0; round < 300; round += 1) {
      const { flight, stream } = plainRequest({
        method,
        keys,
        seconds,
        address,
        payload: randomBytes(random(50)),
      });
      const records = Array.from({ length: random(4) }, () => stream.record(randomBytes(1 + random(3000))));
      const bytes = Buffer.concat([flight, ...records, randomBytes(random(100))]);
      if (round % 3 === 0) bytes[random(bytes.length)]! ^= 1 << random(8);
      const decoder = requestDecoder(openssl, method, keys);
      const pieces: Uint8Array[] = [];
      for (let at = 0, size = 75; at < bytes.length; at += size, size = 1 + random(1500))
        pieces.push(bytes.subarray(at, at + size));
      try {
        decode(decoder, pieces);
      } catch (error) {
        if (!(error instanceof ProtocolError)) throw error;
      }
    }
  });
}

// ---- users

for (const method of methods2022.filter(({ hasIdentityHeaders }) => hasIdentityHeaders)) {
  const ipsk = randomBytes(method.keySize);
  const users = Array.from({ length: 3 }, (_, i) => ({
    name: `user ${i}`,
    key: randomBytes(method.keySize),
  }));

  test(`${method.name}: the identity header chooses the user, whose key answers`, () => {
    users.forEach(({ key }, i) => {
      const encoder = requestEncoder(openssl, method, [ipsk, key], { now: seconds });
      const bytes = encodeEach(encoder, [Buffer.from('hello')]);
      const header = requestHeader(openssl, method, [ipsk], { users });
      const opened = decode(new StreamDecoder2022(header), [bytes]);
      assert.equal(toHex(opened), toHex(Buffer.concat([address, Buffer.from('hello')])));
      assert.equal(header.user, i);
      assert.equal(toHex(header.key), toHex(key));
      assert.equal(toHex(header.salt), toHex(bytes.subarray(0, method.saltSize)));
    });
  });

  test(`${method.name}: a user of others, none, the identity key itself and a wrong identity key are refused`, () => {
    const key = users[1]!.key;
    const stranger = randomBytes(method.keySize);
    const subject = (): StreamDecoder2022 => requestDecoder(openssl, method, [ipsk], { users });
    const flight = (...keys: Uint8Array[]): Buffer => plainRequest({ method, keys, seconds, address }).flight;
    refused('UNKNOWN_USER', () => open(subject(), flight(ipsk, stranger)));
    refused('UNKNOWN_USER', () => open(subject(), flight(ipsk, ipsk)));
    refused('UNKNOWN_USER', () => open(subject(), flight(stranger, key)));
    refused('UNKNOWN_USER', () => open(subject(), flight(key)));
    // The header of one user with the stream of another.
    const one = flight(ipsk, key);
    const two = plainRequest({
      method,
      keys: [ipsk, users[2]!.key],
      seconds,
      address,
      salt: one.subarray(0, method.saltSize),
    });
    const mixed = Buffer.concat([
      one.subarray(0, method.saltSize + 16),
      two.flight.subarray(method.saltSize + 16),
    ]);
    refused('FORGED', () => open(subject(), mixed));
  });

  test(`${method.name}: a request with an identity header is refused by a server without users`, () => {
    const { flight } = plainRequest({ method, keys: [ipsk, users[0]!.key], seconds, address });
    refused('FORGED', () => open(requestDecoder(openssl, method, [ipsk]), flight));
    refused('FORGED', () => open(requestDecoder(openssl, method, [users[0]!.key]), flight));
  });
}

// ---- our encoders

test('what comes out of the encoders is what the plain twin makes of it, whatever the sizes', () => {
  for (const method of methods2022) {
    const key = randomBytes(method.keySize);
    for (const size of [0, 1, 2, 1000, 30_000, maxPayload - address.length - 2 - 900]) {
      const encoder = requestEncoder(openssl, method, [key], { now: seconds, padding: size === 0 ? 7 : 0 });
      assert.ok(size <= encoder.room);
      const payload = randomBytes(size);
      const bytes = Buffer.from(encodeEach(encoder, [payload, Buffer.from('more')]));
      const opened = openPlainly(method, key, bytes, 'request');
      const padding = Buffer.concat([address, u16(size === 0 ? 7 : 0)]);
      assert.equal(toHex(opened.chunks[0]!.subarray(0, padding.length)), toHex(padding));
      assert.equal(toHex(opened.chunks[0]!.subarray(padding.length + (size === 0 ? 7 : 0))), toHex(payload));
      assert.equal(opened.chunks[1]!.toString(), 'more');
      assert.equal(encoder.room, Infinity);
    }
    for (const size of [1, maxPayload, maxPayload + 1, 2 * maxPayload + 1]) {
      const requestSalt = randomBytes(method.saltSize);
      const encoder = responseEncoder(method, key, requestSalt);
      const payload = randomBytes(size);
      const bytes = Buffer.from(encodeBatch(encoder, payload));
      const opened = openPlainly(method, key, bytes, 'response');
      assert.equal(toHex(opened.header.subarray(9, -2)), toHex(requestSalt));
      assert.equal(toHex(Buffer.concat(opened.chunks)), toHex(payload));
      assert.equal(
        toHex(decode(responseDecoder(openssl, method, key, requestSalt), [bytes])),
        toHex(payload),
      );
    }
  }
});

test('a batch of several records behind the header is what as many single ones are', () => {
  const method = findMethod('2022-blake3-aes-256-gcm')!;
  const key = randomBytes(32);
  const payload = randomBytes(2 * maxPayload + 10);
  const salt = randomBytes(32);
  const padding = randomBytes(5);
  const make = (): RequestEncoder2022 => requestEncoder(openssl, method, [key], { salt, padding });
  const whole = make();
  const first = encodeEach(whole, [new Uint8Array(0)]);
  const batch = Buffer.concat([first, encodeBatch(whole, payload)]);
  const single = encodeEach(make(), [
    new Uint8Array(0),
    payload.subarray(0, maxPayload),
    payload.subarray(maxPayload, 2 * maxPayload),
    payload.subarray(2 * maxPayload),
  ]);
  assert.equal(sha256(batch), sha256(single));
});

test('the timestamp is that of the moment in which the header is sealed', () => {
  const method = findMethod('2022-blake3-aes-128-gcm')!;
  const key = randomBytes(16);
  let now = seconds;
  const encoder = new ResponseEncoder2022({
    backend: openssl,
    method,
    key,
    salt: randomBytes(16),
    requestSalt: randomBytes(16),
    now: () => now,
  });
  now += 100;
  const opened = openPlainly(method, key, Buffer.from(encodeEach(encoder, [Buffer.of(1)])), 'response');
  assert.equal(opened.header.readBigUInt64BE(1), BigInt(seconds + 100));
});

test('what may not be sealed is a RangeError, and the stream is as before', () => {
  const method = findMethod('2022-blake3-aes-256-gcm')!;
  const key = randomBytes(32);
  const client = requestEncoder(openssl, method, [key], { now: seconds, padding: 1 });
  const block = Block.allocate(client.headroom + client.stride);
  assert.throws(() => client.seal(block, client.room + 1), RangeError);
  client.seal(block, 0);
  assert.throws(() => client.seal(block, 0), RangeError);
  assert.throws(() => responseEncoder(method, key, randomBytes(32)).seal(block, 0), RangeError);
  for (const padding of [0, 901]) {
    const wrong = requestEncoder(openssl, method, [key], { now: seconds, padding });
    assert.throws(() => wrong.seal(block, 0), /bytes of padding/);
  }
  assert.throws(
    () => requestEncoder(openssl, method, [key], { salt: randomBytes(16) }),
    /salt has 32 bytes, got 16/,
  );
  assert.throws(() => responseEncoder(method, key, randomBytes(31)), /salt has 32 bytes, got 31/);
  const chain = Array.from({ length: 10 }, () => key);
  assert.throws(() => requestEncoder(openssl, method, chain, {}), /9 identity keys, at most 8/);
});

test('a first flight with the longest chain, name and padding fits in front of the payload', () => {
  const method = findMethod('2022-blake3-aes-256-gcm')!;
  const keys = Array.from({ length: 9 }, () => randomBytes(32));
  const name = Buffer.concat([Buffer.of(3, 255), Buffer.alloc(255, 'a'), u16(443)]);
  const encoder = requestEncoder(openssl, method, keys, { now: seconds, address: name, padding: 900 });
  const payload = randomBytes(encoder.room);
  const bytes = Buffer.from(encodeEach(encoder, [payload]));
  const { chunks } = openPlainly(method, keys.at(-1)!, bytes, 'request', 8);
  assert.equal(toHex(chunks[0]!.subarray(name.length + 2 + 900)), toHex(payload));
});

// ---- helpers

function responseSize({ saltSize }: Method): number {
  return saltSize + 11 + saltSize + 16;
}

interface StreamCase {
  id: string;
  subject: () => StreamDecoder2022;
  stream: Uint8Array;
  plaintext: string;
  /** Size of the shortest first read. */
  first: number;
}

function* streamVectors(backend: AeadBackend): Generator<StreamCase> {
  yield* requestVectors(backend);
  yield* responseVectors(backend);
}

/** A request with two identity headers is ours to read once the first server on the way has taken the first one off. */
function* requestVectors(backend: AeadBackend): Generator<StreamCase> {
  for (const {
    id,
    method: name,
    psk_b64,
    ipsks_b64,
    now,
    request,
    after_first_relay,
  } of vectors.ss2022_tcp) {
    const method = findMethod(name)!;
    const stream = fromHex(after_first_relay?.stream_hex ?? request.stream_hex);
    const key = fromBase64(ipsks_b64.at(-1) ?? psk_b64);
    const users = ipsks_b64.length === 0 ? [] : [{ name: 'user', key: fromBase64(psk_b64) }];
    const subject = (): StreamDecoder2022 => requestDecoder(backend, method, [key], { now, users });
    const { address_hex, initial_payload_hex, plaintext_chunks_hex } = request;
    const plaintext = address_hex + initial_payload_hex + plaintext_chunks_hex.join('');
    yield { id: `${id}/request`, subject, stream, plaintext, first: subject().wanted };
  }
}

function* responseVectors(backend: AeadBackend): Generator<StreamCase> {
  for (const { id, method: name, psk_b64, now, response } of vectors.ss2022_tcp) {
    const requestSalt = fromHex(response.request_salt_hex);
    const subject = (): StreamDecoder2022 =>
      responseDecoder(backend, findMethod(name)!, fromBase64(psk_b64), requestSalt, now);
    const plaintext = response.plaintext_chunks_hex.join('');
    yield {
      id: `${id}/response`,
      subject,
      stream: fromHex(response.stream_hex),
      plaintext,
      first: subject().wanted,
    };
  }
}

/** By the construction rules in the vectors. */
function bigRecords(id: string): Uint8Array[] {
  if (id.endsWith('/nonce-carry')) {
    return Array.from({ length: 300 }, (_, i) => new Uint8Array(1 + (i % 7)).fill(i & 255));
  }
  const shake = createHash('shake256', { outputLength: maxPayload })
    .update('ss-vectors/1:max-chunk-2022')
    .digest();
  return [shake, Buffer.from('z')];
}

interface RequestOptions {
  salt?: Uint8Array;
  address?: Uint8Array;
  now?: number;
  padding?: Uint8Array | number;
}

/** @param keys the chain: identity keys, then the user's. */
function requestEncoder(
  backend: AeadBackend,
  method: Method,
  keys: Uint8Array[],
  options: RequestOptions,
): RequestEncoder2022 {
  const { padding = 0 } = options;
  return new RequestEncoder2022({
    backend,
    method,
    credentials: { key: keys.at(-1)!, identityKeys: keys.slice(0, -1), users: [] },
    salt: options.salt ?? randomBytes(method.saltSize),
    address: options.address ?? address,
    now: () => options.now ?? seconds,
    padding: () => (typeof padding === 'number' ? randomBytes(padding) : padding),
  });
}

function responseEncoder(method: Method, key: Uint8Array, requestSalt: Uint8Array): ResponseEncoder2022 {
  const salt = randomBytes(method.saltSize);
  return new ResponseEncoder2022({ backend: openssl, method, key, salt, requestSalt, now: () => seconds });
}

interface ServerOptions {
  now?: number;
  users?: User[];
  /** Gets every salt that is asked for. */
  salts?: string[];
  verdict?: SaltVerdict;
}

function requestHeader(
  backend: AeadBackend,
  method: Method,
  [key]: Uint8Array[],
  { now = seconds, users = [], salts = [], verdict = 'new' }: ServerOptions = {},
): RequestHeader {
  return new RequestHeader({
    backend,
    method,
    credentials: { key: key!, identityKeys: [], users },
    users: UserTable.of(users),
    now: () => now,
    acceptSalt: (salt) => {
      salts.push(toHex(salt));
      return verdict;
    },
  });
}

function requestDecoder(
  backend: AeadBackend,
  method: Method,
  keys: Uint8Array[],
  options?: ServerOptions,
): StreamDecoder2022 {
  return new StreamDecoder2022(requestHeader(backend, method, keys, options));
}

function responseDecoder(
  backend: AeadBackend,
  method: Method,
  key: Uint8Array,
  requestSalt: Uint8Array,
  now = seconds,
): StreamDecoder2022 {
  return new StreamDecoder2022(new ResponseHeader({ backend, method, key, requestSalt, now: () => now }));
}

/** One `seal` for each payload, in a block with rubbish in it. */
function encodeEach(encoder: StreamEncoder, payloads: Uint8Array[]): Uint8Array {
  const block = Block.allocate(encoder.headroom + encoder.stride);
  const parts = payloads.map((payload) => {
    block.bytes.fill(0xee);
    block.bytes.set(payload, encoder.headroom);
    encoder.seal(block, payload.length);
    return Uint8Array.from(block.bytes.subarray(encoder.start, encoder.end));
  });
  return Buffer.concat(parts);
}

/** The wire bytes of one `seal`: between its records a batch has no gaps but those of the stride, which are full. */
function encodeBatch(encoder: StreamEncoder, payload: Uint8Array): Uint8Array {
  const block = Block.allocate(encoder.headroom + 4 * encoder.stride);
  for (let at = 0, slot = 0; at < payload.length; at += encoder.maxPayload, slot += 1) {
    block.bytes.set(payload.subarray(at, at + encoder.maxPayload), encoder.headroom + slot * encoder.stride);
  }
  encoder.seal(block, payload.length);
  return Uint8Array.from(block.bytes.subarray(encoder.start, encoder.end));
}

/** Feeds the pieces as the relay does: what was not consumed stands in front of what comes next. */
function decode(decoder: StreamDecoder2022, pieces: Uint8Array[]): Uint8Array {
  const size = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const source = Block.allocate(size);
  const target = Block.allocate(size);
  let from = 0;
  let to = 0;
  let at = 0;
  for (const piece of pieces) {
    if (piece.length === 0) continue;
    source.bytes.set(piece, to);
    to += piece.length;
    decoder.open(source, from, to, target, at);
    from += decoder.consumed;
    at += decoder.produced;
  }
  decoder.open(source, from, to, target, at);
  assert.equal(decoder.consumed, 0, 'a second call has nothing left to do');
  return Uint8Array.from(target.bytes.subarray(0, at));
}

/** All at once. */
function open(decoder: StreamDecoder2022, bytes: Uint8Array, target = Block.allocate(bytes.length)): void {
  const source = Block.allocate(bytes.length);
  source.bytes.set(bytes);
  decoder.open(source, 0, bytes.length, target, 0);
}

function refused(code: ProtocolErrorCode, action: () => unknown, message?: string): void {
  assert.throws(
    action,
    (error: unknown) => {
      assert.ok(error instanceof ProtocolError, message);
      assert.equal(error.code, code, message);
      return true;
    },
    message,
  );
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(Buffer.from(text, 'base64'));
}

function random(below: number): number {
  return Math.floor(Math.random() * below);
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
