import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openDescriptors } from '../../src/linux/rlimit.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { writeAddress } from '../../src/protocol/address.js';
import { UserCounters, createUserMemory } from '../../src/relay/user-counters.js';
import type { Scenario } from '../helpers/relay-rig.js';
import { UdpRig } from '../helpers/udp-rig.js';

/** `192.0.2.1:80` */
function endpointOf(text: string): Endpoint {
  const [host, port] = text.split(':') as [string, string];
  return Endpoint.parse(host, Number(port))!;
}

const aead = 'aes-256-gcm';
const edition2022 = '2022-blake3-aes-256-gcm';

for (const method of [aead, edition2022]) {
  test(`${method}: a client's datagrams come from one port, whomever they go to, and anybody may answer`, () => {
    const rig = new UdpRig({ method });
    const server = rig.startServer();
    const [one, two, stranger] = [rig.peer(), rig.peer('127.0.0.2'), rig.peer('127.0.0.3')];
    const client = rig.client(server);
    rig.run(
      (function* (): Scenario {
        client.say(one.endpoint, 'a');
        client.say(two.endpoint, 'b');
        client.say(one.endpoint, 'c');
        client.say(one.endpoint, '');
        yield () => one.got.length === 3 && two.got.length === 1;
        assert.equal(one.texts, 'a c ');
        assert.equal(one.got[0]!.from, two.got[0]!.from);
        stranger.say(endpointOf(one.got[0]!.from), 'hello');
        yield () => client.got.length === 1;
        assert.deepEqual(client.got[0], { text: 'hello', from: stranger.endpoint.toString() });
      })(),
    );
  });

  test(`${method}: a session that was silent for the timeout is forgotten, traffic in either direction keeps it`, () => {
    const rig = new UdpRig({ method, timeoutMs: 700 });
    const server = rig.startServer();
    const far = rig.peer();
    const client = rig.client(server);
    rig.run(
      (function* (): Scenario {
        const before = openDescriptors();
        client.say(far.endpoint, 'first');
        yield () => far.got.length === 1;
        const session = endpointOf(far.got[0]!.from);
        const endMs = performance.now() + 2500;
        let nextMs = 0;
        yield () => {
          if (performance.now() > nextMs) {
            far.say(session, 'still here');
            nextMs = performance.now() + 300;
          }
          return performance.now() > endMs;
        };
        client.say(far.endpoint, 'second');
        yield () => far.got.length === 2;
        assert.equal(far.got[1]!.from, far.got[0]!.from, 'answers alone did not keep it');
        assert.equal(openDescriptors(), before + 1);
        yield () => openDescriptors() === before;
      })(),
    );
  });

  test(`${method}: at the cap the session that was silent for longest makes room, and the new one is served`, () => {
    const rig = new UdpRig({ method, maxSessions: 3 });
    const server = rig.startServer();
    const far = rig.peer();
    far.echoes = true;
    const clients = Array.from({ length: 5 }, () => rig.client(server));
    rig.run(
      (function* (): Scenario {
        const before = openDescriptors();
        for (const [i, client] of clients.entries()) {
          client.say(far.endpoint, `${i}`);
          yield () => client.got.length === 1;
        }
        assert.equal(openDescriptors(), before + 3);
        const port = far.got[4]!.from;
        clients[4]!.say(far.endpoint, 'again');
        yield () => far.got.length === 6;
        assert.equal(far.got[5]!.from, port);
        clients[0]!.say(far.endpoint, 'back');
        yield () => clients[0]!.got.length === 2;
        assert.equal(openDescriptors(), before + 3);
      })(),
    );
  });

  test(`${method}: a name is asked for once, what waits is bounded, and all goes on in order`, () => {
    const rig = new UdpRig({ method });
    const server = rig.startServer();
    const far = rig.peer();
    const client = rig.client(server);
    const name = writeAddress({ host: 'far.example', port: far.endpoint.port });
    rig.run(
      (function* (): Scenario {
        for (let i = 0; i < 20; i++) client.say(name, `${i}`);
        yield () => rig.udp.counters.of('overflow') === 4;
        assert.deepEqual(
          rig.asked.map(({ host }) => host),
          ['far.example'],
        );
        rig.context.names.answer(rig.asked[0]!.id, { addresses: ['127.0.0.1'] });
        yield () => far.got.length === 16;
        client.say(name, 'later');
        yield () => far.got.length === 17;
        assert.equal(far.texts, [...Array.from({ length: 16 }, (_, i) => i), 'later'].join(' '));
        assert.equal(rig.asked.length, 1);
      })(),
    );
  });

  test(`${method}: a name that does not resolve, a port 0 and a name that is none are counted, and end nothing`, () => {
    const rig = new UdpRig({ method });
    const server = rig.startServer();
    const far = rig.peer();
    const client = rig.client(server);
    rig.run(
      (function* (): Scenario {
        client.say(writeAddress({ host: 'nowhere.example', port: 9 }), 'x');
        yield () => rig.asked.length === 1;
        rig.context.names.answer(rig.asked[0]!.id, { failure: 'no such name' });
        yield () => rig.udp.counters.of('unreachable') === 1;
        client.say(writeAddress({ host: '127.0.0.1', port: 0 }), 'x');
        client.say(Buffer.from([3, 3, 0x61, 0, 0x62, 0, 9]), 'x'); // a NUL in the name
        yield () => rig.udp.counters.of('misaddressed') === 2;
        client.say(writeAddress({ host: `127.0.0.1`, port: far.endpoint.port }), 'alive');
        yield () => far.got.length === 1;
      })(),
    );
  });

  test(`${method}: garbage, a flipped bit and a replay are dropped and counted, and open no session`, () => {
    const rig = new UdpRig({ method });
    const server = rig.startServer();
    const far = rig.peer();
    const client = rig.client(server);
    rig.run(
      (function* (): Scenario {
        const before = openDescriptors();
        const packet = client.seal(far.endpoint, 'once');
        const flipped = Buffer.from(packet);
        flipped[packet.length - 1]! ^= 1;
        client.sayRaw(Buffer.from('short'));
        client.sayRaw(Buffer.alloc(500, 7));
        client.sayRaw(flipped);
        const { counters } = rig.udp;
        yield () => counters.of('short') === 1 && counters.of('forged') === 2;
        assert.equal(openDescriptors(), before);
        client.sayRaw(packet);
        yield () => far.got.length === 1;
        client.sayRaw(packet);
        client.sayRaw(packet);
        yield () => counters.of('repeated') === 2;
        client.say(far.endpoint, 'next');
        yield () => far.got.length === 2;
        assert.equal(far.texts, 'once next');
        assert.equal(counters.describe(), 'short 1, forged 2, repeated 2');
      })(),
    );
  });
}

test('of the addresses of a name one is taken that there is a way to', () => {
  const rig = new UdpRig({ method: aead });
  const server = rig.startServer();
  const far = rig.peer();
  const client = rig.client(server);
  rig.run(
    (function* (): Scenario {
      client.say(writeAddress({ host: 'far.example', port: far.endpoint.port }), 'x');
      yield () => rig.asked.length === 1;
      // An address of an interface that is not there has no route, with or without IPv6 on this host.
      rig.context.names.answer(rig.asked[0]!.id, { addresses: ['fe80::1%4094', '127.0.0.1'] });
      yield () => far.got.length === 1;
    })(),
  );
});

test('2022: answers follow a client to its new address, but not a replay from elsewhere', () => {
  const rig = new UdpRig({ method: edition2022 });
  const server = rig.startServer();
  const far = rig.peer();
  far.echoes = true;
  const client = rig.client(server);
  const thief = rig.client(server);
  rig.run(
    (function* (): Scenario {
      const packet = client.seal(far.endpoint, 'one');
      client.sayRaw(packet);
      yield () => client.got.length === 1;
      thief.sayRaw(packet);
      yield () => rig.udp.counters.of('repeated') === 1;
      const session = endpointOf(far.got[0]!.from);
      far.say(session, 'to the client');
      yield () => client.got.length === 2;
      client.move();
      client.say(far.endpoint, 'moved');
      yield () => client.got.length === 3;
      assert.equal(far.got[1]!.from, far.got[0]!.from);
      assert.equal(thief.got.length, 0);
    })(),
  );
});

test('2022: after the timeout a session goes on with its window: an old packet is still a replay', () => {
  const rig = new UdpRig({ method: edition2022, timeoutMs: 300 });
  const server = rig.startServer();
  const far = rig.peer();
  const client = rig.client(server);
  rig.run(
    (function* (): Scenario {
      const before = openDescriptors();
      const packet = client.seal(far.endpoint, 'one');
      client.sayRaw(packet);
      yield () => far.got.length === 1;
      yield () => openDescriptors() === before;
      client.sayRaw(packet);
      yield () => rig.udp.counters.of('repeated') === 1;
      client.say(far.endpoint, 'two');
      yield () => far.got.length === 2;
    })(),
  );
});

test('2022: users are told apart, and counted', () => {
  const keys = [1, 2, 3].map((fill) => new Uint8Array(32).fill(fill));
  const [identity, alice, bob] = keys as [Uint8Array, Uint8Array, Uint8Array];
  const users = [
    { name: 'alice', key: alice },
    { name: 'bob', key: bob },
  ];
  const memory = createUserMemory(2);
  const rig = new UdpRig({
    method: edition2022,
    credentials: { key: identity, identityKeys: [], users },
    userCounters: new UserCounters(memory),
  });
  const server = rig.startServer();
  const far = rig.peer();
  far.echoes = true;
  const client = rig.client(server, { key: bob, identityKeys: [identity], users: [] });
  const stranger = rig.client(server, {
    key: new Uint8Array(32).fill(9),
    identityKeys: [identity],
    users: [],
  });
  rig.run(
    (function* (): Scenario {
      client.say(far.endpoint, '12345');
      stranger.say(far.endpoint, 'x');
      yield () => client.got.length === 1 && rig.udp.counters.of('forged') === 1;
      assert.equal(client.texts, '12345');
      assert.deepEqual([...new Float64Array(memory)], [0, 0, 0, 1, 5, 5]);
    })(),
  );
});

test('2022: clients of one address that begin sessions without end are refused and told of, one of another is served', () => {
  const rig = new UdpRig({ method: edition2022, remembered: 20 });
  const server = rig.startServer('0.0.0.0');
  const far = rig.peer();
  const flood = Array.from({ length: 30 }, () => rig.client(Endpoint.parse('127.0.0.1', server.port)!));
  const other = rig.client(Endpoint.parse('127.0.0.1', server.port)!, undefined, '127.0.0.77');
  rig.run(
    (function* (): Scenario {
      for (const client of flood) client.say(far.endpoint, 'x');
      yield () => far.got.length === 16 && rig.udp.counters.of('no-room') === 14;
      other.say(far.endpoint, 'other');
      yield () => far.got.length === 17;
      assert.equal(far.got[16]!.text, 'other');
      assert.ok(rig.lines.some((line) => /127\.0\.0\.1:\d+: too many new sessions/.test(line)));
    })(),
  );
});

test('an answer leaves from the address that the client has sent to', () => {
  for (const [host, to] of [
    ['0.0.0.0', '127.0.0.9'],
    ['::', '127.0.0.9'],
    ['::', '::1'],
  ] as const) {
    const rig = new UdpRig({ method: aead });
    const { port } = rig.startServer(host);
    const far = rig.peer();
    far.echoes = true;
    const client = rig.client(Endpoint.parse(to, port)!); // its socket is connected: it hears nobody else
    rig.run(
      (function* (): Scenario {
        client.say(far.endpoint, 'hello');
        yield () => client.got.length === 1;
      })(),
    );
  }
});
