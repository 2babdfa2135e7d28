// Every method, mode and address family, with Debian's shadowsocks-libev at one end and with ours at both.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  families,
  localPort,
  methods,
  modes,
  originPorts,
  origins,
  whySkipped,
  World,
  type Kind,
} from '../helpers/world.js';
import { addresses } from '../../src/demo/netns.js';

const MiB = 1 << 20;
const large = 64 * MiB;
const bannerLimitMs = 1500;
const small = 3 * MiB + 1; // many records, and one that is not full

const pairings: { redir: Kind; server: Kind }[] = [
  { redir: 'ours', server: 'debian' },
  { redir: 'debian', server: 'ours' },
  { redir: 'ours', server: 'ours' },
];

describe('pairings', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('pair');
  });
  after(() => world?.destroy());

  const carries = async (size: number, host: string, via?: { host: string; port: number }) => {
    const { failures, seconds } = await world.client.bulk({
      host,
      port: originPorts.transfer,
      ...(via && { via }),
      connections: 1,
      down: size,
      up: size,
    });
    assert.deepEqual(failures, {});
    return `${Math.round((2 * size) / MiB / seconds)} MiB/s`;
  };

  const speaksFirst = async (host: string) => {
    const client = await world.client.connect({ host, port: originPorts.banner });
    const { data, lifeMs } = await client.wait({ bytes: 1 });
    assert.match(data.toString(), /^220 /);
    assert.ok(lifeMs < bannerLimitMs, `banner after ${lifeMs} ms`);
    await client.destroy();
  };

  for (const method of methods) {
    for (const { redir, server } of pairings) {
      describe(`${method}: ${redir} ss-redir with ${server} ss-server`, () => {
        before(() => world.startServer(server, { config: { method } }));
        after(() => world.reset());

        for (const mode of modes) {
          for (const family of families) {
            // The long transfer once a method and pairing; the other ways in carry the same code from there on.
            const size = mode === 'redirect' && family === 'ipv4' ? large : small;
            const alsoBanner = size === large ? ', and a banner within 1.5 s' : ''; // R09, for each method
            test(`${mode} ${family}: ${Math.floor(size / MiB)} MiB each way at once, equal SHA-256${alsoBanner}`, async (t) => {
              const proxy = await world.startRedir(redir, mode, { config: { method } });
              t.after(() => world.stop(proxy));
              t.diagnostic(await carries(size, origins[family]));
              if (alsoBanner) await speaksFirst(origins[family]);
            });
          }
        }
      });
    }

    describe(`${method}: Debian's ss-local with our ss-server`, () => {
      before(async () => {
        await world.startServer('ours', { config: { method } });
        await world.startLocal('debian', { config: { method } });
      });
      after(() => world.reset());

      for (const family of families) {
        const size = family === 'ipv4' ? large : small;
        test(`${family}: ${Math.floor(size / MiB)} MiB each way at once, equal SHA-256`, async (t) => {
          t.diagnostic(
            await carries(size, origins[family], { host: addresses.gatewayLan.ipv4, port: localPort }),
          );
        });
      }
    });
  }
});
