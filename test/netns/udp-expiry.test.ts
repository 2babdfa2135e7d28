// With the shortest timeout there is, in namespaces: a session that is silent so long is forgotten at both ends, and one that goes
// on talking keeps its port. A minute, in which others have the processors.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { remotes, UdpWorld } from '../helpers/udp-world.js';
import { whySkipped } from '../helpers/world.js';

const timeoutSeconds = 60;
const far = { host: remotes.ipv4.asked, port: 4000 };

describe('UDP sessions', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  before(async () => {
    udp = await UdpWorld.create('expiry');
  });
  after(() => udp?.destroy());

  test('the silent one is forgotten after its timeout, the other keeps its port', async () => {
    const { redir, server } = await udp.startRelay({ config: { udp_timeout: timeoutSeconds } });
    const remote = await udp.remote(far, 'mirror');
    const silent = await udp.client('ipv4');
    const talking = await udp.client('ipv4');
    const before60 = [await silent.ask(far, 'one'), await talking.ask(far, 'two')];
    const [idle, both] = [redir.usage().fds, server.usage().fds];
    for (let waited = 0; waited < timeoutSeconds + 5; waited += 5) {
      await delay(5000);
      assert.equal(await talking.ask(far, 'still here'), before60[1]);
    }
    assert.equal(redir.usage().fds, idle - 1);
    assert.equal(server.usage().fds, both - 1);
    assert.notEqual(await silent.ask(far, 'again'), before60[0]);
    await remote.close();
  });
});
