/**
 * The life of one data plane: a worker thread that sits in its reactor. The main thread tells it something by posting a
 * message and raising the wakeup; it ends when the shared stop flag is up, within one turn of the loop.
 */
import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import { clearWakeup, EPOLLIN } from '../linux/epoll.js';
import type { Reactor } from './reactor.js';

/** What every worker is started with. */
export interface WorkerControl {
  /** One Int32: 0 run, 1 stop. */
  stop: SharedArrayBuffer;
  /** An eventfd (createWakeup). */
  wakeup: number;
}

/** Runs `reactor` on this thread until it is told to stop. */
export function runReactor(
  reactor: Reactor,
  control: WorkerControl,
  port: MessagePort,
  onMessage: (message: unknown) => void,
): void {
  const stop = new Int32Array(control.stop);
  reactor.add(
    control.wakeup,
    {
      onEvents() {
        clearWakeup(control.wakeup);
        for (let got = receiveMessageOnPort(port); got !== undefined; got = receiveMessageOnPort(port)) {
          onMessage(got.message);
        }
      },
    },
    EPOLLIN,
  );
  reactor.run(() => Atomics.load(stop, 0) !== 0);
}
