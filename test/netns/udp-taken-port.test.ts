// A service of the router on the port from which a remote answers (R14): the answer arrives all the same, and the service
// goes on hearing its own clients.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { addresses } from '../../src/demo/netns.js';
import { payloadAt } from '../helpers/payload.js';
import { UdpSocket } from '../helpers/udp-sockets.js';
import type { BindUdp } from '../helpers/udp-bind.js';
import { remotes, UdpWorld } from '../helpers/udp-world.js';
import { families, whySkipped, type Family } from '../helpers/world.js';

const services: [name: string, bind: BindUdp, served: readonly Family[]][] = [
  ['0.0.0.0', { host: '0.0.0.0' }, ['ipv4']],
  ['[::]', { host: '::' }, ['ipv6']],
  ['[::] for both families', { host: '::', dualStack: true }, families],
];
const answerSizes = [0, 1, 1200, 1472, 1473, 4096, 9000, 65_000];

describe('udp: taken ports', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  before(async () => {
    udp = await UdpWorld.create('taken');
    await udp.startRelay();
  });
  after(() => udp?.destroy());

  let port = 53; // another one each time: sockets that answer in the name of a remote are kept

  /** Of the router, for the LAN. */
  const startService = (bind: BindUdp) => UdpSocket.open(udp.router, { ...bind, port, behaviour: 'local' });

  async function bothAnswer(family: Family): Promise<void> {
    const far = { host: remotes[family].asked, port };
    const near = { host: addresses.gatewayLan[family], port };
    const client = await udp.client(family);
    for (let round = 1; round <= 3; round++) {
      assert.equal(await client.ask(far, `far ${round}`), `far ${round} from ${far.host} ${port}`);
      // From the address it has on that link, whatever the service is bound to.
      const answer = await client.ask(near, `near ${round}`);
      assert.match(answer, new RegExp(`^local near ${round} from .* ${port}$`));
    }
    await client.close();
  }

  for (const [name, bind, served] of services) {
    for (const reuseAddress of [false, true]) {
      test(`a service on ${name} ${reuseAddress ? 'with' : 'without'} SO_REUSEADDR: both answer`, async (t) => {
        port++;
        const service = await startService({ ...bind, reuseAddress });
        t.after(() => service.close());
        for (const family of served) {
          await udp.remote({ host: remotes[family].asked, port }, 'echo');
          await bothAnswer(family);
        }
      });
    }
  }

  for (const family of families) {
    test(`${family}: answers of every size arrive whole past such a service`, async (t) => {
      port++;
      const service = await startService({ host: '::', dualStack: true });
      t.after(() => service.close());
      const far = { host: remotes[family].asked, port };
      await udp.remote(far, 'sized');
      const client = await udp.client(family);
      for (const size of answerSizes) {
        await client.send(far, String(size));
        const { data, from } = await client.next();
        assert.deepEqual([data.length, from], [size, `${far.host} ${port}`]);
        assert.ok(size === 0 || data.equals(payloadAt(0, size)), `${size} bytes differ`);
      }
    });
  }

  // A socket that answers in a remote's name holds its port; so on the ports of routers' services the raw socket answers.
  for (const [how, reuseAddress, on] of [
    ['with SO_REUSEADDR on any port', true, undefined],
    ["without SO_REUSEADDR on WireGuard's port", false, 51820],
  ] as const) {
    test(`a service ${how} can start and end while remotes answer from it`, async () => {
      port = on ?? port + 1;
      const far = { host: remotes.ipv4.asked, port };
      await udp.remote(far, 'echo');
      const client = await udp.client('ipv4');
      assert.equal(await client.ask(far, 'before'), `before from ${far.host} ${port}`);
      const service = await startService({ host: '0.0.0.0', reuseAddress });
      await bothAnswer('ipv4');
      await service.close();
      assert.equal(await client.ask(far, 'after'), `after from ${far.host} ${port}`);
    });
  }
});
