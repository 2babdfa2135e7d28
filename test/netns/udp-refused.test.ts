// UDP that cannot be relayed is refused at the start, or dropped with a word (R19), and never half done in silence.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { addresses } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { unprivileged } from '../helpers/packages.js';
import { unguardListener, unloadRules } from '../helpers/rules.js';
import { UdpSocket } from '../helpers/udp-sockets.js';
import { remotes, UdpWorld } from '../helpers/udp-world.js';
import { cpuSeconds, families, redirPort, serverPort, whySkipped } from '../helpers/world.js';

describe('udp: refused', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  before(async () => {
    udp = await UdpWorld.create('refused');
  });
  after(() => udp?.destroy());
  afterEach(() => udp.reset());

  for (const mode of ['tcp_and_udp', 'udp_only']) {
    test(`${mode}: ss-redir does not start when another program has its UDP port`, async () => {
      await UdpSocket.open(udp.router, { host: '::', port: redirPort, dualStack: true });
      const redir = await udp.startRedir({ config: { mode }, waitForListen: false });
      await endsWith1(redir, /UDP/, /in use/, new RegExp(`${redirPort}`));
    });
  }

  test('ss-server does not start when another program has its UDP port', async () => {
    await UdpSocket.open(udp.world.origin, { host: '0.0.0.0', port: serverPort });
    const server = await udp.startServer({ waitForListen: false });
    await endsWith1(server, /UDP/, /in use/, new RegExp(`${serverPort}`));
  });

  test('ss-redir does not start without the capability that TPROXY takes', async () => {
    const redir = await udp.startRedir({
      config: { mode: 'udp_only', outbound_fwmark: 0 }, // a mark would need it, too
      prefix: unprivileged,
      waitForListen: false,
    });
    await endsWith1(redir, /UDP/, /IP_TRANSPARENT/, /CAP_NET_(ADMIN|RAW)/);
  });

  test('what a nat rule redirects is dropped, counted, and said once to need TPROXY', async (t) => {
    const { redir } = await udp.startRelay();
    const { gateway } = udp.world.bed;
    await unloadRules(gateway);
    await gateway.run('nft', ['-f', '-'], {
      input: `table inet wrong {
        chain prerouting {
          type nat hook prerouting priority dstnat;
          meta l4proto udp iifname "l0" redirect to :${redirPort}
        }
      }`,
    });
    t.after(() => gateway.run('nft', ['delete', 'table', 'inet', 'wrong']));
    for (const [i, family] of families.entries()) {
      const far = { host: remotes[family].asked, port: 4000 };
      const remote = await udp.remote(far, 'echo');
      const client = await udp.client(family);
      await client.flood(far, 50);
      await client.hearsNothing();
      assert.equal(await remote.count(), 0);
      await udp.hasDropped(redir, { 'no-destination': 50 * (i + 1) });
    }
    const lines = redir.output.split('\n').filter((line) => line.includes('TPROXY rule'));
    assert.equal(lines.length, 1, lines.join('\n'));
    assert.match(lines[0]!, new RegExp(addresses.client.ipv4));
  });

  test('datagrams to the listener itself are dropped, and make no loop', async () => {
    const { redir } = await udp.startRelay();
    await unguardListener(udp.world.bed.gateway);
    const client = await udp.client('ipv4');
    await client.flood({ host: addresses.gatewayLan.ipv4, port: redirPort }, 20);
    await client.hearsNothing();
    await udp.hasDropped(redir, { 'no-destination': 20 });
    const cpu = await cpuSeconds(redir.pid, () => delay(500));
    assert.ok(cpu <= 0.05, `${cpu} s of CPU in 0.5 s`);
  });

  test('rules for UDP without ss-redir let nothing go on in clear', async (t) => {
    const { gateway } = udp.world.bed;
    await unloadRules(gateway);
    await udp.allAreHeard(true);
    t.after(() => udp.allAreHeard(false));
    const far = { host: remotes.ipv4.asked, port: 4000 };
    const remote = await udp.remote(far, 'silent');
    const client = await udp.client('ipv4');
    await client.flood(far, 5);
    assert.equal((await remote.take(5)).length, 5, 'the way in clear does not work, so nothing is tested');
    await udp.loadRules();
    await client.flood(far, 5).catch(() => {}); // refused
    await remote.hearsNothing();
  });
});

async function endsWith1(service: Service, ...reasons: RegExp[]): Promise<void> {
  const exit = await Promise.race([service.exited, delay(5000, undefined, { ref: false })]);
  assert.equal(exit?.code, 1, exit ? service.output : 'goes on');
  for (const reason of reasons) assert.match(service.output, reason);
}
