import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { applyDescriptorLimit, type Budget, shareDescriptors } from '../../src/control/descriptors.js';
import { Dns } from '../../src/control/dns.js';
import { Supervisor } from '../../src/control/supervisor.js';
import { createSaltMemory } from '../../src/crypto/replay.js';
import { descriptorLimit, openDescriptors, setDescriptorLimit } from '../../src/linux/rlimit.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { listenTcp, localEndpoint } from '../../src/linux/socket.js';
import type { Plan } from '../../src/relay/plan.js';

const dns = new Dns({ nameservers: [], ipv6First: false, maxQueries: 1 });

function planOf(fd: number): Omit<Plan, 'control'> {
  return {
    command: 'ss-server',
    listeners: [{ fd, port: localEndpoint(fd)?.port ?? 1, tos: 0 }],
    tproxy: false,
    methodName: 'aes-128-gcm',
    credentials: { key: new Uint8Array(16), identityKeys: [], users: [] },
    userMemory: undefined,
    udp: undefined,
    salts: { edition: 'aead', memory: createSaltMemory(new Uint8Array(8), 1000) },
    timeouts: { connectMs: 1000, halfOpenMs: 60_000, idleMs: 60_000 },
    maxConnections: 100,
    verbose: false,
    noDelay: false,
    fastOpen: false,
    mptcp: false,
    mark: 0,
    outgoingSendBuffer: 0,
    outgoingReceiveBuffer: 0,
    bind4: undefined,
    bind6: undefined,
    interface: undefined,
  };
}

function makeSupervisor(): { supervisor: Supervisor; fatal: Error[] } {
  const fatal: Error[] = [];
  const supervisor = new Supervisor(dns, { onLog: () => {}, onFatal: (error) => fatal.push(error) });
  return { supervisor, fatal };
}

test('workers start, serve, and end within 400 ms while a client floods them; that is no failure', async () => {
  const { supervisor, fatal } = makeSupervisor();
  const listener = listenTcp(Endpoint.parse('127.0.0.1', 0)!);
  await supervisor.start([planOf(listener), planOf(listener)]);
  const flood = connect(localEndpoint(listener)!.port, '127.0.0.1');
  flood.on('error', () => {});
  await once(flood, 'connect');
  const bytes = Buffer.alloc(1 << 20, 'x');
  const timer = setInterval(() => flood.write(bytes), 1);
  await delay(200);
  const startMs = performance.now();
  await supervisor.stop();
  const tookMs = performance.now() - startMs;
  clearInterval(timer);
  flood.destroy();
  assert.ok(tookMs < 400, `${tookMs} ms`);
  await delay(50);
  assert.deepEqual(fatal, []);
});

test('a worker that breaks at its start is fatal, and the error says what broke', async () => {
  const { supervisor, fatal } = makeSupervisor();
  void supervisor.start([planOf(999_999)]);
  const untilMs = performance.now() + 3000;
  while (fatal.length === 0 && performance.now() < untilMs) await delay(10);
  assert.match(fatal[0]!.message, /^epoll_ctl\(1, 999999\): EBADF$/);
});

test('a worker that ends by itself is fatal', async () => {
  const { supervisor, fatal } = makeSupervisor();
  const listener = listenTcp(Endpoint.parse('127.0.0.1', 0)!);
  await supervisor.start([planOf(listener)]);
  const [plane] = (supervisor as unknown as { planes: { worker: import('node:worker_threads').Worker }[] })
    .planes;
  await plane!.worker.terminate();
  await delay(20);
  assert.match(fatal[0]!.message, /^a worker ended with status 1$/);
  supervisor.setServers([{ address: '192.0.2.1', port: 1 }]); // to a dead worker: nothing happens
});

test('-n lowers the limit; the connections that fit follow from it, with a warning', () => {
  const before = descriptorLimit();
  const warnings: string[] = [];
  try {
    applyDescriptorLimit(200, (text) => warnings.push(text));
    assert.equal(descriptorLimit().soft, 200);
    const fitting = Math.floor((200 - openDescriptors() - 24 - 8) / 2);
    const share = (maxConnections: number, udp = false): Budget =>
      shareDescriptors({ command: 'ss-redir', tcp: true, udp, workers: 1, maxConnections }, (text) =>
        warnings.push(text),
      );
    assert.equal(share(10).maxConnections, 10);
    assert.equal(warnings.length, 0);
    assert.equal(share(5000).maxConnections, fitting);
    assert.match(warnings[0]!, /connections fit in the limit of 200 descriptors, fewer than 5000/);
    const { maxConnections, maxSessions, maxReplySockets } = share(5000, true);
    assert.ok(maxSessions > 20 && maxReplySockets > 2 && maxConnections > 20);
    assert.ok(2 * maxConnections + maxSessions + maxReplySockets <= 200 - openDescriptors() - 24 - 8);
  } finally {
    setDescriptorLimit(before);
  }
});
