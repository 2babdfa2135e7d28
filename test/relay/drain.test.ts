import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openDescriptors } from '../../src/linux/rlimit.js';
import { closeOrderly } from '../../src/linux/socket.js';
import { Drain } from '../../src/relay/drain.js';
import { patterned, Peer, quietTurns, Rig, socketPair } from '../helpers/relay-rig.js';

interface Drained {
  peer: Peer;
  closed: number;
}

function drain(rig: Rig, forMs: number): Drained {
  const { accepted, connected } = socketPair();
  const drained: Drained = { peer: new Peer(rig.reactor, connected), closed: 0 };
  new Drain(rig.context, accepted, rig.reactor.nowMs + forMs, closeOrderly, () => drained.closed++).start();
  return drained;
}

test('what a drained peer sends is taken and thrown away, and nothing is sent to it', () => {
  const rig = new Rig();
  rig.run(
    (function* () {
      const drained = drain(rig, 5000);
      drained.peer.say(patterned(8_000_000, 1));
      yield () => drained.peer.flushed;
      let turns = 0;
      yield* rig.turnsWithin(300, (count) => (turns = count));
      assert.ok(turns <= quietTurns, `${turns} turns`);
      assert.deepEqual([drained.peer.size, drained.peer.ended, drained.closed], [0, undefined, 0]);
      assert.equal(rig.context.blocks.leased, 0);
      drained.peer.close();
      yield () => drained.closed === 1;
    })(),
  );
});

test('a drained peer is closed at its deadline by FIN, not before', () => {
  const before = openDescriptors();
  const rig = new Rig();
  rig.run(
    (function* () {
      const startMs = rig.reactor.nowMs;
      const drained = drain(rig, 400);
      yield () => drained.closed === 1 && drained.peer.ended !== undefined;
      const tookMs = rig.reactor.nowMs - startMs;
      assert.ok(tookMs >= 400 && tookMs < 600, `${tookMs} ms`);
      assert.equal(drained.peer.ended, 'FIN');
      drained.peer.close();
    })(),
  );
  assert.equal(openDescriptors(), before);
});

for (const how of ['FIN', 'RST'] as const) {
  test(`a drained peer that sends ${how} is closed at once, once, and leaves no timer`, () => {
    const rig = new Rig();
    rig.run(
      (function* () {
        const drained = drain(rig, 300);
        if (how === 'FIN') drained.peer.finish();
        else drained.peer.reset();
        yield () => drained.closed === 1;
        if (how === 'FIN') yield () => drained.peer.ended === 'FIN';
        assert.equal(rig.reactor.timers.size, 1, 'the rig alone');
        yield* rig.turnsWithin(500, () => {});
        assert.equal(drained.closed, 1);
      })(),
    );
  });
}
