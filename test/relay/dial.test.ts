import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EPOLLOUT } from '../../src/linux/epoll.js';
import { descriptorLimit, openDescriptors, setDescriptorLimit } from '../../src/linux/rlimit.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import {
  acceptTcp,
  closeReset,
  connectTcp,
  listenTcp,
  localEndpoint,
  remoteEndpoint,
} from '../../src/linux/socket.js';
import { listen } from '../../src/linux/libc.js';
import { Dial, type DialEvents } from '../../src/relay/dial.js';
import { plainConnect, Rig } from '../helpers/relay-rig.js';

class Outcome implements DialEvents {
  fd: number | undefined;
  endpoint: Endpoint | undefined;
  failed: string[] = [];
  allFailed: string | undefined;

  onConnected(fd: number, endpoint: Endpoint): void {
    this.fd = fd;
    this.endpoint = endpoint;
  }

  onAttemptFailed(endpoint: Endpoint, reason: string): void {
    this.failed.push(`${endpoint.port} ${reason}`);
  }

  onAllFailed(reason: string): void {
    this.allFailed = reason;
  }
}

function listening(): { fd: number; endpoint: Endpoint } {
  const fd = listenTcp(Endpoint.parse('127.0.0.1', 0)!);
  return { fd, endpoint: localEndpoint(fd)! };
}

function refusing(): Endpoint {
  const { fd, endpoint } = listening();
  closeReset(fd);
  return endpoint;
}

/** A listener whose queue is full: further SYNs are dropped, so whoever connects hears nothing. */
function silent(): { fds: number[]; endpoint: Endpoint } {
  const { fd, endpoint } = listening();
  listen(fd, 0);
  const fds = [fd, connectTcp(endpoint, plainConnect), connectTcp(endpoint, plainConnect)];
  return { fds, endpoint };
}

function dial(rig: Rig, endpoints: Endpoint[]): Outcome {
  const outcome = new Outcome();
  new Dial(rig.context, endpoints, rig.context.connectOptions, outcome).start();
  return outcome;
}

test('a refusal moves on to the next endpoint at once, and the socket comes connected and in the reactor', () => {
  const before = openDescriptors();
  const rig = new Rig();
  const { fd, endpoint } = listening();
  const first = refusing();
  rig.run(
    (function* () {
      const startMs = performance.now();
      const outcome = dial(rig, [first, endpoint]);
      yield () => outcome.fd !== undefined;
      assert.ok(performance.now() - startMs < 300);
      assert.deepEqual(outcome.failed, [`${first.port} ECONNREFUSED`]);
      assert.ok(outcome.endpoint!.equals(endpoint));
      assert.ok(remoteEndpoint(outcome.fd!)!.equals(endpoint));
      rig.reactor.adopt(outcome.fd!, { onEvents() {} }, EPOLLOUT); // throws where it is not in the reactor
      rig.reactor.forget(outcome.fd!);
      closeReset(outcome.fd!);
      closeReset(acceptTcp(fd));
      closeReset(fd);
      assert.equal(rig.reactor.timers.size, 1, 'no deadline stayed behind');
    })(),
  );
  assert.ok(openDescriptors() <= before);
});

test('silence moves on after three seconds', () => {
  const rig = new Rig();
  const quiet = silent();
  const { fd, endpoint } = listening();
  rig.run(
    (function* () {
      const startMs = performance.now();
      const outcome = dial(rig, [quiet.endpoint, endpoint]);
      yield () => outcome.fd !== undefined;
      const tookMs = performance.now() - startMs;
      assert.ok(tookMs > 2900 && tookMs < 3500, `${tookMs} ms`);
      assert.deepEqual(outcome.failed, [`${quiet.endpoint.port} no answer`]);
      for (const open of [...quiet.fds, fd, outcome.fd!]) closeReset(open);
    })(),
  );
});

test('all attempts together end at connectMs', () => {
  const rig = new Rig({ timeouts: { connectMs: 400 } });
  const quiet = silent();
  rig.run(
    (function* () {
      const startMs = performance.now();
      const outcome = dial(rig, [quiet.endpoint]);
      yield () => outcome.allFailed !== undefined;
      const tookMs = performance.now() - startMs;
      assert.ok(tookMs >= 390 && tookMs < 600, `${tookMs} ms`);
      assert.equal(outcome.allFailed, 'no answer');
      assert.equal(rig.reactor.timers.size, 1);
      for (const open of quiet.fds) closeReset(open);
    })(),
  );
});

test('a silent first endpoint leaves time for the second, however short connectMs is', () => {
  const rig = new Rig({ timeouts: { connectMs: 1000 } });
  const quiet = silent();
  const { fd, endpoint } = listening();
  rig.run(
    (function* () {
      const outcome = dial(rig, [quiet.endpoint, endpoint]);
      yield () => outcome.fd !== undefined || outcome.allFailed !== undefined;
      assert.ok(outcome.endpoint?.equals(endpoint), `all failed: ${outcome.allFailed}`);
      for (const open of [...quiet.fds, fd, outcome.fd!]) closeReset(open);
    })(),
  );
});

test('what fails at once is told with the call that failed, and leaves no descriptor', () => {
  const before = openDescriptors();
  const rig = new Rig();
  const outcome = dial(rig, [Endpoint.parse('255.255.255.255', 80)!, Endpoint.parse('224.0.0.1', 80)!]);
  assert.match(outcome.allFailed!, /^connect\(224\.0\.0\.1:80\): ENETUNREACH$/);
  assert.equal(outcome.failed.length, 2);
  const limit = descriptorLimit();
  setDescriptorLimit({ soft: 3, hard: limit.hard });
  const starved = dial(rig, [Endpoint.parse('127.0.0.1', 1)!]);
  setDescriptorLimit(limit);
  assert.equal(starved.allFailed, 'socket(): EMFILE');
  assert.equal(rig.reactor.timers.size, 0);
  assert.ok(openDescriptors() <= before + 1, 'only the reactor of this test');
});

test('a dial that is cancelled calls nobody back', () => {
  const rig = new Rig({ timeouts: { connectMs: 200 } });
  const quiet = silent();
  rig.run(
    (function* () {
      const outcome = new Outcome();
      const cancelled = new Dial(rig.context, [quiet.endpoint], rig.context.connectOptions, outcome);
      cancelled.start();
      cancelled.cancel();
      cancelled.cancel();
      yield* rig.turnsWithin(400, () => {});
      assert.deepEqual([outcome.fd, outcome.failed, outcome.allFailed], [undefined, [], undefined]);
      for (const open of quiet.fds) closeReset(open);
    })(),
  );
});
