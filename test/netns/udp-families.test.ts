// Which listener serves which family (R16, R17), mapped addresses (R18), and a gateway without IPv6.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { addresses, internetAddresses } from '../../src/demo/netns.js';
import { findMethod } from '../../src/crypto/methods.js';
import { masterKeyFromPassword } from '../../src/crypto/keys.js';
import { open2017, packet2017 } from '../helpers/packet-peer.js';
import { UdpSocket } from '../helpers/udp-sockets.js';
import { remotes, UdpWorld } from '../helpers/udp-world.js';
import {
  families,
  originPorts,
  origins,
  password,
  serverPort,
  whySkipped,
  type Family,
} from '../helpers/world.js';

const port = 4000;
const method = findMethod('aes-256-gcm')!;
const key = masterKeyFromPassword(password, method.keySize);

describe('udp: families', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  before(async () => {
    udp = await UdpWorld.create('families');
  });
  after(() => udp?.destroy());

  async function answersUdp(family: Family): Promise<void> {
    const far = { host: remotes[family].asked, port };
    const remote = await udp.remote(far, 'echo');
    const client = await udp.client(family);
    for (const text of ['one', 'two'])
      assert.equal(await client.ask(far, text), `${text} from ${far.host} ${port}`);
    await remote.close();
  }

  async function answersTcp(family: Family): Promise<void> {
    const client = await udp.world.client.connect({ host: origins[family], port: originPorts.echo });
    await client.write('hello');
    assert.equal((await client.wait({ bytes: 5 }, 2000)).data.toString(), 'hello', family);
  }

  describe('one server', () => {
    before(() => udp.startServer({ config: { server: ['0.0.0.0', '::'] } }));
    after(() => udp.reset());

    for (const [address, served, args] of [
      ['::', families, []],
      ['::', families, ['--workers', '2']],
      ['0.0.0.0', ['ipv4'], []],
      ['127.0.0.1', ['ipv4'], []],
      ['::1', ['ipv6'], []],
    ] as const) {
      const name = [address, ...args].join(' ');
      test(`a listener on ${name} serves ${served.join(' and ')}, TCP and UDP`, async (t) => {
        const redir = await udp.startRedir({ config: { local_address: address }, args: [...args] });
        t.after(() => udp.world.stop(redir));
        for (const family of served) {
          await answersUdp(family);
          await answersTcp(family);
        }
      });
    }

    test('a server that is reached by IPv6 relays UDP of both families', async (t) => {
      const redir = await udp.startRedir({ config: { server: addresses.internet.ipv6 } });
      t.after(() => udp.world.stop(redir));
      for (const family of families) await answersUdp(family);
    });

    for (const [family, server] of [
      ['ipv4', internetAddresses.ipv4[1]],
      ['ipv6', internetAddresses.ipv6[0]],
    ] as const) {
      test(`${family}: a server on all addresses answers from the one that it was asked at`, async (t) => {
        const redir = await udp.startRedir({ config: { server } });
        t.after(() => udp.world.stop(redir));
        await answersUdp('ipv4');
      });
    }
  });

  test('without IPv6 in the gateway a listener on :: serves IPv4', async (t) => {
    const { gateway } = udp.world.bed;
    const set = (value: number) =>
      gateway.sysctl({
        'net.ipv6.conf.all.disable_ipv6': value,
        'net.ipv6.conf.default.disable_ipv6': value,
      });
    t.after(async () => {
      await udp.reset();
      await set(0);
      for (const words of [
        'addr replace fd50::1/64 dev l0 nodad',
        'addr replace 2a09:9::1/64 dev w0 nodad',
        '-6 route replace default via 2a09:9::2',
      ])
        await gateway.ip(words);
    });
    await set(1);
    const { redir } = await udp.startRelay();
    await answersUdp('ipv4');
    await answersTcp('ipv4');
    assert.ok(redir.running);
  });

  test('an IPv4 target is asked for as one, and an answer from its mapped address comes from it', async (t) => {
    t.after(() => udp.reset());
    const { asked } = remotes.ipv4;
    // In the place of ss-server: `ATYP 4 ::ffff:8.8.8.8`.
    const liar = await UdpSocket.open(udp.world.origin, { host: addresses.internet.ipv4, port: serverPort });
    await udp.startRedir();
    const client = await udp.client('ipv4');
    await client.send({ host: asked, port }, 'question');
    const request = await liar.next();
    const portBytes = Buffer.from([port >> 8, port & 0xff]);
    const ipv4Bytes = Buffer.from(asked.split('.').map(Number));
    const opened = open2017(method, key, request.data);
    assert.deepEqual(
      Buffer.from(opened),
      Buffer.concat([Buffer.from([1]), ipv4Bytes, portBytes, Buffer.from('question')]),
    );

    const mapped = Buffer.concat([Buffer.from('0400000000000000000000ffff', 'hex'), ipv4Bytes, portBytes]);
    const [host, from] = request.from.split(' ') as [string, string];
    const answer = packet2017(method, key, Buffer.concat([mapped, Buffer.from('answer')]));
    await liar.send({ host, port: Number(from) }, Buffer.from(answer));
    const { data, from: source } = await client.next();
    assert.deepEqual([data.toString(), source], ['answer', `${asked} ${port}`]);
  });
});
