// A worker in a reactor that worker.test.ts ends in every way there is. `busy`: an event that never goes away.
import { parentPort, workerData } from 'node:worker_threads';
import { Reactor } from '../../src/engine/reactor.js';
import { runReactor, type WorkerControl } from '../../src/engine/worker.js';
import { createWakeup, EPOLLIN, raiseWakeup } from '../../src/linux/epoll.js';

const { control, busy } = workerData as { control: WorkerControl; busy: boolean };
const port = parentPort!;
const reactor = new Reactor();
if (busy) {
  const fd = createWakeup();
  raiseWakeup(fd);
  reactor.add(fd, { onEvents() {} }, EPOLLIN);
}
port.postMessage('ready');
runReactor(reactor, control, port, (message) => {
  if (message === 'throw') throw new TypeError('a broken invariant');
  port.postMessage(`got ${String(message)}`);
});
port.postMessage('ended');
