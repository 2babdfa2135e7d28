// The client of the UDP scenario, a program inside a namespace:
//
//   node udp-blaster.js FLOWS SIZE HOST:PORT...
//
// Each flow is a socket of its own, as a client's would be: datagrams leave one by one, never as a segmented run, and evenly, a
// few every quarter of a millisecond. It sleeps in between, and looks for echoes seldom and takes many at a time: it must cost
// little, for it shares the processors with what is measured. Orders come, and results go, by Node's IPC channel.
import { performance } from 'node:perf_hooks';
import { setPriority } from 'node:os';
import { argv } from 'node:process';
import { connectUdp, openUdp } from '../../src/linux/datagram.js';
import { Epoll, EPOLL_CTL_ADD, EPOLLIN } from '../../src/linux/epoll.js';
import { Block } from '../../src/linux/memory.js';
import { ReceiveBatch, SendBatch } from '../../src/linux/messages.js';
import { Endpoint, SockaddrBlock } from '../../src/linux/sockaddr.js';
import { endpointOf, loadPriority } from './udp-load.js';
import { pause } from './pause.js';

const tickMs = 0.25;
/** A late tick makes up for it, but in no larger bursts than this many times what is due. */
const catchUp = 1.5;
const leastBurst = 16;
const drainMs = 10;
/** Echoes are waited for until none has come for so long. */
const quietMs = 500;

export interface Blast {
  /** Stands in every datagram, so that a late echo of another round is not taken for one of this. */
  round: number;
  /** Datagrams a second, over all flows. */
  rate: number;
  seconds: number;
}

export interface BlastResult {
  sent: number;
  /** Refused by the kernel: these count as not sent. */
  unsent: number;
  echoes: number;
  /** Echoes of an earlier round, and whatever else came. */
  strays: number;
  sendSeconds: number;
  /** From the first datagram to the last echo. */
  echoSeconds: number;
  cpuSeconds: number;
}

const plain = { mark: 0, tos: 0 };
const slots = 64;

class Blaster {
  private readonly flows: number[];
  private readonly size: number;
  /** Empty on connected sockets. */
  private readonly names: Name[];
  private readonly epoll: Epoll;
  private readonly datagram: Block;
  private readonly sends = new SendBatch(slots, { segmented: false });
  private readonly slotSize: number;
  private readonly memory: Block;
  private readonly receives: ReceiveBatch;
  private nextFlow = 0;
  private nextName = 0;
  private round = 0;
  private unsent = 0;
  private echoes = 0;
  private strays = 0;
  private lastEchoMs = 0;

  constructor(flows: number, size: number, remotes: readonly Endpoint[]) {
    this.size = size;
    this.datagram = Block.allocate(size);
    this.slotSize = size + 1; // an echo that is longer than it should be shows
    this.memory = Block.allocate(slots * this.slotSize);
    this.receives = new ReceiveBatch(this.memory, this.slotSize, 0, 0, { names: false, control: false });
    const [first] = remotes;
    const open = () => (remotes.length === 1 ? connectUdp(first!, plain) : openUdp(false, plain));
    this.flows = Array.from({ length: flows }, open);
    this.names = remotes.length === 1 ? [] : remotes.map(nameOf);
    this.epoll = new Epoll(flows);
    for (const fd of this.flows) this.epoll.control(EPOLL_CTL_ADD, fd, EPOLLIN, 0);
  }

  run({ round, rate, seconds }: Blast): BlastResult {
    this.round = round;
    this.datagram.bytes.writeUInt32LE(round);
    this.unsent = this.echoes = this.strays = 0;
    const burst = Math.max(leastBurst, Math.ceil(catchUp * rate * (tickMs / 1000)));
    const cpu = process.cpuUsage();
    const start = performance.now();
    this.lastEchoMs = start;

    let offered = 0;
    let tickDueMs = start;
    let drainDueMs = start + drainMs;
    let now = start;
    for (; now < start + seconds * 1000; now = performance.now()) {
      const due = Math.min(Math.floor(((now - start) / 1000) * rate) - offered, burst);
      this.send(due);
      offered += due;
      if (now >= drainDueMs) {
        this.drain(now);
        drainDueMs = now + drainMs;
      }
      // The work counts as time: a pause of its own length behind it would make ticks rarer the more there is to send.
      tickDueMs = Math.max(tickDueMs + tickMs, now);
      pause(Math.max(0, tickDueMs - performance.now()));
    }
    const sendSeconds = (now - start) / 1000;
    for (; now < Math.max(this.lastEchoMs, start + sendSeconds * 1000) + quietMs; now = performance.now()) {
      pause(drainMs);
      this.drain(performance.now());
    }

    const { user, system } = process.cpuUsage(cpu);
    return {
      sent: offered - this.unsent,
      unsent: this.unsent,
      echoes: this.echoes,
      strays: this.strays,
      sendSeconds,
      echoSeconds: (this.lastEchoMs - start) / 1000,
      cpuSeconds: (user + system) / 1e6,
    };
  }

  /** From one flow after the other; more than one datagram from each only when there are fewer flows than datagrams due. */
  private send(due: number): void {
    const each = Math.ceil(due / this.flows.length);
    for (let left = due; left > 0; left -= each) {
      for (let i = 0; i < Math.min(each, left); i++) this.queue();
      this.unsent += this.sends.send(this.flows[this.nextFlow]!);
      this.nextFlow = (this.nextFlow + 1) % this.flows.length;
    }
  }

  private queue(): void {
    if (this.sends.full) this.unsent += this.sends.send(this.flows[this.nextFlow]!);
    if (this.names.length === 0) {
      this.sends.add(this.datagram.address, this.size, 0, 0);
      return;
    }
    const { sockaddr, size } = this.names[this.nextName]!;
    this.nextName = (this.nextName + 1) % this.names.length;
    this.sends.add(this.datagram.address, this.size, sockaddr.address, size);
  }

  private drain(now: number): void {
    const ready = this.epoll.wait(0);
    for (let i = 0; i < ready; i++) {
      const fd = this.epoll.fdOf(i);
      let count: number;
      do {
        count = this.receives.receive(fd, slots);
        for (let slot = 0; slot < count; slot++) this.take(slot, now);
      } while (count === slots);
    }
  }

  private take(slot: number, now: number): void {
    const { bytes } = this.memory;
    const round = bytes.readUInt32LE(slot * this.slotSize);
    if (round !== this.round || this.receives.lengthOf(slot) !== this.size) {
      this.strays++;
      return;
    }
    this.echoes++;
    this.lastEchoMs = now;
  }
}

interface Name {
  /** Held for its memory. */
  sockaddr: SockaddrBlock;
  size: number;
}

function nameOf(remote: Endpoint): Name {
  const sockaddr = new SockaddrBlock();
  return { sockaddr, size: sockaddr.write(remote) };
}

setPriority(loadPriority);
const [flows, size, ...remotes] = argv.slice(2);
const blaster = new Blaster(Number(flows), Number(size), remotes.map(endpointOf));
process.on('message', (blast: Blast) => process.send!(blaster.run(blast)));
