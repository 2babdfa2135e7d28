import type { Netns } from '../../src/demo/netns.js';

export type Mode = 'redirect' | 'tproxy';

export async function loadRules(gateway: Netns, mode: Mode, port: number): Promise<void> {
  await unloadRules(gateway);
  const rules =
    mode === 'redirect'
      ? `table inet t {
  chain p { type nat hook prerouting priority dstnat; policy accept;
    fib daddr type local return
    iifname "l0" meta l4proto tcp redirect to :${port}
  }
}`
      : `table inet t {
  chain p { type filter hook prerouting priority mangle; policy accept;
    ct direction reply return
    fib daddr type local return
    iifname "l0" meta nfproto ipv4 meta l4proto tcp meta mark set 0x01000000 tproxy ip to 127.0.0.1:${port} accept
    iifname "l0" meta nfproto ipv6 meta l4proto tcp meta mark set 0x01000000 tproxy ip6 to [::1]:${port} accept
  }
}`;
  await gateway.run('nft', ['-f', '-'], { input: rules });
  if (mode !== 'tproxy') return;
  for (const family of ['-4', '-6']) {
    await gateway.ip(`${family} rule add fwmark 0x01000000/0x01000000 lookup 8388 priority 8388`);
    await gateway.ip(`${family} route add local default dev lo table 8388`);
  }
}

export async function unloadRules(gateway: Netns): Promise<void> {
  await gateway.run('nft', ['flush', 'ruleset']);
  for (const family of ['-4', '-6']) {
    await gateway.ip(`${family} rule del priority 8388`).catch(() => {});
    await gateway.ip(`${family} route flush table 8388`).catch(() => {});
  }
}
