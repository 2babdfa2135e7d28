// What netfilter.test.ts runs inside a network namespace of its own; each function returns what it saw.
import { execFileSync } from 'node:child_process';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { recv, send as libcSend } from '../../src/linux/libc.js';
import { Block } from '../../src/linux/memory.js';
import * as sockets from '../../src/linux/socket.js';
import { acceptSoon, plainConnect } from '../helpers/relay-rig.js';

const targets = { ipv4: Endpoint.parse('192.0.2.7', 443)!, ipv6: Endpoint.parse('2001:db8::7', 443)! };
const port = 1234;

function shell(script: string): void {
  execFileSync('sh', ['-ec', script]);
}

function visit(listener: number, target: Endpoint): { fd: number; client: Endpoint; close(): void } {
  const connected = sockets.connectTcp(target, plainConnect);
  const fd = acceptSoon(listener);
  const client = sockets.acceptedPeer();
  return {
    fd,
    client,
    close() {
      sockets.closeReset(fd);
      sockets.closeReset(connected);
    },
  };
}

const routes =
  'ip link set lo up; ip addr add 198.51.100.1/32 dev lo; ip -6 addr add 2001:db8:1::1/128 dev lo nodad; ip route add default dev lo; ip -6 route add default dev lo';

/** Where connections through a REDIRECT rule were going, by listener and family. */
export function redirect(): unknown {
  shell(`${routes}; nft -f - <<E
table inet t {
 chain output {
  type nat hook output priority -100
  ip daddr 192.0.2.7 tcp dport 443 redirect to :${port}
  ip6 daddr 2001:db8::7 tcp dport 443 redirect to :${port}
 }
}
E`);
  const seen: Record<string, unknown> = {};
  for (const [host, families] of [
    ['::', ['ipv4', 'ipv6']],
    ['0.0.0.0', ['ipv4']],
  ] as const) {
    const listener = sockets.listenTcp(Endpoint.parse(host, port)!);
    for (const family of families) {
      const { fd, client, close } = visit(listener, targets[family]);
      seen[`${host} ${family}`] = String(sockets.originalDestination(fd, client.isIpv4));
      close();
    }
    const { fd, client, close } = visit(listener, Endpoint.parse('127.0.0.1', port)!);
    seen[`${host} direct`] = String(sockets.originalDestination(fd, client.isIpv4));
    close();
    sockets.closeReset(listener);
  }
  return seen;
}

/** A connection that connection tracking was told to leave alone. */
export function untracked(): unknown {
  shell(`${routes}; nft -f - <<E
table inet t {
 chain nat { type nat hook output priority -100; ip daddr 192.0.2.7 tcp dport 443 redirect to :${port}; }
 chain out { type filter hook output priority -300; tcp dport ${port} notrack; tcp sport ${port} notrack; }
 chain in { type filter hook prerouting priority -300; tcp dport ${port} notrack; tcp sport ${port} notrack; }
}
E`);
  const listener = sockets.listenTcp(Endpoint.parse('::', port)!);
  const seen = ['127.0.0.1', '::1'].map((host) => {
    const { fd, client, close } = visit(listener, Endpoint.parse(host, port)!);
    const found = String(sockets.originalDestination(fd, client.isIpv4));
    close();
    return found;
  });
  return seen;
}

/** Whose connections a transparent listener accepts, and what they think they talk to. */
export function tproxy(): unknown {
  shell(`${routes}; ip rule add fwmark 1 lookup 100; ip route add local default dev lo table 100
ip -6 rule add fwmark 1 lookup 100; ip -6 route add local default dev lo table 100
nft -f - <<E
table inet t {
 chain output { type route hook output priority -150; ip daddr 192.0.2.7 meta mark set 1; ip6 daddr 2001:db8::7 meta mark set 1; }
 chain prerouting {
  type filter hook prerouting priority -150
  meta mark 1 ip daddr 192.0.2.7 meta l4proto tcp tproxy ip to :${port}
  meta mark 1 ip6 daddr 2001:db8::7 meta l4proto tcp tproxy ip6 to :${port}
 }
}
E`);
  const seen: Record<string, unknown> = {};
  for (const [host, families] of [
    ['::', ['ipv4', 'ipv6']],
    ['0.0.0.0', ['ipv4']],
  ] as const) {
    const listener = sockets.listenTcp(Endpoint.parse(host, port)!, { transparent: true });
    for (const family of families) {
      const { fd, client, close } = visit(listener, targets[family]);
      seen[`${host} ${family}`] = [String(sockets.localEndpoint(fd)), client.isIpv4];
      close();
    }
    sockets.closeReset(listener);
  }
  return seen;
}

/** What a client with Fast Open does by net.ipv4.tcp_fastopen: whether the option stays on, and whether data arrives. */
export function fastOpen(): unknown {
  shell('ip link set lo up');
  const out = Block.allocate(16);
  out.bytes.write('early');
  return [0, 1, 3].map((setting) => {
    shell(`echo ${setting} > /proc/sys/net/ipv4/tcp_fastopen`);
    const listener = sockets.listenTcp(Endpoint.parse('127.0.0.1', 0)!, { fastOpenQueue: 5 });
    const options = { ...plainConnect, fastOpen: true };
    let arrived = '';
    for (let i = 0; i < 2; i++) {
      // The first connection brings the cookie that the second sends its data with.
      const connected = sockets.connectTcp(sockets.localEndpoint(listener)!, options);
      send(connected, out.at(0, 5));
      const fd = acceptSoon(listener);
      const to = Block.allocate(16);
      for (let got = 0; got <= 0;) got = recv(fd, to.at(0, 16), 16, 0);
      arrived += to.bytes.toString('latin1', 0, 5);
      sockets.closeReset(connected);
      sockets.closeReset(fd);
    }
    sockets.closeReset(listener);
    return [setting, options.fastOpen, arrived];
  });
}

function send(fd: number, from: number): void {
  for (let tries = 0; tries < 1000; tries++) if (libcSend(fd, from, 5, sockets.MSG_NOSIGNAL) === 5) return;
  throw new Error('the socket took no bytes');
}
