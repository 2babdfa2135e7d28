import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type EventHandler, Reactor } from '../../src/engine/reactor.js';
import { clearWakeup, createWakeup, EPOLLIN, EPOLLOUT, raiseWakeup } from '../../src/linux/epoll.js';
import { close } from '../../src/linux/libc.js';
import { openDescriptors } from '../../src/linux/rlimit.js';

/** Runs `reactor` for so many turns. */
function turns(count: number): () => boolean {
  return () => count-- === 0;
}

class Counter implements EventHandler {
  events: number[] = [];
  andThen: (() => void) | undefined;

  onEvents(events: number): void {
    this.events.push(events);
    this.andThen?.();
  }
}

test('a handler that closes another descriptor whose event is due in the same turn spares its handler that event', () => {
  const reactor = new Reactor();
  const fds = [createWakeup(), createWakeup()] as const;
  const counters = [new Counter(), new Counter()] as const;
  fds.forEach((fd, i) => {
    raiseWakeup(fd);
    reactor.add(fd, counters[i]!, EPOLLIN);
    counters[i]!.andThen = () => {
      reactor.forget(fds[1 - i]!);
      close(fds[1 - i]!);
      reactor.remove(fd);
    };
  });
  reactor.run(turns(2));
  assert.equal(counters[0].events.length + counters[1].events.length, 1);
  close(counters[0].events.length === 1 ? fds[0] : fds[1]);
});

test('a stale event never reaches the new handler of a descriptor number that was used again in the same turn', () => {
  const reactor = new Reactor();
  const fds = [createWakeup(), createWakeup()] as const;
  const fresh = new Counter();
  let reused = -1;
  let handled = 0;
  fds.forEach((fd, i) => {
    raiseWakeup(fd);
    reactor.add(
      fd,
      {
        onEvents() {
          if (++handled > 1) return;
          const other = fds[1 - i]!;
          reactor.forget(other);
          close(other);
          reused = createWakeup(); // the lowest free number, and never raised
          assert.equal(reused, other, 'the number is used again');
          reactor.add(reused, fresh, EPOLLIN);
          clearWakeup(fd);
        },
      },
      EPOLLIN,
    );
  });
  reactor.run(turns(2));
  assert.deepEqual([handled, fresh.events], [1, []]);
  for (const fd of new Set([...fds, reused])) close(fd);
});

test('a descriptor taken out and put in again gets the events of its new interest only', () => {
  const reactor = new Reactor();
  const fd = createWakeup();
  const counter = new Counter();
  reactor.add(fd, counter, EPOLLOUT);
  reactor.remove(fd);
  reactor.add(fd, counter, EPOLLIN);
  reactor.timers.set({ wheelBucket: -1, wheelIndex: 0, dueMs: () => 0, onDeadline: () => reactor.stop() });
  reactor.run(() => false);
  assert.deepEqual(counter.events, []);
  close(fd);
});

test('adopt hands a descriptor to another handler', () => {
  const reactor = new Reactor();
  const fd = createWakeup();
  const [first, second] = [new Counter(), new Counter()];
  raiseWakeup(fd);
  reactor.add(fd, first, EPOLLIN);
  reactor.adopt(fd, second, EPOLLIN | EPOLLOUT);
  reactor.run(turns(1));
  assert.deepEqual([first.events, second.events], [[], [EPOLLIN | EPOLLOUT]]);
  close(fd);
});

test('stop, called in a handler, ends the run after that turn', () => {
  const reactor = new Reactor();
  const fd = createWakeup();
  const counter = new Counter();
  counter.andThen = () => reactor.stop();
  raiseWakeup(fd);
  reactor.add(fd, counter, EPOLLIN);
  reactor.run(() => false);
  assert.equal(counter.events.length, 1);
  close(fd);
});

test('an idle reactor asks whether to stop at least twice a second', () => {
  const reactor = new Reactor();
  const startMs = performance.now();
  let asked = 0;
  reactor.run(() => {
    asked++;
    return performance.now() - startMs > 1100;
  });
  assert.ok(asked >= 3 && asked <= 6, `asked ${asked} times in 1.1 s`);
});

test('a run closes its epoll behind itself', () => {
  const before = openDescriptors();
  new Reactor().run(() => true);
  assert.equal(openDescriptors(), before);
});

test('an error of the kernel names the call and the descriptor', () => {
  const reactor = new Reactor();
  assert.throws(
    () => reactor.add(1_000_000, new Counter(), EPOLLIN),
    /^SyscallError: epoll_ctl\(1, 1000000\): EBADF$/,
  );
  reactor.run(() => true);
});

test("what is due runs after the events of its turn, with the turn's time", () => {
  const reactor = new Reactor();
  const order: string[] = [];
  const fd = createWakeup();
  const due = reactor.nowMs + 120;
  reactor.timers.set({
    wheelBucket: -1,
    wheelIndex: 0,
    dueMs: () => due,
    onDeadline(nowMs) {
      order.push('timer');
      assert.equal(nowMs, reactor.nowMs);
      assert.ok(nowMs >= due && nowMs < due + 100, `${nowMs - due} ms late`);
      reactor.stop();
    },
  });
  reactor.add(fd, { onEvents: () => order.push('event') && clearWakeup(fd) }, EPOLLIN);
  raiseWakeup(fd);
  reactor.run(() => false);
  assert.deepEqual(order, ['event', 'timer']);
  close(fd);
});
