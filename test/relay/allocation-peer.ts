/** The other end of a socket in allocation.test.ts: a thread that sends for ever or takes what comes, as fast as it goes. */
import { workerData } from 'node:worker_threads';
import { EPOLL_CTL_ADD, Epoll, EPOLLIN, EPOLLOUT } from '../../src/linux/epoll.js';
import { recv, send } from '../../src/linux/libc.js';
import { Block } from '../../src/linux/memory.js';
import { MSG_NOSIGNAL } from '../../src/linux/socket.js';

export interface PeerTask {
  fd: number;
  sends: boolean;
  /** One Int32: 1 when the thread shall end. */
  stop: SharedArrayBuffer;
}

const { fd, sends, stop } = workerData as PeerTask;
const block = Block.allocate(256 * 1024);
const epoll = new Epoll(1);
epoll.control(EPOLL_CTL_ADD, fd, sends ? EPOLLOUT : EPOLLIN, 0);
while (Atomics.load(new Int32Array(stop), 0) === 0) {
  if (epoll.wait(50) === 0) continue;
  const count = sends
    ? send(fd, block.address, block.size, MSG_NOSIGNAL)
    : recv(fd, block.address, block.size, 0);
  if (count === 0) break;
}
epoll.close();
