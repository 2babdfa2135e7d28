// Our ss-server against bytes made by hand: every legal way to cut a request (R67), replays (R69), and probes, all of
// which must meet the same silence (R70).
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { addresses } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import type { RemoteSocket } from '../helpers/agents.js';
import { openStream, PeerSealer, targetAddress } from '../helpers/aead-peer.js';
import { originPorts, origins, password, serverPort, whySkipped, World } from '../helpers/world.js';

const method = 'aes-256-gcm';
const server = { host: addresses.internet.ipv4, port: serverPort };
const target = targetAddress(origins.ipv4, originPorts.echo);
const mappedTarget = Buffer.concat([Buffer.from('0400000000000000000000ffff', 'hex'), target.subarray(1)]);
const nothing = Buffer.alloc(0);
const silenceMs = 3000; // a server that gives itself away does so at once
const deadlineMs = [30_000, 60_000] as const; // design: at the peer's FIN, or at a random moment between these
const slackMs = 3000;

describe('probing', { skip: whySkipped(), concurrency: 4 }, () => {
  let world: World;
  let service: Service;
  before(async () => {
    world = await World.create('probe');
    service = await world.startServer('ours');
  });
  after(() => world?.destroy());

  const send = (...parts: (Buffer | number)[]) => sendTo(world, ...parts);

  describe('legal ways to send a request are served', () => {
    const payload = Buffer.from('payload');
    const cases: Record<string, (sealer: PeerSealer) => (Buffer | number)[]> = {
      'all at once': (s) => [Buffer.concat([s.salt, s.chunk(target), s.chunk(payload)])],
      'address and payload in one chunk': (s) => [
        Buffer.concat([s.salt, s.chunk(Buffer.concat([target, payload]))]),
      ],
      'byte by byte': (s) => byteByByte(Buffer.concat([s.salt, s.chunk(Buffer.concat([target, payload]))])),
      'five bytes of the salt, then the rest': (s) => {
        const stream = Buffer.concat([s.salt, s.chunk(Buffer.concat([target, payload]))]);
        return [stream.subarray(0, 5), 50, stream.subarray(5)];
      },
      'address over three chunks in one segment': (s) => [
        Buffer.concat([
          s.salt,
          s.chunk(target.subarray(0, 1)),
          s.chunk(target.subarray(1, 4)),
          s.chunk(Buffer.concat([target.subarray(4), payload])),
        ]),
      ],
      'address over two chunks in two segments': (s) => [
        Buffer.concat([s.salt, s.chunk(target.subarray(0, 3))]),
        100,
        s.chunk(Buffer.concat([target.subarray(3), payload])),
      ],
      'chunks of length 0 before, in and behind the address': (s) => [
        Buffer.concat([
          s.salt,
          s.chunk(nothing),
          s.chunk(target.subarray(0, 2)),
          s.chunk(nothing),
          s.chunk(target.subarray(2)),
          s.chunk(nothing),
          s.chunk(payload),
        ]),
      ],
      'an IPv4-mapped address of type 4': (s) => [
        Buffer.concat([s.salt, s.chunk(Buffer.concat([mappedTarget, payload]))]),
      ],
      'address alone, data later': (s) => [Buffer.concat([s.salt, s.chunk(target)]), 300, s.chunk(payload)],
    };
    for (const [name, parts] of Object.entries(cases)) {
      test(name, async () => echoed(await send(...parts(new PeerSealer(method, password))), payload));
    }

    test('a chunk of 0x3FFF bytes', async () => {
      const sealer = new PeerSealer(method, password);
      const data = randomBytes(0x3fff);
      await echoed(await send(Buffer.concat([sealer.salt, sealer.chunk(target), sealer.chunk(data)])), data);
    });
  });

  describe('what is wrong meets silence', () => {
    const cases: Record<string, () => Buffer> = {
      'a wrong password': () => {
        const sealer = new PeerSealer(method, 'another');
        return Buffer.concat([sealer.salt, sealer.chunk(target)]);
      },
      'a good first flight with its last bit flipped': () => flipLastBit(firstFlight(target)),
      'a chunk of 0x4000 bytes': () => {
        const sealer = new PeerSealer(method, password);
        return Buffer.concat([sealer.salt, sealer.chunk(target), sealer.chunk(randomBytes(0x4000))]);
      },
      'ATYP 0x63': () => firstFlight(Buffer.from('63010203040050', 'hex')),
      'a name of length 0': () => firstFlight(Buffer.from('03000050', 'hex')),
      'port 0': () => firstFlight(targetAddress(origins.ipv4, 0)),
      'a request in clear': () => Buffer.from('GET / HTTP/1.1\r\nHost: example.net\r\n\r\n'.repeat(3)),
    };
    for (const [name, bytes] of Object.entries(cases)) {
      test(name, async () => {
        const socket = await send(bytes());
        await silent(socket);
        await socket.end();
        const { ended, error, bytes: received } = await socket.wait({ ended: true }, 2000);
        assert.deepEqual(
          [ended, error, received],
          [true, undefined, 0],
          "not closed in order at the peer's FIN",
        );
      });
    }

    test('1 to 200 random bytes, at once or one at a time: no answer and no end, whatever the count', async () => {
      const counts = [1, 15, 31, 32, 33, 49, 50, 51, 52, 65, 66, 67, 68, 100, 150, 200];
      const atOnce = counts.map((count) => send(randomBytes(count)));
      const single = counts.map((count) => send(...byteByByte(randomBytes(count))));
      await Promise.all([...atOnce, ...single].map(async (socket) => silent(await socket)));
    });

    test('a replay, at once and after 1 s', async () => {
      const sealer = new PeerSealer(method, password);
      const flight = Buffer.concat([sealer.salt, sealer.chunk(target), sealer.chunk(Buffer.from('once'))]);
      await echoed(await send(flight), Buffer.from('once'));
      await silent(await send(flight));
      await delay(1000);
      await silent(await send(flight));
    });

    test('the log names the peer and the reason, and no payload', async () => {
      const sealer = new PeerSealer(method, 'another');
      const socket = await send(Buffer.concat([sealer.salt, sealer.chunk(target)]));
      await world.settles(() => service.output.includes(addresses.client.ipv4), 2000); // the first line of a storm
      await socket.destroy();
      const line = service.output.split('\n').find((text) => text.includes(addresses.client.ipv4));
      assert.match(line ?? '', /password|cipher|authentic|forged|tag/i, service.output.slice(-500));
    });
  });

  test('honest connections are never taken for replays: 2,000 in a row', async () => {
    for (let round = 0; round < 20; round++) {
      const batch = Array.from({ length: 100 }, async () => {
        const sealer = new PeerSealer(method, password);
        await echoed(
          await send(Buffer.concat([sealer.salt, sealer.chunk(Buffer.concat([target, Buffer.from('x')]))])),
          Buffer.from('x'),
        );
      });
      await Promise.all(batch);
    }
  });
});

describe('forgery outlives nothing', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('forge');
  });
  after(() => world?.destroy());
  afterEach(() => world.reset());

  test('every kind of probe is closed between 30 and 60 s, in order, and leaves no descriptor', async () => {
    const service = await world.startServer('ours', { config: { timeout: 600 } });
    const fds = await world.restingFds(service);
    const sealer = new PeerSealer(method, password);
    const tooLong = new PeerSealer(method, password);
    const served = firstFlight(target);
    await echoed(await sendTo(world, served), Buffer.from('x'));
    const probes = [
      ...Array.from({ length: 20 }, (_, index) => randomBytes(60 + index)),
      ...Array.from({ length: 10 }, () => {
        const wrong = new PeerSealer(method, 'another');
        return Buffer.concat([wrong.salt, wrong.chunk(target)]);
      }),
      Buffer.concat([sealer.salt, sealer.chunk(Buffer.from('63010203040050', 'hex'))]),
      flipLastBit(firstFlight(target)),
      Buffer.concat([tooLong.salt, tooLong.chunk(target), tooLong.chunk(randomBytes(0x4000))]),
      served,
    ];
    const sockets = await world.client.connectMany(server, probes.length);
    await Promise.all(sockets.map((socket, index) => socket.write(probes[index]!)));

    const ends = await Promise.all(
      sockets.map((socket) => socket.wait({ ended: true }, deadlineMs[1] + slackMs)),
    );
    for (const { ended, error, bytes, lifeMs } of ends) {
      assert.deepEqual([ended, error, bytes], [true, undefined, 0]);
      assert.ok(
        lifeMs > deadlineMs[0] - slackMs && lifeMs < deadlineMs[1] + slackMs,
        `closed after ${lifeMs} ms`,
      );
    }
    const lives = ends.map(({ lifeMs }) => lifeMs);
    assert.ok(Math.max(...lives) - Math.min(...lives) > 3000, 'all closed at the same moment: a fingerprint');
    await world.client.call('clear', undefined);
    assert.ok(await world.settles(() => service.usage().fds <= fds, 2000), 'descriptors kept');
  });

  test('through ss-redir with the wrong password: the client hears nothing, the log names the peer', async () => {
    const service = await world.startServer('ours');
    const fds = await world.restingFds(service);
    await world.startRedir('ours', 'redirect', { config: { password: 'not that' } });
    const client = await world.client.connect({ host: origins.ipv4, port: originPorts.banner });
    await client.write('hello');
    const { bytes, ended, closed } = await client.wait({ bytes: 1, ended: true }, 2000);
    assert.deepEqual([bytes, ended, closed], [0, false, false]);
    assert.ok(service.output.includes(addresses.gatewayWan.ipv4), service.output);
    await client.destroy();
    assert.ok(await world.settles(() => service.usage().fds <= fds, 2000), 'descriptors kept');
  });
});

async function sendTo(world: World, ...parts: (Buffer | number)[]): Promise<RemoteSocket> {
  const socket = await world.client.connect(server);
  for (const part of parts) {
    if (typeof part === 'number') await delay(part);
    else await socket.write(part);
  }
  return socket;
}

async function echoed(socket: RemoteSocket, expected: Buffer): Promise<void> {
  for (let bytes = 1; ;) {
    const snapshot = await socket.wait({ bytes }, 3000);
    const plain = Buffer.concat(openStream(method, password, snapshot.data).chunks);
    if (plain.length >= expected.length) {
      assert.ok(plain.equals(expected), 'the echo differs');
      break;
    }
    assert.ok(
      snapshot.bytes >= bytes && !snapshot.closed,
      `${plain.length} of ${expected.length} bytes came back`,
    );
    bytes = snapshot.bytes + 1;
  }
  await socket.destroy();
}

async function silent(socket: RemoteSocket): Promise<void> {
  const { bytes, ended, closed, error } = await socket.wait({ bytes: 1, ended: true }, silenceMs);
  assert.deepEqual(
    { bytes, ended, closed, error },
    { bytes: 0, ended: false, closed: false, error: undefined },
  );
}

function byteByByte(stream: Buffer): (Buffer | number)[] {
  return [...stream].flatMap((byte) => [Buffer.from([byte]), 1]);
}

function flipLastBit(stream: Buffer): Buffer {
  stream[stream.length - 1]! ^= 1;
  return stream;
}

function firstFlight(address: Buffer): Buffer {
  const sealer = new PeerSealer(method, password);
  return Buffer.concat([sealer.salt, sealer.chunk(address), sealer.chunk(Buffer.from('x'))]);
}
