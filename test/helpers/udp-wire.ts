// A piece of the network that the test owns: it passes datagrams between clients and one server, keeps all it has seen, and
// holds back, repeats and changes what it is told to.
//
//   client <-> the wire's address | a socket a client <-> server
import type { Socket } from 'node:dgram';
import { type Address, bindUdp } from './udp-bind.js';

/** Up: to the server. */
export type Direction = 'up' | 'down';

export interface WirePacket {
  direction: Direction;
  data: Buffer;
  /** Which client it is from or for, in the order in which they came; -1: nobody's (`stray`). */
  client: number;
}

export interface Injected {
  direction: Direction;
  data: Buffer;
  client: number;
  /**
   * From which address it comes to the server. `moved`: from another one, and so from now on, as after a change of networks.
   * `stray`: from one that is none of the client's; what comes back there the wire counts as seen by client -1.
   */
  from?: 'moved' | 'stray';
}

interface Client {
  address: string;
  port: number;
  upstream: Socket;
}

export class Wire {
  private readonly socket: Socket;
  private readonly server: Address;
  private readonly clients: Client[] = [];
  private readonly seen: Record<Direction, WirePacket[]> = { up: [], down: [] };
  private readonly held = new Set<Direction>();
  private readonly waiting = new Set<() => void>();
  private readonly strays: Socket[] = [];
  private last = Promise.resolve();

  constructor(socket: Socket, server: Address) {
    this.socket = socket;
    this.server = server;
    socket.on('error', () => {});
    // One after the other: a new client's socket takes a moment, in which its next packet must not overtake.
    socket.on('message', (data, { address, port }) => {
      this.last = this.last.then(async () => this.note('up', data, await this.clientAt(address, port)));
    });
  }

  private async clientAt(address: string, port: number): Promise<number> {
    const known = this.clients.findIndex((client) => client.address === address && client.port === port);
    if (known >= 0) return known;
    const number = this.clients.length;
    this.clients.push({ address, port, upstream: await this.openUpstream(number) });
    return number;
  }

  private async openUpstream(client: number): Promise<Socket> {
    const socket = await bindUdp({ host: this.server.host.includes(':') ? '::' : '0.0.0.0' });
    socket.on('error', () => {});
    socket.on('message', (data) => this.note('down', data, client));
    return socket;
  }

  private note(direction: Direction, data: Buffer, client: number): void {
    this.seen[direction].push({ direction, data, client });
    if (client >= 0 && !this.held.has(direction)) this.pass(direction, data, client);
    for (const check of this.waiting) check();
  }

  private pass(direction: Direction, data: Buffer, client: number): void {
    const { upstream, address, port } = this.clients[client]!;
    if (direction === 'up') upstream.send(data, this.server.port, this.server.host, () => {});
    else this.socket.send(data, port, address, () => {});
  }

  /** Takes off what went in that direction: as soon as there are `count`, or after `ms`. */
  take({ direction, count, ms }: { direction: Direction; count: number; ms: number }): Promise<WirePacket[]> {
    const seen = this.seen[direction];
    return new Promise((resolve) => {
      const finish = () => {
        clearTimeout(timer);
        this.waiting.delete(check);
        resolve(seen.splice(0));
      };
      const check = () => {
        if (seen.length >= count) finish();
      };
      const timer = setTimeout(finish, ms);
      this.waiting.add(check);
      check();
    });
  }

  hold(direction: Direction, hold: boolean): void {
    if (hold) this.held.add(direction);
    else this.held.delete(direction);
  }

  /** Sends what the test has made, or kept; the wire does not count it as seen. */
  async inject({ direction, data, client, from }: Injected): Promise<void> {
    if (from === 'stray') {
      const stray = await this.openUpstream(-1);
      this.strays.push(stray);
      stray.send(data, this.server.port, this.server.host, () => {});
      return;
    }
    if (from === 'moved') {
      const one = this.clients[client]!;
      one.upstream.close();
      one.upstream = await this.openUpstream(client);
    }
    this.pass(direction, data, client);
  }

  close(): void {
    this.socket.close();
    for (const { upstream } of this.clients) upstream.close();
    for (const stray of this.strays) stray.close();
  }
}
