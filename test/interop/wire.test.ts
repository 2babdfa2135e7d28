// What our ss-redir sends, seen by a server made by hand (helpers/aead-peer.ts) in the place of ss-server.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { Agent, type RemoteSocket } from '../helpers/agents.js';
import { openStream, PeerSealer, targetAddress, type PeerMethod } from '../helpers/aead-peer.js';
import { families, modes, origins, password, serverPort, whySkipped, World } from '../helpers/world.js';

const maxPayload = 0x3fff;
const headerAloneLimitMs = 1500; // R09
const peerMethods = ['aes-128-gcm', 'aes-192-gcm', 'aes-256-gcm', 'chacha20-ietf-poly1305'] as const;

describe('wire', { skip: whySkipped() }, () => {
  let world: World;
  let server: Agent;
  before(async () => {
    world = await World.create('wire');
    server = new Agent(world.bed.internet.name);
    await server.listen({ port: serverPort, behaviour: 'manual' });
  });
  after(async () => {
    await server?.stop();
    await world?.destroy();
  });
  afterEach(() => world.reset());

  for (const mode of modes) {
    for (const family of families) {
      test(`${mode} ${family}: on a listener on ::, the request names the target in its own family, and is answered`, async () => {
        await world.startRedir('ours', mode, { config: { local_address: '::' } });
        const client = await world.client.connect({ host: origins[family], port: 443 });
        await client.write('hello');
        const socket = await server.accept(serverPort);
        const expected = Buffer.concat([targetAddress(origins[family], 443), Buffer.from('hello')]);
        const plain = await readPlain(socket, 'aes-256-gcm', expected.length);
        assert.equal(plain.toString('hex'), expected.toString('hex'));

        const sealer = new PeerSealer('aes-256-gcm', password);
        await socket.write(Buffer.concat([sealer.salt, sealer.chunk(Buffer.from('answer'))]));
        const { data, remote } = await client.wait({ bytes: 6 });
        assert.deepEqual([data.toString(), remote], ['answer', `${origins[family]} 443`]);
      });
    }
  }

  for (const method of peerMethods) {
    test(`${method}: header and first payload travel together, in records of at most ${maxPayload} bytes`, async () => {
      await world.startRedir('ours', 'redirect', { config: { method } });
      const client = await world.client.connect({ host: origins.ipv4, port: 443 });
      const payload = Buffer.alloc(100_000, 'p');
      await client.write(payload);
      const socket = await server.accept(serverPort);
      const header = targetAddress(origins.ipv4, 443);
      const plain = await readPlain(socket, method, header.length + payload.length);
      assert.equal(plain.length, header.length + payload.length);
      assert.ok(plain.equals(Buffer.concat([header, payload])), 'bytes differ');
      const { chunks } = openStream(method, password, (await socket.snapshot()).data);
      assert.ok(chunks[0]!.length > header.length, 'the header came alone');
      for (const chunk of chunks)
        assert.ok(chunk.length > 0 && chunk.length <= maxPayload, `${chunk.length}`);
    });

    test(`${method}: the answer's records reach the client, however they are cut`, async () => {
      await world.startRedir('ours', 'redirect', { config: { method } });
      const client = await world.client.connect({ host: origins.ipv4, port: 443 });
      await client.write('hello');
      const socket = await server.accept(serverPort);
      const sealer = new PeerSealer(method, password);
      const sizes = [1, maxPayload, 7, 1000];
      const stream = Buffer.concat([
        sealer.salt,
        ...sizes.map((size) => sealer.chunk(Buffer.alloc(size, 'a'))),
      ]);
      for (const byte of stream.subarray(0, 120)) await socket.write(Buffer.from([byte]));
      await socket.write(stream.subarray(120));
      const wanted = sizes.reduce((sum, size) => sum + size, 0);
      const { data, bytes } = await client.wait({ bytes: wanted });
      assert.equal(bytes, wanted);
      assert.ok(data.equals(Buffer.alloc(wanted, 'a')));
    });
  }

  test(`a client that only listens: the header comes alone within ${headerAloneLimitMs} ms`, async () => {
    await world.startRedir('ours', 'redirect');
    const begun = performance.now();
    await world.client.connect({ host: origins.ipv4, port: 25 });
    const socket = await server.accept(serverPort);
    const header = targetAddress(origins.ipv4, 25);
    const plain = await readPlain(socket, 'aes-256-gcm', header.length);
    assert.equal(plain.toString('hex'), header.toString('hex'));
    assert.ok(performance.now() - begun < headerAloneLimitMs);
  });

  test('a forged answer ends the connection with RST, and nothing of it reaches the client', async () => {
    await world.startRedir('ours', 'redirect');
    const client = await world.client.connect({ host: origins.ipv4, port: 443 });
    await client.write('hello');
    const socket = await server.accept(serverPort);
    const sealer = new PeerSealer('aes-256-gcm', password);
    const good = Buffer.concat([sealer.salt, sealer.chunk(Buffer.from('good'))]);
    const forged = sealer.chunk(Buffer.from('forged'));
    forged[forged.length - 1]! ^= 1;
    await socket.write(Buffer.concat([good, forged]));
    const { data, error, ended } = await client.wait({ closed: true });
    assert.ok('good'.startsWith(data.toString()), data.toString());
    assert.deepEqual([error, ended], ['ECONNRESET', false]);
  });

  test('an answer that stops inside a record is a RST to the client, not the end of the stream', async () => {
    await world.startRedir('ours', 'redirect');
    const client = await world.client.connect({ host: origins.ipv4, port: 443 });
    await client.write('hello');
    const socket = await server.accept(serverPort);
    const sealer = new PeerSealer('aes-256-gcm', password);
    const stream = Buffer.concat([sealer.salt, sealer.chunk(Buffer.alloc(1000, 'a'))]);
    await socket.write(stream.subarray(0, -1));
    await socket.end();
    const { error, ended } = await client.wait({ closed: true });
    assert.deepEqual([error, ended], ['ECONNRESET', false]);
  });

  // R69: also after a restart, where a generator with a fixed start would repeat itself
  test('no salt comes twice in 600 connections with a restart among them', async () => {
    const salts = new Set<string>();
    let connections = 0;
    for (const round of [1, 2, 3]) {
      const redir = await world.startRedir('ours', 'redirect');
      const clients = await world.client.connectMany({ host: origins.ipv4, port: 443 }, 200);
      await Promise.all(clients.map((client) => client.write('x')));
      for (let count = 0; count < clients.length; count++) {
        const socket = await server.accept(serverPort);
        const { data } = await socket.wait({ bytes: 32 });
        salts.add(data.subarray(0, 32).toString('hex'));
        connections++;
        await socket.destroy();
      }
      assert.equal(salts.size, connections, `round ${round}`);
      redir.kill('SIGKILL');
      await redir.exited;
    }
    assert.equal(salts.size, 600);
  });
});

/** The plaintext that has come when `length` bytes of it are there. */
async function readPlain(socket: RemoteSocket, method: PeerMethod, length: number): Promise<Buffer> {
  for (let bytes = 1; ;) {
    const snapshot = await socket.wait({ bytes });
    const plain = Buffer.concat(openStream(method, password, snapshot.data).chunks);
    if (plain.length >= length) return plain;
    assert.ok(snapshot.bytes >= bytes && !snapshot.closed, `${plain.length} of ${length} bytes came`);
    bytes = snapshot.bytes + 1;
  }
}
