// Who is proxied and who is direct: real traffic through what ss-nft loads, and ss-redir and ss-server of this project.
// A file for each mode runs these tests.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { whyNoNetns } from '../../src/demo/netns.js';
import {
  PolicyBed,
  direct,
  direct2,
  mac2,
  other4,
  proxied,
  refused,
  target4,
  target6,
} from './policy-bed.js';

export function describePolicies(mode: 'redirect' | 'tproxy'): void {
  const flags = mode === 'tproxy' ? ['-T'] : [];
  describe(`policies, TCP by ${mode}`, { skip: whyNoNetns() }, () => {
    let bed: PolicyBed;
    const up = (...args: string[]) => bed.up('-u', ...flags, ...args);

    before(async () => {
      bed = await PolicyBed.create(`ssr-pol-${mode}`);
      await bed.startRedir(...flags);
    });
    after(() => bed.destroy());

    it('one LAN is proxied, TCP and UDP, IPv4 and IPv6; the other is not until it is named', async () => {
      await up();
      assert.equal(await bed.tcp(bed.client, target4), proxied(target4));
      assert.equal(await bed.tcp(bed.client, target6), proxied(target6));
      assert.equal(await bed.udp(bed.client, target4), proxied(target4));
      assert.equal(await bed.tcp(bed.client2, target4), direct2);
      assert.equal(await bed.udp(bed.client2, target4), direct2);
      await up('-I', 'l1');
      assert.equal(await bed.tcp(bed.client2, target4), proxied(target4));
      assert.equal(await bed.udp(bed.client2, target4), proxied(target4));
    });

    it('the two LANs and the router reach each other directly', async () => {
      await up('-I', 'l1', '-o');
      assert.equal(await bed.tcp(bed.client, '192.168.51.2', 80), refused); // by the host itself: nobody listens there
      assert.equal(await bed.tcp(bed.client, '192.168.50.1', 80), refused);
    });

    it('a client is bypassed by address, by network and by MAC', async () => {
      for (const client of [
        '192.168.51.2',
        '192.168.51.0/24',
        mac2,
        '192.168.51.9 10.0.0.0/8 ' + mac2.toUpperCase(),
      ]) {
        await up('-I', 'l1', '--src-bypass', client);
        assert.equal(await bed.tcp(bed.client2, target4), direct2, client);
        assert.equal(await bed.udp(bed.client2, target4), direct2, client);
      }
      assert.equal(await bed.tcp(bed.client, target4), proxied(target4));
    });

    it('with a default of bypass only listed clients are proxied, as with w of ss-nat', async () => {
      for (const args of [
        ['--src-default', 'bypass', '--src-forward', mac2],
        ['--src-default', 'bypass', '--src-checkdst', '192.168.51.2'],
        ['-a', 'w192.168.51.0/24'],
      ]) {
        await up('-I', 'l1', ...args);
        assert.equal(await bed.tcp(bed.client, target4), direct);
        assert.equal(await bed.udp(bed.client, target4), direct);
        assert.equal(await bed.tcp(bed.client2, target4), proxied(target4), args.join(' '));
      }
    });

    it('destinations: the more specific network decides, and a client of src-forward goes past the list', async () => {
      const file = bed.nft.file(
        'direct.txt',
        '# direct\n93.184.0.0/16\n8.0.0.0/8\r\n8.8.0.0/16  # overlaps\n2606::/16\n',
      );
      await up('-I', 'l1', '-i', file, '-w', '8.8.8.8/32', '--src-forward', '192.168.51.2');
      assert.equal(await bed.tcp(bed.client, target4), direct);
      assert.equal(await bed.udp(bed.client, target4), direct);
      assert.equal(await bed.tcp(bed.client, target6), 'peer fd50::2');
      assert.equal(await bed.tcp(bed.client, other4), proxied(other4));
      assert.equal(await bed.tcp(bed.client2, target4), proxied(target4));
    });

    it('with a default of bypass only listed destinations are proxied, reserved ones too', async () => {
      await bed.testbed.internet.ip('addr replace 10.9.9.9/32 dev lo');
      await up('--dst-default', 'bypass', '-w', '8.8.8.0/24 10.9.0.0/16');
      assert.equal(await bed.tcp(bed.client, target4), direct);
      assert.equal(await bed.tcp(bed.client, other4), proxied(other4));
      assert.equal(await bed.tcp(bed.client, '10.9.9.9'), proxied('10.9.9.9'));
      await up();
      assert.equal(await bed.tcp(bed.client, '10.9.9.9'), direct);
      await up('--no-reserved');
      assert.equal(await bed.tcp(bed.client, '10.9.9.9'), proxied('10.9.9.9'));
    });

    it('only listed ports are proxied, of the LAN and of the router', async () => {
      await up('-o', '--tcp-ports', '22,443', '--udp-ports', '53');
      assert.equal(await bed.tcp(bed.client, target4, 80), direct);
      assert.equal(await bed.tcp(bed.client, target4, 443), proxied(target4));
      assert.equal(await bed.tcp(bed.router, target4, 80), 'peer 45.9.9.1');
      assert.equal(await bed.tcp(bed.router, target4, 22), proxied(target4));
      assert.equal(await bed.udp(bed.client, target4, 9), direct);
      assert.equal(await bed.udp(bed.client, target4, 53), proxied(target4));
    });

    it("the router's own traffic is proxied by choice, but for marks and users", async () => {
      await up();
      assert.equal(await bed.tcp(bed.router, target4), 'peer 45.9.9.1');
      await up('-o');
      assert.equal(await bed.tcp(bed.router, target4), proxied(target4));
      assert.equal(await bed.udp(bed.router, target4), proxied(target4));
      await up('-o', '--local-bypass-user', '0');
      assert.equal(await bed.tcp(bed.router, target4), 'peer 45.9.9.1');
      assert.equal(await bed.udp(bed.router, target4), 'peer 45.9.9.1');
      await bed.router.run('nft', [
        'table inet other { chain c { type filter hook output priority raw; meta skuid 0 meta mark set meta mark | 0x40; }; }',
      ]);
      await up('-o', '--local-bypass-mark', '0x40/0xf0');
      assert.equal(await bed.tcp(bed.router, target4), 'peer 45.9.9.1');
      await bed.router.run('nft', ['delete table inet other']);
      await up('-o', '-b', target4);
      assert.equal(await bed.tcp(bed.router, target4), 'peer 45.9.9.1');
      assert.equal(await bed.tcp(bed.router, other4), proxied(other4));
    });

    it('QUIC is refused at once where it would be proxied, and other UDP is not', async () => {
      for (const udp of [true, false]) {
        await bed.up(...(udp ? ['-u'] : []), ...flags, '--reject-quic', '-o', '-b', other4);
        assert.equal(await bed.udp(bed.client, target4, 443), refused);
        assert.equal(await bed.udp(bed.router, target4, 443), refused);
        assert.equal(await bed.udp(bed.client, other4, 443), direct);
        assert.equal(await bed.udp(bed.client, target4, 9), udp ? proxied(target4) : direct);
        assert.equal(await bed.tcp(bed.client, target4, 443), proxied(target4));
      }
    });

    it('DNS is hijacked to an address, but not that of the resolver, nor of a bypassed client', async () => {
      await bed.testbed.internet.ip('addr replace 1.2.3.4/32 dev lo');
      await up('-I', 'l1', '--dns-hijack', other4, '--src-bypass', '192.168.51.2');
      // Direct, since it is the administrator's own resolver; nobody listens on 1.2.3.5.
      assert.equal(await bed.udp(bed.client, '1.2.3.5', 53), direct);
      assert.equal(await bed.tcp(bed.client, '1.2.3.5', 53), direct);
      assert.equal(await bed.udp(bed.client, target4, 9), proxied(target4));
      assert.equal(await bed.tcp(bed.client, target6, 53), proxied(target6)); // no target for IPv6
      assert.equal(await bed.udp(bed.client2, target4, 53), direct2);
      await up();
      assert.equal(await bed.udp(bed.client, target4, 53), proxied(target4));
    });

    it('an extra match in the language of nft', async () => {
      await up('--match-tcp', 'tcp dport != 22', '--match-udp', 'udp dport 53');
      assert.equal(await bed.tcp(bed.client, target4, 22), direct);
      assert.equal(await bed.tcp(bed.client, target4, 80), proxied(target4));
      assert.equal(await bed.udp(bed.client, target4, 9), direct);
      assert.equal(await bed.udp(bed.client, target4, 53), proxied(target4));
    });

    it('a port forward and a docker-like bridge work on beside the rules', async () => {
      await bed.router.run('nft', ['-f', '-'], {
        input: `table ip nat {
          chain PREROUTING { type nat hook prerouting priority dstnat; policy accept
            iifname "w0" tcp dport 2222 dnat to 192.168.51.2:80
          }
        }`,
      });
      const nas = await bed.client2.start(process.execPath, [
        '-e',
        `require('net').createServer((s) => s.end('nas')).listen(80)`,
      ]);
      await nas.waitForListen(80, 10_000);
      await up('-I', 'l1', '-o');
      assert.equal(await bed.tcp(bed.testbed.internet, '45.9.9.1', 2222), 'nas');
      assert.equal(await bed.tcp(bed.client, '192.168.51.2', 80), 'nas'); // from one LAN to the other
      await nas.stop('SIGKILL');
      await bed.router.run('nft', ['delete table ip nat']);
    });
  });
}
