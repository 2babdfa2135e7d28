// A mapping outlives silence (R21), however short a timeout was asked for.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { remotes, UdpWorld, type Relay } from '../helpers/udp-world.js';
import { families, whySkipped } from '../helpers/world.js';

const far = (family: 'ipv4' | 'ipv6') => ({ host: remotes[family].asked, port: 4000 });

describe('udp: mapping', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  let relay: Relay;
  before(async () => {
    udp = await UdpWorld.create('mapping');
    relay = await udp.startRelay({ config: { udp_timeout: 1 } });
    for (const family of families) await udp.remote(far(family), 'mirror');
  });
  after(() => udp?.destroy());

  test('a client that is silent for 1, 6 or 12 s is then seen at the same port, in spite of "udp_timeout": 1', async () => {
    await Promise.all(
      families.flatMap((family) =>
        [1, 6, 12].map(async (seconds) => {
          const client = await udp.client(family);
          const earlier = await client.ask(far(family), 'who am I');
          await delay(seconds * 1000);
          assert.equal(await client.ask(far(family), 'and now'), earlier, `${family}, ${seconds} s`);
        }),
      ),
    );
    for (const { output } of [relay.redir, relay.server])
      assert.match(output, /udp_timeout.*1 is below 60.*it is 60/);
  });
});
