import assert from 'node:assert/strict';
import { test } from 'node:test';
import { listenUdp } from '../../src/linux/datagram.js';
import { close } from '../../src/linux/libc.js';
import { openDescriptors } from '../../src/linux/rlimit.js';
import { Endpoint, SockaddrBlock } from '../../src/linux/sockaddr.js';
import { writeAddress } from '../../src/protocol/address.js';
import { localEndpoint } from '../../src/linux/socket.js';
import { ReplySockets } from '../../src/relay/reply-sockets.js';
import type { Scenario } from '../helpers/relay-rig.js';
import { PacketServer, UdpRig } from '../helpers/udp-rig.js';

// Answers in others' names need root. The names are of 198.18.0.0/15 (RFC 2544); all stays on loopback.
const skip = process.getuid!() === 0 ? false : 'IP_TRANSPARENT and raw sockets need root';
const edition2022 = '2022-blake3-aes-128-gcm';

function remote(number: number, port = 8053): Endpoint {
  return Endpoint.parse(`198.18.${number >> 8}.${number & 255}`, port)!;
}

for (const method of ['aes-128-gcm', edition2022]) {
  test(`${method}: answers come from whomever the server names, by sockets that are kept`, { skip }, () => {
    const rig = new UdpRig({ method });
    const server = rig.packetServer();
    const redir = rig.startRedir([server.endpoint]);
    const client = rig.peer();
    server.answersAs = [remote(1), remote(2), remote(1, 9053)];
    rig.run(
      (function* (): Scenario {
        client.say(redir, 'one');
        yield () => client.got.length === 3;
        const sources = client.got.map(({ from }) => from).toSorted();
        assert.deepEqual(sources, ['198.18.0.1:8053', '198.18.0.1:9053', '198.18.0.2:8053']);
        assert.equal(server.got[0]!.to, redir.toString());
        const opened = openDescriptors();
        for (let i = 0; i < 20; i++) client.say(redir, '');
        yield () => client.got.length === 63;
        assert.equal(openDescriptors(), opened);
        assert.ok(
          server.got.every(({ from }) => from.equals(server.got[0]!.from)),
          'another port',
        );
      })(),
    );
  });

  test(
    `${method}: where a service here owns the port, the raw socket answers, and the service keeps its own`,
    { skip },
    () => {
      const rig = new UdpRig({ method });
      const server = rig.packetServer();
      const redir = rig.startRedir([server.endpoint]);
      const client = rig.peer();
      const service = rig.peer('0.0.0.0');
      const { port } = service.endpoint;
      server.answersAs = [remote(1, port)];
      const text = 'x'.repeat(1501);
      rig.run(
        (function* (): Scenario {
          client.say(redir, text);
          yield () => client.got.length === 1;
          assert.deepEqual(client.got[0], { text, from: `198.18.0.1:${port}` });
          client.say(Endpoint.parse('127.0.0.1', port)!, 'to the service');
          yield () => service.got.length === 1;
        })(),
      );
    },
  );

  test(`${method}: a service may still bind the port of a remote that has answered`, { skip }, () => {
    const rig = new UdpRig({ method });
    const server = rig.packetServer();
    const redir = rig.startRedir([server.endpoint]);
    const client = rig.peer();
    const wireguard = 51820;
    server.answersAs = [remote(1, wireguard)];
    rig.run(
      (function* (): Scenario {
        client.say(redir, 'handshake');
        yield () => client.got.length === 1;
        assert.equal(client.got[0]!.from, `198.18.0.1:${wireguard}`);
        close(listenUdp(Endpoint.parse('0.0.0.0', wireguard)!)); // without SO_REUSEADDR, as the kernel's WireGuard
      })(),
    );
  });

  test(`${method}: a session that was silent for the timeout is forgotten`, { skip }, () => {
    const rig = new UdpRig({ method, timeoutMs: 300 });
    const server = rig.packetServer();
    const redir = rig.startRedir([server.endpoint]);
    const client = rig.peer();
    server.silent = true;
    rig.run(
      (function* (): Scenario {
        const before = openDescriptors();
        client.say(redir, 'one');
        yield () => server.got.length === 1;
        assert.equal(openDescriptors(), before + 1);
        yield () => openDescriptors() === before;
        client.say(redir, 'two');
        yield () => server.got.length === 2;
      })(),
    );
  });

  test(
    `${method}: at the cap the session that was silent for longest makes room, and the new one is served`,
    { skip },
    () => {
      const rig = new UdpRig({ method, maxSessions: 2 });
      const server = rig.packetServer();
      const redir = rig.startRedir([server.endpoint]);
      server.answersAs = [remote(1)];
      const clients = Array.from({ length: 10 }, () => rig.peer());
      rig.run(
        (function* (): Scenario {
          for (const client of clients) client.say(redir, 'at once'); // all of them in one batch
          yield () => server.got.length === 10;
          assert.equal(new Set(server.got.map(({ from }) => from.port)).size, 10);
          yield () => clients[8]!.got.length === 1 && clients[9]!.got.length === 1;
          clients[9]!.say(redir, 'again');
          yield () => server.got.length === 11;
          assert.ok(server.got[10]!.from.equals(server.got[9]!.from));
        })(),
      );
    },
  );

  test(`${method}: more remotes than reply sockets: all are heard, with no socket for each`, { skip }, () => {
    const rig = new UdpRig({ method });
    const server = rig.packetServer();
    const redir = rig.startRedir([server.endpoint], 4);
    const client = rig.peer();
    server.answersAs = Array.from({ length: 30 }, (_, i) => remote(i + 1));
    rig.run(
      (function* (): Scenario {
        const before = openDescriptors();
        client.say(redir, 'one');
        yield () => client.got.length === 30;
        assert.equal(new Set(client.got.map(({ from }) => from)).size, 30);
        assert.equal(openDescriptors(), before + 1 + 4); // the session and the replies; the raw socket is there from the start
      })(),
    );
  });

  test(
    `${method}: garbage, flipped bits and repetitions of answers are dropped and counted`,
    { skip },
    () => {
      const rig = new UdpRig({ method });
      const server = rig.packetServer();
      const redir = rig.startRedir([server.endpoint]);
      const client = rig.peer();
      server.answersAs = [remote(1)];
      const { counters } = rig.udp;
      rig.run(
        (function* (): Scenario {
          server.mangle = (packet) => packet.subarray(0, 10);
          client.say(redir, 'a');
          yield () => counters.of('short') === 1;
          server.mangle = (packet) => {
            packet[packet.length - 3]! ^= 8;
            return packet;
          };
          client.say(redir, 'b');
          yield () => counters.of('forged') === 1;
          server.mangle = (packet) => packet;
          client.say(redir, 'c');
          yield () => client.got.length === 1;
          assert.equal(client.texts, 'c');
        })(),
      );
    },
  );
}

test('2022: an answer that comes twice is heard once', { skip }, () => {
  const rig = new UdpRig({ method: edition2022 });
  const server = rig.packetServer();
  const redir = rig.startRedir([server.endpoint]);
  const client = rig.peer();
  server.answersAs = [remote(1)];
  let first: Buffer | undefined;
  server.mangle = (packet) => (first ??= Buffer.from(packet));
  rig.run(
    (function* (): Scenario {
      client.say(redir, 'a');
      yield () => client.got.length === 1;
      client.say(redir, 'b');
      yield () => rig.udp.counters.of('repeated') === 1;
      assert.equal(client.texts, 'a');
    })(),
  );
});

test(
  'a server that names a remote of the other family, or by name, is not believed; a mapped one is IPv4',
  { skip },
  () => {
    const rig = new UdpRig();
    const server = rig.packetServer();
    const redir = rig.startRedir([server.endpoint]);
    const client = rig.peer();
    const mapped = Buffer.from([4, ...Buffer.alloc(10), 0xff, 0xff, 198, 18, 9, 9, 0, 53]);
    server.answersAs = [
      Endpoint.parse('2606:4700::1111', 53)!,
      writeAddress({ host: 'dns.example', port: 53 }),
      mapped,
    ];
    rig.run(
      (function* (): Scenario {
        client.say(redir, 'a');
        yield () => client.got.length === 1 && rig.udp.counters.of('misaddressed') === 2;
        assert.equal(client.got[0]!.from, '198.18.9.9:53');
      })(),
    );
  },
);

test(
  'new sessions avoid a server that refuses; the old ones stay, and are answered when it is back',
  { skip },
  () => {
    const rig = new UdpRig();
    const bad = rig.packetServer();
    const good = rig.packetServer();
    const redir = rig.startRedir([bad.endpoint, good.endpoint]);
    for (const server of [bad, good]) server.answersAs = [remote(1)];
    const [old, ...others] = Array.from({ length: 6 }, () => rig.peer());
    rig.run(
      (function* (): Scenario {
        old!.say(redir, 'first');
        yield () => old!.got.length === 1;
        assert.equal(bad.got.length, 1);
        bad.close();
        old!.say(redir, 'lost');
        yield () => rig.lines.some((line) => line.includes(`udp: server ${bad.endpoint}: ECONNREFUSED`));
        for (const client of others) client.say(redir, 'new');
        yield () => others.every((client) => client.got.length === 1);
        assert.equal(good.got.length, 5);
        const back = new PacketServer(rig, bad.endpoint.port);
        back.answersAs = [remote(1)];
        old!.say(redir, 'again');
        yield () => old!.got.length === 2;
        assert.equal(back.got.length, 1);
      })(),
    );
  },
);

test('new sessions avoid a server that TCP cannot reach, while there is another', { skip }, () => {
  const rig = new UdpRig();
  const servers = [rig.packetServer(), rig.packetServer()];
  const redir = rig.startRedir(servers.map(({ endpoint }) => endpoint));
  for (const server of servers) server.answersAs = [remote(1)];
  const clients = Array.from({ length: 6 }, () => rig.peer());
  rig.tcpUpstreams.failed(servers[0]!.endpoint, rig.reactor.nowMs);
  rig.run(
    (function* (): Scenario {
      for (const client of clients) client.say(redir, 'new');
      yield () => clients.every((client) => client.got.length === 1);
      assert.deepEqual(
        servers.map(({ got }) => got.length),
        [0, 6],
      );
    })(),
  );
});

test('a server that answers none of several sessions, though they go on asking, is avoided', { skip }, () => {
  const rig = new UdpRig();
  const servers = [rig.packetServer(), rig.packetServer()];
  const redir = rig.startRedir(servers.map(({ endpoint }) => endpoint));
  const [mute, other] = servers as [PacketServer, PacketServer];
  mute.silent = true;
  other.answersAs = [remote(1)];
  const clients = Array.from({ length: 6 }, () => rig.peer());
  rig.run(
    (function* (): Scenario {
      for (const client of clients) client.say(redir, 'new');
      yield () => other.got.length === 3 && mute.got.length === 3;
      const againMs = performance.now() + 3100;
      yield () => performance.now() > againMs;
      for (const client of clients) client.say(redir, 'again');
      yield () => rig.lines.some((line) => line.includes(`udp: server ${mute.endpoint}: no answers`));
      const later = Array.from({ length: 4 }, () => rig.peer());
      for (const client of later) client.say(redir, 'later');
      yield () => later.every((client) => client.got.length === 1);
      assert.equal(mute.got.length, 6);
    })(),
  );
});

test('without any server address a datagram is counted, and a later one is served', { skip }, () => {
  const rig = new UdpRig();
  const redir = rig.startRedir([]);
  const server = rig.packetServer();
  const client = rig.peer();
  server.answersAs = [remote(1)];
  rig.run(
    (function* (): Scenario {
      client.say(redir, 'early');
      yield () => rig.udp.counters.of('unreachable') === 1;
      rig.upstreams.set([server.endpoint]);
      client.say(redir, 'late');
      yield () => client.got.length === 1;
    })(),
  );
});

test('our own packet to a server, brought back by rules, is refused and told of', { skip }, () => {
  const rig = new UdpRig();
  const redir = rig.startRedir([]);
  rig.upstreams.set([redir]); // what is sent to the redir's address goes to the server's
  const client = rig.peer();
  rig.run(
    (function* (): Scenario {
      client.say(redir, 'again');
      yield () => rig.udp.counters.of('no-destination') === 1;
      assert.ok(rig.lines.some((line) => line.includes('came back: let marked traffic out first')));
    })(),
  );
});

test('a datagram to the listener itself is refused with a line that names TPROXY', { skip }, () => {
  const rig = new UdpRig();
  const server = rig.packetServer();
  const redir = rig.startRedir([server.endpoint], 10, true);
  const client = rig.peer();
  rig.run(
    (function* (): Scenario {
      client.say(redir, 'direct');
      yield () => rig.udp.counters.of('no-destination') === 1;
      assert.ok(rig.lines.some((line) => line.includes('needs a TPROXY rule')));
      assert.equal(server.got.length, 0);
    })(),
  );
});

test('a packet that does not fit into --mtu is told of, and goes', { skip }, () => {
  const rig = new UdpRig({ mtu: 1000 });
  const server = rig.packetServer();
  const redir = rig.startRedir([server.endpoint]);
  const client = rig.peer();
  const overhead = 16 + 7 + 16 + 28; // salt, address, tag; IPv4 and UDP headers
  rig.run(
    (function* (): Scenario {
      client.say(redir, 'x'.repeat(1000 - overhead));
      yield () => server.got.length === 1;
      assert.ok(!rig.lines.some((line) => line.includes('--mtu')));
      client.say(redir, 'x'.repeat(1001 - overhead));
      yield () => server.got.length === 2;
      assert.ok(rig.lines.some((line) => line.includes('a packet of 1001 bytes') && line.includes('--mtu')));
    })(),
  );
});

test('a reply socket that nobody used for 60 s is closed, and not earlier', { skip }, () => {
  const rig = new UdpRig();
  const replies = new ReplySockets(rig.udp, 4, true);
  const block = new SockaddrBlock();
  block.write(remote(1));
  const socket = replies.find(block.contents, 0)!;
  assert.equal(replies.find(block.contents, 0), socket);
  const isOpen = (): boolean => localEndpoint(socket.fd) !== undefined;
  assert.ok(isOpen());
  replies.expire(rig.reactor.nowMs + 59_990);
  assert.ok(isOpen());
  replies.expire(rig.reactor.nowMs + 60_001); // these have fractions
  assert.ok(!isOpen());
  assert.notEqual(replies.find(block.contents, 0), socket);
  replies.expire(Infinity);
});
