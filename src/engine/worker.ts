/**
 * The life of one data plane: a worker thread that sits in its reactor. The main thread tells it something by posting a
 * message and raising the wakeup; it ends when the shared stop flag is up, within one turn of the loop.
 */
import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import { clearWakeup, createWakeup, EPOLLIN } from '../linux/epoll.js';
import type { Reactor } from './reactor.js';

/** What every worker is started with. */
export interface WorkerControl {
  /** Int32 words, by `controlWord`. */
  stop: SharedArrayBuffer;
  /** An eventfd (createWakeup). */
  wakeup: number;
}

/** The main thread writes `stop` (0 run, 1 stop), the worker the others: turns of its loop, and what it holds. */
export const controlWord = { stop: 0, turns: 1, connections: 2, associations: 3 } as const;
const controlSize = 4 * Int32Array.BYTES_PER_ELEMENT;

export function createWorkerControl(): WorkerControl {
  return { stop: new SharedArrayBuffer(controlSize), wakeup: createWakeup() };
}

/** TCP connections and UDP associations. */
export interface WorkerLoad {
  readonly open: number;
  readonly associations: number;
}

/** Runs `reactor` on this thread until it is told to stop. `load` is what the worker says of itself once a turn. */
export function runReactor(
  reactor: Reactor,
  control: WorkerControl,
  port: MessagePort,
  onMessage: (message: unknown) => void,
  load: WorkerLoad = { open: 0, associations: 0 },
): void {
  const words = new Int32Array(control.stop);
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
  reactor.run(() => {
    words[controlWord.turns]!++; // plain stores: main only wants to see that the number moves
    words[controlWord.connections] = load.open;
    words[controlWord.associations] = load.associations;
    return Atomics.load(words, controlWord.stop) !== 0;
  });
}
