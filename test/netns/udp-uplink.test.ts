// UDP flows through what happens outside: the uplink gets another address or goes down (R25), the server starts anew, or is
// one of several.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { addresses } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import type { UdpSocket } from '../helpers/udp-sockets.js';
import { remotes, UdpWorld, type Relay, type RelayOptions } from '../helpers/udp-world.js';
import { originPorts, origins, serverPort, whySkipped } from '../helpers/world.js';

const port = 4000;
const to = { host: remotes.ipv4.asked, port };
const retryMs = 1000; // after which a client that heard nothing asks again
const otherPort = 8390;
const psk = Buffer.alloc(32, 7).toString('base64');

describe('udp: uplink and servers', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  before(async () => {
    udp = await UdpWorld.create('uplink');
  });
  after(() => udp?.destroy());

  async function startRelay(options: RelayOptions = {}): Promise<Relay> {
    await udp.remote(to, 'mirror');
    return udp.startRelay(options);
  }

  async function tcpWorks(): Promise<void> {
    const client = await udp.world.client.connect({ host: origins.ipv4, port: originPorts.echo });
    await client.write('hello');
    assert.equal((await client.wait({ bytes: 5 }, retryMs)).data.toString(), 'hello');
    await client.destroy();
  }

  async function moveUplink(from: string, address: string): Promise<void> {
    const { gateway, internet } = udp.world.bed;
    await gateway.ip(`addr del ${from}/24 dev w0`);
    await gateway.ip(`addr add ${address}/24 dev w0`);
    await gateway.ip('route replace default via 45.9.9.2');
    await internet.ip(`route replace default via ${address}`);
  }

  async function restoreUplink(): Promise<void> {
    const { gateway } = udp.world.bed;
    await gateway.ip('link set w0 up');
    for (const words of [
      'route replace default via 45.9.9.2',
      'addr replace 2a09:9::1/64 dev w0 nodad',
      '-6 route replace default via 2a09:9::2',
    ])
      await gateway.ip(words);
  }

  describe('one relay', () => {
    let redir: Service;
    before(async () => {
      ({ redir } = await startRelay());
    });
    after(() => udp.reset());
    afterEach(async () => {
      assert.ok(redir.running, redir.output);
    });

    test('after a change of address flows go on within one retry, and TCP at once', async (t) => {
      const clients = await Promise.all([1, 2, 3].map(() => udp.client('ipv4')));
      for (const client of clients) await answeredByRetry(client);
      const moved = '45.9.9.7';
      t.after(() => moveUplink(moved, addresses.gatewayWan.ipv4));
      await moveUplink(addresses.gatewayWan.ipv4, moved);

      await Promise.all(clients.map(answeredByRetry));
      await tcpWorks();
      await answeredByRetry(await udp.client('ipv4'));
    });

    test('a link that is down for a while costs only what was sent meanwhile', async (t) => {
      const client = await udp.client('ipv4');
      await answeredByRetry(client);
      t.after(restoreUplink);
      await udp.world.bed.gateway.ip('link set w0 down');
      const during = await udp.client('ipv4');
      for (let count = 0; count < 10; count++) {
        await client.send(to, 'lost');
        await during.send(to, 'lost');
        await delay(100);
      }
      await restoreUplink();
      await client.take(Infinity, 0);

      await Promise.all([client, during].map(answeredByRetry));
      await tcpWorks();
    });

    test('while a firewall of the gateway forbids to send nothing ends, and then flows go on', async () => {
      const { gateway } = udp.world.bed;
      const client = await udp.client('ipv4');
      await answeredByRetry(client);
      const earlier = (await udp.dropped(redir))['unsent'] ?? 0;
      const table = `table inet forbids {
      chain output {
        type filter hook output priority filter;
        udp dport ${serverPort} drop
      }
    }`;
      await gateway.run('nft', ['-f', '-'], { input: table }); // sendmmsg(): EPERM
      const during = await udp.client('ipv4');
      for (const one of [client, during]) {
        for (let count = 0; count < 5; count++) await one.send(to, 'lost');
      }
      await client.hearsNothing();
      await gateway.run('nft', ['delete', 'table', 'inet', 'forbids']);

      await Promise.all([client, during].map(answeredByRetry));
      assert.equal((await udp.dropped(redir))['unsent'], earlier + 10);
    });
  });

  for (const [method, password] of [
    ['aes-256-gcm', 'correct horse'],
    ['2022-blake3-aes-256-gcm', psk],
    ['2022-blake3-chacha20-poly1305', psk],
  ] as const) {
    test(`${method}: a server that was killed and started anew answers the same client within one retry`, async (t) => {
      const config = { method, password };
      t.after(() => udp.reset());
      const { server } = await startRelay({ config });
      const client = await udp.client('ipv4');
      const earlier = await answeredByRetry(client);
      server.kill('SIGKILL');
      await server.exited;
      await client.send(to, 'lost');
      await client.hearsNothing();

      await udp.startServer({ config });
      assert.notEqual(await answeredByRetry(client), earlier, 'the old server cannot have answered');
      await client.ask(to, 'and again');
    });
  }

  test('with two servers each session keeps the one it began with, and both get some', async (t) => {
    t.after(() => udp.reset());
    const server = [`${addresses.internet.ipv4}:${serverPort}`, `${addresses.internet.ipv4}:${otherPort}`];
    const seconds = await udp.startServer({ config: { server_port: otherPort } });
    await startRelay({ redir: { config: { server } } });
    const clients = await Promise.all(Array.from({ length: 8 }, () => udp.client('ipv4')));
    const seen = await Promise.all(clients.map((client) => client.ask(to, 'who am I')));
    for (let round = 0; round < 5; round++) {
      for (const [i, client] of clients.entries()) assert.equal(await client.ask(to, 'and now'), seen[i]);
    }
    await udp.world.stop(seconds);
    const left: number[] = [];
    for (const [i, client] of clients.entries()) {
      await client.send(to, 'one server less');
      if ((await client.take(1, 200)).length > 0) left.push(i);
    }
    assert.ok(left.length > 0 && left.length < 8, `${left.length} of 8 sessions were with the first server`);
  });

  test('a dead one of two servers is left out of new sessions once the host has said so', async (t) => {
    t.after(() => udp.reset());
    const server = [`${addresses.internet.ipv4}:${otherPort}`, `${addresses.internet.ipv4}:${serverPort}`];
    await startRelay({ redir: { config: { server } } });
    for (let count = 0; count < 2; count++) await answeredByNewSession();
    for (let count = 0; count < 8; count++) {
      const client = await udp.client('ipv4');
      await client.ask(to, 'who am I', retryMs);
    }
  });

  /** As a resolver that takes a new port for its retry. */
  async function answeredByNewSession(): Promise<void> {
    for (const _ of ['first', 'again']) {
      const client = await udp.client('ipv4');
      await client.send(to, 'who am I');
      if ((await client.take(1, retryMs)).length > 0) return;
    }
    assert.fail('neither of two new sessions was answered');
  }
});

/** How a client asks that tries twice. */
async function answeredByRetry(client: UdpSocket): Promise<string> {
  for (const _ of ['first', 'again']) {
    await client.send(to, 'who am I');
    const [datagram] = await client.take(1, retryMs);
    if (datagram !== undefined) return datagram.data.toString();
  }
  return assert.fail('no answer, nor to a retry');
}
