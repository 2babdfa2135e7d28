// The program that runs inside a namespace: it owns real sockets there and does with them what the test process asks
// for over Node's IPC channel (helpers/agents.ts is the asking side). One program plays the LAN client, the origin
// server and a Shadowsocks peer made by hand; the test reads as if it held the sockets itself.
import net, { type Socket } from 'node:net';
import { errnoName } from '../../src/linux/errno.js';
import { takeSocketError } from '../../src/linux/sockopt.js';
import { targetAddress } from './aead-peer.js';
import { type Answer, NameServer } from './name-server.js';
import { serveTransfer, transfer, type TransferOptions } from './transfer.js';
import { udpOperations } from './udp-agent.js';

const keepReceived = 1 << 20; // bytes of a stream that are kept for the test to look at; the rest is only counted

export interface Endpoint {
  host: string;
  port: number;
  /** A SOCKS5 server to go through. */
  via?: { host: string; port: number };
}

export interface Snapshot {
  /** The first MiB of what came. */
  data: Buffer;
  bytes: number;
  /** FIN has arrived. */
  ended: boolean;
  closed: boolean;
  /** errno by name, such as ECONNRESET. */
  error: string | undefined;
  /** Since the connection was there, until it ended or closed, or until now. */
  lifeMs: number;
  local: string;
  remote: string;
}

export interface WaitFor {
  bytes?: number;
  ended?: boolean;
  closed?: boolean;
}

class Held {
  readonly socket: Socket;
  readonly #since = performance.now();
  readonly #local: string;
  readonly #remote: string;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #ended = false;
  #closed = false;
  #over: number | undefined;
  #error: string | undefined;
  #waiting = new Set<() => void>();

  constructor(socket: Socket) {
    this.socket = socket;
    this.#local = `${socket.localAddress} ${socket.localPort}`;
    this.#remote = `${socket.remoteAddress} ${socket.remotePort}`;
    socket.on('data', (chunk) => {
      if (this.#bytes < keepReceived) this.#chunks.push(chunk);
      this.#bytes += chunk.length;
      this.#changed();
    });
    socket.on('end', () => {
      // libuv tells of a hang-up behind a short read as of an end, and does not ask whether there was a reset.
      const number = socketError(socket);
      if (number === 0) this.#ended = true;
      else this.#error ??= errnoName(number);
      this.#over ??= performance.now();
      this.#changed();
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      this.#error ??= error.code ?? error.message;
    });
    socket.on('close', () => {
      this.#closed = true;
      this.#over ??= performance.now();
      this.#changed();
    });
  }

  #changed(): void {
    for (const check of this.#waiting) check();
  }

  snapshot(): Snapshot {
    return {
      data: Buffer.concat(this.#chunks),
      bytes: this.#bytes,
      ended: this.#ended,
      closed: this.#closed,
      error: this.#error,
      lifeMs: (this.#over ?? performance.now()) - this.#since,
      local: this.#local,
      remote: this.#remote,
    };
  }

  /** Resolves with the state when it is as wanted, when nothing more can come, or after `ms`. */
  wait(want: WaitFor, ms: number): Promise<Snapshot> {
    return new Promise((resolve) => {
      const finish = () => {
        clearTimeout(timer);
        this.#waiting.delete(check);
        resolve(this.snapshot());
      };
      const check = () => {
        const enough = want.bytes !== undefined && this.#bytes >= want.bytes;
        const ended = want.ended === true && this.#ended;
        if (enough || ended || this.#closed) finish();
      };
      const timer = setTimeout(finish, ms);
      this.#waiting.add(check);
      check();
    });
  }
}

function socketError(socket: Socket): number {
  const { _handle: handle } = socket as Socket & { _handle: { fd: number } | null };
  return handle && handle.fd >= 0 ? takeSocketError(handle.fd) : 0;
}

const held = new Map<number, Held>();
const accepted = new Map<number, { queue: number[]; takers: ((handle: number) => void)[] }>();
let nextHandle = 1;

function hold(socket: Socket): number {
  const handle = nextHandle++;
  held.set(handle, new Held(socket));
  return handle;
}

function get(handle: number): Held {
  const one = held.get(handle);
  if (!one) throw new Error(`no socket ${handle}`);
  return one;
}

function connect(to: Endpoint): Promise<Socket> {
  const { host, port } = to.via ?? to;
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port, allowHalfOpen: true });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.setNoDelay(true);
      socket.off('error', reject);
      if (to.via) socksConnect(socket, to).then(resolve, reject);
      else resolve(socket);
    });
  });
}

// RFC 1928: no authentication, CONNECT to an address.
async function socksConnect(socket: Socket, to: Endpoint): Promise<Socket> {
  socket.write(Buffer.from('050100', 'hex'));
  const hello = await readExactly(socket, 2);
  if (hello.readUInt16BE() !== 0x0500)
    throw new Error(`SOCKS greeting ${hello.toString('hex')}, expected 0500`);

  socket.write(Buffer.concat([Buffer.from('050100', 'hex'), targetAddress(to.host, to.port)]));
  const reply = await readExactly(socket, 4);
  if (reply[1] !== 0) throw new Error(`SOCKS reply ${reply[1]}, expected 0`);
  await readExactly(socket, (reply[3] === 4 ? 16 : 4) + 2);
  return socket;
}

function readExactly(socket: Socket, length: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const onEnd = () => reject(new Error('SOCKS server closed'));
    const onReadable = () => {
      const bytes = socket.read(length) as Buffer | null;
      if (!bytes) return;
      socket.off('readable', onReadable).off('end', onEnd).off('error', reject);
      resolve(bytes);
    };
    socket.on('readable', onReadable).once('end', onEnd).once('error', reject);
    onReadable();
  });
}

type Behaviour = (socket: Socket, options: Record<string, unknown>) => void;

/** What a listening port of the origin does with each connection. */
const behaviours = {
  /** Hands the socket to the test, which asks for it with `accept`. */
  manual(socket) {
    const port = socket.localPort ?? 0;
    const slot = acceptSlot(port);
    const handle = hold(socket);
    const taker = slot.takers.shift();
    if (taker) taker(handle);
    else slot.queue.push(handle);
  },
  transfer(socket, options) {
    serveTransfer(socket, options);
  },
  echo(socket) {
    socket.on('error', () => socket.destroy());
    socket.pipe(socket);
  },
  /** Sends a line at once, as SSH and SMTP servers do, then echoes. */
  banner(socket) {
    socket.on('error', () => socket.destroy());
    socket.write('220 origin ready\r\n');
    socket.pipe(socket);
  },
  /** Reads everything, says nothing, and does not even close when the other side has. */
  silent(socket) {
    socket.on('error', () => socket.destroy());
    socket.resume();
  },
  /** Never reads. */
  stopped(socket) {
    socket.on('error', () => socket.destroy());
    socket.pause();
  },
} satisfies Record<string, Behaviour>;

export type BehaviourName = keyof typeof behaviours;

function acceptSlot(port: number) {
  const slot = accepted.get(port) ?? { queue: [], takers: [] };
  accepted.set(port, slot);
  return slot;
}

export interface Listen {
  host?: string;
  port: number;
  behaviour: BehaviourName;
  options?: Record<string, unknown>;
}

export interface Bulk extends Endpoint, TransferOptions {
  connections: number;
  /** Connections begun at the same time; default: all. */
  atOnce?: number;
}

export interface BulkResult {
  group: number;
  completed: number;
  /** Reason -> how many connections failed for it. */
  failures: Record<string, number>;
  seconds: number;
}

const groups = new Map<number, Socket[]>();
const pendingConnects = 64; // SYNs under way at once in this process, so that no listener's backlog decides a test

async function bulk(options: Bulk): Promise<BulkResult> {
  const started = performance.now();
  const group = nextHandle++;
  const sockets: Socket[] = [];
  groups.set(group, sockets); // before the first is connected, so that `clear` ends transfers under way
  const failures: Record<string, number> = {};
  let completed = 0;
  let left = options.connections;

  const connecting = limiter(pendingConnects);
  const one = async () => {
    while (left-- > 0) {
      try {
        const socket = await connecting(() => connect(options));
        sockets.push(socket);
        await transfer(socket, options);
        completed++;
      } catch (error) {
        const reason = (error as NodeJS.ErrnoException).code ?? (error as Error).message;
        failures[reason] = (failures[reason] ?? 0) + 1;
      }
    }
  };
  const lanes = Math.min(options.atOnce ?? options.connections, options.connections);
  await Promise.all(Array.from({ length: lanes }, one));
  return { group, completed, failures, seconds: (performance.now() - started) / 1000 };
}

function limiter(slots: number) {
  let free = slots;
  const queue: (() => void)[] = [];
  return async <T>(work: () => Promise<T>): Promise<T> => {
    if (free === 0) await new Promise<void>((resolve) => queue.push(resolve));
    else free--;
    try {
      return await work();
    } finally {
      const next = queue.shift();
      if (next) next();
      else free++;
    }
  };
}

/** Opens `connections` sockets and returns their handles; those that fail are left out. */
async function connectMany(to: Endpoint & { connections: number }): Promise<number[]> {
  const connecting = limiter(pendingConnects);
  const one = async () => connecting(() => connect(to)).then(hold, () => undefined);
  const handles = await Promise.all(Array.from({ length: to.connections }, one));
  return handles.filter((handle) => handle !== undefined);
}

function ownedBy(group: number): Socket[] {
  return groups.get(group) ?? [];
}

const listeners: net.Server[] = [];
let nameServer: NameServer | undefined;

const operations = {
  ...udpOperations,
  listen: ({ host = '::', port, behaviour, options = {} }: Listen) =>
    new Promise<void>((resolve, reject) => {
      const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) =>
        (behaviours[behaviour] as Behaviour)(socket, options),
      );
      listeners.push(server);
      server.once('error', reject);
      server.listen({ host, port, backlog: 4096 }, resolve);
    }),
  accept: ({ port, ms }: { port: number; ms: number }) =>
    new Promise<number>((resolve, reject) => {
      const slot = acceptSlot(port);
      const waiting = slot.queue.shift();
      if (waiting !== undefined) return resolve(waiting);
      const timer = setTimeout(() => {
        slot.takers = slot.takers.filter((taker) => taker !== take);
        reject(new Error(`nobody connected to port ${port} within ${ms} ms`));
      }, ms);
      const take = (handle: number) => {
        clearTimeout(timer);
        resolve(handle);
      };
      slot.takers.push(take);
    }),
  connect: async (to: Endpoint) => hold(await connect(to)),
  connectMany,
  bulk,
  write: ({ handle, data }: { handle: number; data: Buffer | string }) => void get(handle).socket.write(data),
  end: ({ handle }: { handle: number }) => void get(handle).socket.end(),
  reset: ({ handle }: { handle: number }) => void get(handle).socket.resetAndDestroy(),
  destroy: ({ handle }: { handle: number }) => void get(handle).socket.destroy(),
  pause: ({ handle }: { handle: number }) => void get(handle).socket.pause(),
  resume: ({ handle }: { handle: number }) => void get(handle).socket.resume(),
  wait: ({ handle, want, ms }: { handle: number; want: WaitFor; ms: number }) => get(handle).wait(want, ms),
  /** How many of a bulk transfer's kept connections are still open. */
  groupOpen: ({ group }: { group: number }) => ownedBy(group).filter((socket) => !socket.destroyed).length,
  groupClose: ({ group }: { group: number }) => {
    for (const socket of ownedBy(group)) socket.destroy();
    groups.delete(group);
  },
  /** A name server on 127.0.0.1 that knows these names only; from the second call on it has other answers. */
  answerNames: async ({ port, answers }: { port: number; answers: Record<string, Answer> }) => {
    if (nameServer === undefined) {
      nameServer = new NameServer();
      await nameServer.start(port);
    }
    nameServer.answers.clear();
    for (const [name, records] of Object.entries(answers)) nameServer.answers.set(name, records);
  },
  /** Forgets everything: sockets are closed and listeners stop. */
  clear: () => {
    for (const group of groups.keys()) operations.groupClose({ group });
    for (const { socket } of held.values()) socket.destroy();
    held.clear();
    accepted.clear();
    for (const server of listeners.splice(0)) server.close();
    udpOperations.udpClear();
  },
};

export type Operations = typeof operations;

export interface Request {
  id: number;
  name: keyof Operations;
  args: unknown;
}

export interface Reply {
  id: number;
  result?: unknown;
  error?: string;
}

async function answer({ id, name, args }: Request): Promise<Reply> {
  try {
    return { id, result: await (operations[name] as (args: unknown) => unknown)(args) };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return { id, error: code ? `${code}: ${message}` : message };
  }
}

process.on('message', (request: Request) => {
  void answer(request).then((reply) => process.connected && process.send?.(reply));
});
process.on('disconnect', () => process.exit(0));
