import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SyscallError } from '../../src/errors.js';
import { descriptorLimit, openDescriptors, setDescriptorLimit } from '../../src/linux/rlimit.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { acceptTcp, closeReset, listenTcp, localEndpoint } from '../../src/linux/socket.js';
import { Redir, type TargetOf } from '../../src/relay/redir.js';
import { Upstreams } from '../../src/relay/upstream.js';
import { decodePlainly } from '../helpers/plain-decoder.js';
import { Peer, Rig, socketPair } from '../helpers/relay-rig.js';

const client = Endpoint.parse('192.0.2.9', 1)!;
const elsewhere = Endpoint.parse('127.0.0.80', 443)!;
const listenPort = 1234;

function redirRig(target: TargetOf, servers: Endpoint[]): Rig & { redir: Redir } {
  const rig = new Rig();
  const upstreams = new Upstreams();
  upstreams.set(servers);
  return Object.assign(rig, { redir: new Redir(rig.context, upstreams, target, listenPort, 0) });
}

function connect(rig: Rig & { redir: Redir }, from = client): Peer {
  const { accepted, connected } = socketPair();
  rig.context.limits.enter();
  rig.redir.onConnection(accepted, from);
  return new Peer(rig.reactor, connected);
}

const refusals: [string, TargetOf, RegExp, Endpoint?][] = [
  ['without a target', () => undefined, /^refused 192\.0\.2\.9:1: it was not sent here by a REDIRECT rule/],
  [
    'to our own port on an address of this host',
    () => Endpoint.parse('127.0.0.1', listenPort),
    /^refused 192\.0\.2\.9:1: it connected to our own port at 127\.0\.0\.1:1234/,
  ],
  [
    'of our own to the server',
    () => Endpoint.parse('127.0.0.99', 8388),
    /^refused 127\.0\.0\.1:1: our own connection to the server 127\.0\.0\.99:8388 came back/,
    Endpoint.parse('127.0.0.1', 1)!,
  ],
  [
    'whose target cannot be asked for',
    () => {
      throw new SyscallError('getsockopt(SOL_IP, SO_ORIGINAL_DST)', 92, 'ENOPROTOOPT');
    },
    /^refused 192\.0\.2\.9:1: its target is not known: getsockopt\(SOL_IP, SO_ORIGINAL_DST\): ENOPROTOOPT$/,
  ],
];

for (const [name, target, line, from] of refusals) {
  test(`a connection ${name} gets RST and a line that says why`, () => {
    const rig = redirRig(target, [Endpoint.parse('127.0.0.99', 8388)!]);
    rig.run(
      (function* () {
        const peer = connect(rig, from);
        yield () => peer.ended !== undefined;
        assert.equal(peer.ended, 'ECONNRESET');
        assert.match(rig.lines.join('\n'), line);
        assert.equal(rig.context.limits.open, 0);
      })(),
    );
  });
}

test('with no descriptor left for the loop check a connection is refused, and nothing else breaks', () => {
  const rig = redirRig(() => Endpoint.parse('10.1.2.3', listenPort), [elsewhere]);
  const { accepted, connected } = socketPair();
  rig.context.limits.enter();
  const limit = descriptorLimit();
  setDescriptorLimit({ soft: 3, hard: limit.hard });
  try {
    rig.redir.onConnection(accepted, client);
  } finally {
    setDescriptorLimit(limit);
  }
  assert.equal(rig.lines[0], 'refused 192.0.2.9:1: its target is not known: socket(SOCK_DGRAM): EMFILE');
  assert.equal(rig.context.limits.open, 0);
  closeReset(connected);
});

test('with no server known yet a client gets RST at once', () => {
  const rig = redirRig(() => elsewhere, []);
  rig.run(
    (function* () {
      const peer = connect(rig);
      yield () => peer.ended !== undefined;
      assert.equal(peer.ended, 'ECONNRESET');
      assert.equal(
        rig.lines[0],
        '192.0.2.9:1 -> 127.0.0.80:443: no server could be reached: no address to connect to',
      );
    })(),
  );
});

test('a client whose first server refuses is served by the second, and the log says it once', () => {
  const before = openDescriptors();
  const listener = listenTcp(Endpoint.parse('127.0.0.1', 0)!);
  const refusing = listenTcp(Endpoint.parse('127.0.0.1', 0)!);
  const dead = localEndpoint(refusing)!;
  closeReset(refusing);
  const rig = redirRig(() => elsewhere, [dead, localEndpoint(listener)!]);
  rig.run(
    (function* () {
      for (let i = 0; i < 3; i++) {
        const peer = connect(rig);
        peer.say(Buffer.from('hello'));
        let fd = -1;
        yield () => (fd = acceptTcp(listener)) >= 0;
        const server = new Peer(rig.reactor, fd);
        yield () => server.size > 0;
        const { method, credentials } = rig.context;
        const { payloads } = decodePlainly(method, credentials.key, server.bytes);
        assert.equal(
          Buffer.concat(payloads).toString('hex'),
          `017f00005001bb${Buffer.from('hello').toString('hex')}`,
        );
        peer.reset();
        yield () => server.ended === 'ECONNRESET' && rig.context.limits.open === 0;
      }
    })(),
  );
  const news = rig.lines.filter((line) => line === `server ${dead}: ECONNREFUSED`);
  assert.equal(news.length, 1);
  closeReset(listener);
  assert.ok(openDescriptors() <= before, 'no descriptor stayed');
});
