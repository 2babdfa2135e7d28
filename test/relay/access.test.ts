import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findMethod } from '../../src/crypto/methods.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { acceptTcp, closeReset, listenTcp, localEndpoint } from '../../src/linux/socket.js';
import { Access, accessOf, ServerEndpoint } from '../../src/relay/access.js';
import { Redir } from '../../src/relay/redir.js';
import { Upstreams } from '../../src/relay/upstream.js';
import { decodePlainly } from '../helpers/plain-decoder.js';
import { Peer, Rig, socketPair } from '../helpers/relay-rig.js';

const elsewhere = Endpoint.parse('127.0.0.80', 443)!;
const place = Endpoint.parse('192.0.2.1', 8388)!;

function otherAccess(rig: Rig, methodName: string, fill: number): Access {
  const method = findMethod(methodName)!;
  const key = new Uint8Array(method.keySize).fill(fill);
  return new Access({ ...rig.context, method, credentials: { key, identityKeys: [], users: [] } });
}

test('each connection is encrypted as its server wants it, also when it is the second choice', () => {
  const rig = new Rig();
  const listeners = [0, 1].map(() => listenTcp(Endpoint.parse('127.0.0.1', 0)!));
  const refusing = listenTcp(Endpoint.parse('127.0.0.1', 0)!);
  const dead = localEndpoint(refusing)!;
  closeReset(refusing);
  const other = otherAccess(rig, 'chacha20-ietf-poly1305', 9);
  const upstreams = new Upstreams();
  upstreams.set([
    localEndpoint(listeners[0]!)!,
    new ServerEndpoint(dead, otherAccess(rig, 'aes-256-gcm', 7)),
    new ServerEndpoint(localEndpoint(listeners[1]!)!, other),
  ]);
  const redir = new Redir(rig.context, upstreams, () => elsewhere, 1234, 0);
  const served = [0, 0];
  rig.run(
    (function* () {
      for (let i = 0; i < 6; i++) {
        const { accepted, connected } = socketPair();
        rig.context.limits.enter();
        redir.onConnection(accepted, Endpoint.parse('192.0.2.9', 1)!);
        const client = new Peer(rig.reactor, connected);
        client.say(Buffer.from('hello'));
        let [fd, which] = [-1, -1];
        yield () => {
          which = listeners.findIndex((listener) => (fd = acceptTcp(listener)) >= 0);
          return which >= 0;
        };
        const server = new Peer(rig.reactor, fd);
        yield () => server.size > 0;
        const { method, credentials } = which === 0 ? rig.context : other.context;
        const { payloads } = decodePlainly(method, credentials.key, server.bytes);
        assert.equal(Buffer.concat(payloads).subarray(-5).toString(), 'hello');
        served[which]!++;
        client.reset();
        yield () => server.ended === 'ECONNRESET' && rig.context.limits.open === 0;
      }
    })(),
  );
  assert.ok(served[0]! > 0 && served[1]! > 0, served.join());
  for (const listener of listeners) closeReset(listener);
});

test('two users of one server are two servers, whose health is told apart and kept', () => {
  const rig = new Rig();
  const common = new Access(rig.context);
  const [anna, ben] = [1, 2].map((fill) => otherAccess(rig, 'aes-256-gcm', fill)) as [Access, Access];
  const upstreams = new Upstreams();
  const list = (): Endpoint[] => [
    place,
    ...[anna, ben].map((access) => new ServerEndpoint(Endpoint.parse('192.0.2.1', 8388)!, access)),
  ];
  upstreams.set(list());
  const accesses = (nowMs: number): Access[] =>
    upstreams.order(nowMs).map((server) => accessOf(server, common));
  assert.deepEqual(new Set(accesses(0)), new Set([common, anna, ben]));
  upstreams.failed(
    upstreams.order(0).find((server) => accessOf(server, common) === anna)!,
    0,
  );
  upstreams.set(list());
  for (let i = 0; i < 3; i++) assert.equal(accesses(1)[2], anna);
  assert.ok(upstreams.has(place));
});

test('a server that carries no TCP is not thought ill of for that', () => {
  assert.equal(new Upstreams().isHealthy(place, 0), true);
});
