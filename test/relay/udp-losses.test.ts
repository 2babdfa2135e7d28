// What comes faster than it is read: the kernel throws it away when the socket's buffer is full, and that is counted to the last
// datagram. The reactor stands still while a scenario says something, so that a burst fills a buffer.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Endpoint } from '../../src/linux/sockaddr.js';
import type { Scenario } from '../helpers/relay-rig.js';
import { type UdpPeer, UdpRig } from '../helpers/udp-rig.js';

const skip = process.getuid!() === 0 ? false : 'IP_TRANSPARENT needs root';
const large = 'x'.repeat(30_000);
/** 30 MB, and the largest buffers that we ask for have 8 MiB, as the kernel counts. */
const burst = 1000;

test("what overflows ss-server's listener is counted, and told of", () => {
  const rig = new UdpRig({ method: 'aes-256-gcm' });
  const server = rig.startServer();
  const far = rig.peer();
  far.onGot = () => got++;
  let got = 0;
  const client = rig.client(server);
  rig.run(
    (function* (): Scenario {
      for (let i = 0; i < burst; i++) client.sayRaw(Buffer.from(large)); // forged: nothing goes on to the target
      const { counters } = rig.udp;
      yield () => counters.of('socket-full') > 0;
      assert.equal(counters.of('socket-full') + counters.of('forged'), burst);
      assert.ok(
        rig.lines.some((line) => /\d+ datagrams lost: the buffer of the listener was full/.test(line)),
      );
      assert.match(counters.describe()!, /^forged \d+, socket-full \d+$/);
      const before = counters.of('socket-full');
      client.say(far.endpoint, 'x');
      yield () => got === 1;
      const againMs = performance.now() + 1500;
      yield () => performance.now() > againMs;
      assert.equal(counters.of('socket-full'), before, 'counted twice');
    })(),
  );
});

test("what overflows the socket of an ss-server's session is counted, while it lives or at its end", () => {
  const rig = new UdpRig({ method: 'aes-256-gcm', maxSessions: 1 });
  const server = rig.startServer();
  const far = rig.peer();
  const [client, other] = [rig.client(server), rig.client(server)];
  rig.run(
    (function* (): Scenario {
      const { counters } = rig.udp;
      client.say(far.endpoint, 'hello');
      yield () => far.got.length === 1;
      sayOften(far, outlet(far.got[0]!.from));
      yield () => counters.of('socket-full') > 0;
      other.say(far.endpoint, 'hello');
      yield () => far.got.length === 2;
      const before = counters.of('socket-full');
      sayOften(far, outlet(far.got[1]!.from));
      client.say(far.endpoint, 'its session ends the other one');
      yield () => far.got.length === 3;
      assert.ok(counters.of('socket-full') > before);
    })(),
  );
});

test("what overflows ss-redir's listener, or the socket of its session, is counted", { skip }, () => {
  const rig = new UdpRig({ method: 'aes-256-gcm' });
  const server = rig.packetServer();
  const redir = rig.startRedir([server.endpoint]);
  server.silent = true;
  const client = rig.peer();
  rig.run(
    (function* (): Scenario {
      const { counters } = rig.udp;
      client.say(redir, 'hello');
      yield () => server.got.length === 1;
      const many = 12_000; // these go on to the server, which takes no larger ones
      for (let i = 0; i < many; i++) client.say(redir, 'x'.repeat(1000));
      yield () => counters.of('socket-full') > 0;
      assert.ok(counters.of('socket-full') < many - 1000, `${counters.of('socket-full')} of ${many}`);
      const before = counters.of('socket-full');
      for (let i = 0; i < burst; i++) server.sayRaw(server.got[0]!.from, Buffer.from(large));
      yield () => counters.of('socket-full') > before;
      assert.equal(counters.of('socket-full') - before + counters.of('forged'), burst);
    })(),
  );
});

function outlet(from: string): Endpoint {
  const [host, port] = from.split(':') as [string, string];
  return Endpoint.parse(host, Number(port))!;
}

function sayOften(peer: UdpPeer, to: Endpoint): void {
  for (let i = 0; i < burst; i++) peer.say(to, large);
}
