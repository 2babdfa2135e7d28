// The far end of the UDP scenario, a program inside a namespace: sends back what comes, from where it came to.
//
//   node udp-echo.js HOST:PORT...
//
// It pauses after each turn, so that datagrams gather and a call moves many: it shares the processors with what is measured.
import { setPriority } from 'node:os';
import { argv } from 'node:process';
import { listenUdp } from '../../src/linux/datagram.js';
import { Epoll, EPOLL_CTL_ADD, EPOLLIN } from '../../src/linux/epoll.js';
import { Block } from '../../src/linux/memory.js';
import { ReceiveBatch, SendBatch } from '../../src/linux/messages.js';
import { endpointOf, loadPriority } from './udp-load.js';
import { pause } from './pause.js';

const pauseMs = 0.2;
const slotSize = 2048;
const slots = 64;
const idleMs = 1000;

const memory = Block.allocate(slots * slotSize);
const receives = new ReceiveBatch(memory, slotSize, 0, 0, { names: true, control: false });
const sends = new SendBatch(slots, { segmented: false });
const sockaddrInSize = 16;

setPriority(loadPriority);
const listeners = argv.slice(2).map((text) => listenUdp(endpointOf(text)));
const epoll = new Epoll(listeners.length);
for (const fd of listeners) epoll.control(EPOLL_CTL_ADD, fd, EPOLLIN, 0);
console.log('ready');

for (;;) {
  const ready = epoll.wait(idleMs);
  for (let i = 0; i < ready; i++) echo(epoll.fdOf(i));
  if (ready > 0) pause(pauseMs);
}

function echo(fd: number): void {
  let count: number;
  do {
    count = receives.receive(fd, slots);
    for (let slot = 0; slot < count; slot++) {
      const name = receives.names.at(receives.nameAt(slot), sockaddrInSize);
      sends.add(memory.at(slot * slotSize, slotSize), receives.lengthOf(slot), name, sockaddrInSize);
    }
    sends.send(fd);
  } while (count === slots);
}
