// The UDP part of helpers/agent.ts: datagram sockets that are really open in a namespace, and the far ends of the internet
// that answer in one way or another. helpers/udp-sockets.ts is the asking side.
import { Resolver } from 'node:dns/promises';
import type { Socket } from 'node:dgram';
import { type Answer, NameServer } from './name-server.js';
import { payloadAt } from './payload.js';
import { type Address, type BindUdp, bindUdp } from './udp-bind.js';
import { type Direction, type Injected, Wire } from './udp-wire.js';

const keptBytes = 8 << 20; // of what a socket has received; the rest is only counted
const answerMs = 5000;
/** After so many flows that were not answered nobody waits for the rest. */
const mostUnanswered = 100;

export interface Datagram {
  data: Buffer;
  /** `host port` */
  from: string;
}

export interface OpenUdp extends BindUdp {
  /** What it does with each datagram besides keeping it. Default: nothing. */
  behaviour?: UdpBehaviourName;
}

type UdpBehaviour = (datagram: Datagram, answer: (data: Buffer | string) => void) => void;

/** What a far end does with each datagram. */
const behaviours = {
  silent() {},
  echo({ data }, answer) {
    answer(data);
  },
  /** Tells who it seems to be from: `host port`. */
  mirror({ from }, answer) {
    answer(from);
  },
  /** Answers `200` with so many bytes. */
  sized({ data }, answer) {
    const size = Number(data.toString());
    answer(size === 0 ? Buffer.alloc(0) : payloadAt(0, size));
  },
  /** Tells one service from another on the same port. */
  local({ data }, answer) {
    answer(`local ${data.toString()}`);
  },
} satisfies Record<string, UdpBehaviour>;

export type UdpBehaviourName = keyof typeof behaviours;

class HeldUdp {
  readonly socket: Socket;
  received = 0;
  private kept: Datagram[] = [];
  private bytes = 0;
  private readonly waiting = new Set<() => void>();

  constructor(socket: Socket, behaviour: UdpBehaviour) {
    this.socket = socket;
    socket.on('error', () => {}); // an ICMP error in answer to an earlier datagram
    socket.on('message', (data, from) => {
      const datagram = { data, from: `${from.address} ${from.port}` };
      this.received++;
      if (this.bytes < keptBytes) this.kept.push(datagram);
      this.bytes += data.length;
      behaviour(datagram, (answer) => socket.send(answer, from.port, from.address, () => {}));
      for (const check of this.waiting) check();
    });
  }

  /** Takes off what has come: as soon as there are `count`, or after `ms`. */
  take(count: number, ms: number): Promise<Datagram[]> {
    return new Promise((resolve) => {
      const finish = () => {
        clearTimeout(timer);
        this.waiting.delete(check);
        resolve(this.kept.splice(0));
        this.bytes = 0;
      };
      const check = () => {
        if (this.kept.length >= count) finish();
      };
      const timer = setTimeout(finish, ms);
      this.waiting.add(check);
      check();
    });
  }
}

const held = new Map<number, HeldUdp>();
const wires = new Map<number, Wire>();
const nameServers: NameServer[] = [];
let nextHandle = 1;

function get(handle: number): HeldUdp {
  const one = held.get(handle);
  if (!one) throw new Error(`no UDP socket ${handle}`);
  return one;
}

function wire(handle: number): Wire {
  const one = wires.get(handle);
  if (!one) throw new Error(`no wire ${handle}`);
  return one;
}

function send(socket: Socket, data: Buffer | string, { host, port }: Address): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.send(data, port, host, (error) => {
      if (error) reject(error);
      else resolve();
    });
  });
}

export interface Flows {
  /** Flow i talks to the i-th of them, from the start again when there are more flows. */
  to: Address[];
  flows: number;
  /** Flows that wait for their answer at the same time. Default 100. */
  atOnce?: number;
  ms?: number;
}

export interface FlowsResult {
  group: number;
  /** What each flow heard; undefined: nothing from the one it had asked. */
  answers: (string | undefined)[];
  /** Answers from somebody else. */
  strange: string[];
  seconds: number;
}

interface Flow {
  socket: Socket;
  to: Address;
}

const groups = new Map<number, Flow[]>();

/** Opens a socket a flow, asks one question on each, and leaves the sockets open. */
async function openFlows({ to, flows, ...options }: Flows): Promise<FlowsResult> {
  const group = nextHandle++;
  const host = to[0]!.host.includes(':') ? '::' : '0.0.0.0';
  const list: Flow[] = [];
  groups.set(group, list);
  for (let i = 0; i < flows; i++) list.push({ socket: await bindUdp({ host }), to: to[i % to.length]! });
  return askFlows({ group, ...options });
}

/** Asks again from the same sockets: of `only` these, in this order. */
async function askFlows(options: {
  group: number;
  atOnce?: number;
  ms?: number;
  only?: number[];
}): Promise<FlowsResult> {
  const { group, atOnce = 100, ms = answerMs, only } = options;
  const list = groups.get(group);
  if (!list) throw new Error(`no group of flows ${group}`);
  const started = performance.now();
  const order = only ?? list.map((_, i) => i);
  const answers: (string | undefined)[] = [];
  const strange: string[] = [];
  let next = 0;
  let unanswered = 0;
  const lane = async () => {
    while (next < order.length) {
      const place = next++;
      const i = order[place]!;
      const { text, others } = await ask(list[i]!, `flow ${i}`, ms);
      answers[place] = text;
      if (text === undefined && ++unanswered >= mostUnanswered) next = order.length;
      strange.push(...others);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  return { group, answers, strange, seconds: (performance.now() - started) / 1000 };
}

function ask({ socket, to }: Flow, question: string, ms: number) {
  return new Promise<{ text: string | undefined; others: string[] }>((resolve) => {
    const others: string[] = [];
    const finish = (text?: string) => {
      clearTimeout(timer);
      socket.off('message', onMessage);
      resolve({ text, others });
    };
    const onMessage = (data: Buffer, { address, port }: { address: string; port: number }) => {
      if (address === to.host && port === to.port) finish(data.toString());
      else others.push(`${address} ${port}`);
    };
    const timer = setTimeout(finish, ms);
    socket.on('message', onMessage);
    socket.send(question, to.port, to.host, () => {});
  });
}

/** Small datagrams, as fast as they can be sent, from one socket; nobody waits for answers. */
async function flood({
  handle,
  to,
  count,
  size,
}: {
  handle: number;
  to: Address;
  count: number;
  size: number;
}) {
  const { socket } = get(handle);
  const data = Buffer.alloc(size, 'f');
  for (let i = 0; i < count; i++) await send(socket, data, to);
}

export const udpOperations = {
  udpOpen: async (options: OpenUdp) => {
    const socket = await bindUdp(options);
    const handle = nextHandle++;
    held.set(handle, new HeldUdp(socket, behaviours[options.behaviour ?? 'silent']));
    return { handle, port: socket.address().port };
  },
  udpSend: ({ handle, to, data }: { handle: number; to: Address; data: Buffer | string }) =>
    send(get(handle).socket, data, to),
  udpTake: ({ handle, count, ms }: { handle: number; count: number; ms: number }) =>
    get(handle).take(count, ms),
  udpCount: ({ handle }: { handle: number }) => get(handle).received,
  udpClose: ({ handle }: { handle: number }) => {
    get(handle).socket.close();
    held.delete(handle);
  },
  udpFlood: flood,
  openFlows,
  askFlows,
  closeFlows: ({ group }: { group: number }) => {
    for (const { socket } of groups.get(group) ?? []) socket.close();
    groups.delete(group);
  },
  /** A name server that others can reach; it knows these names only. */
  serveNames: async ({ host, port, answers }: Address & { answers: Record<string, Answer> }) => {
    const server = new NameServer(host.includes(':') ? 'udp6' : 'udp4');
    for (const [name, records] of Object.entries(answers)) server.answers.set(name, records);
    nameServers.push(server);
    await server.start(port, host);
  },
  /** Asks a name server once, by c-ares, which takes an answer from no other address than the one it has asked. */
  resolve: async ({ server, name, family }: { server: string; name: string; family: 4 | 6 }) => {
    const resolver = new Resolver({ timeout: 2000, tries: 1 });
    resolver.setServers([server]);
    return family === 4 ? resolver.resolve4(name) : resolver.resolve6(name);
  },
  /** Stands between a client and its server and sees their packets (udp-wire.ts). */
  wireOpen: async ({ at, to }: { at: Address; to: Address }) => {
    const handle = nextHandle++;
    wires.set(handle, new Wire(await bindUdp(at), to));
    return handle;
  },
  wireTake: ({ handle, ...want }: { handle: number; direction: Direction; count: number; ms: number }) =>
    wire(handle).take(want),
  wireHold: ({ handle, direction, hold }: { handle: number; direction: Direction; hold: boolean }) =>
    wire(handle).hold(direction, hold),
  wireInject: ({ handle, ...packet }: { handle: number } & Injected) => wire(handle).inject(packet),
  udpClear: () => {
    for (const { socket } of held.values()) socket.close();
    held.clear();
    for (const group of groups.keys()) udpOperations.closeFlows({ group });
    for (const one of wires.values()) one.close();
    wires.clear();
    for (const server of nameServers.splice(0)) server.stop();
  },
};
