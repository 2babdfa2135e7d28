// The test's side of helpers/udp-agent.ts: a UdpSocket is a socket in a namespace, a UdpWire a stretch of network there.
import assert from 'node:assert/strict';
import type { Agent } from './agents.js';
import type { Datagram, OpenUdp } from './udp-agent.js';
import type { Address } from './udp-bind.js';
import type { Direction, Injected, WirePacket } from './udp-wire.js';

const answerMs = 2000;
/** In which what was sent a moment ago would have come, if it were to come. */
const silenceMs = 250;

export class UdpSocket {
  readonly port: number;
  private readonly agent: Agent;
  private readonly handle: number;

  private constructor(agent: Agent, handle: number, port: number) {
    this.agent = agent;
    this.handle = handle;
    this.port = port;
  }

  static async open(agent: Agent, options: OpenUdp): Promise<UdpSocket> {
    const { handle, port } = await agent.call('udpOpen', options);
    return new UdpSocket(agent, handle, port);
  }

  send(to: Address, data: Buffer | string): Promise<void> {
    return this.agent.call('udpSend', { handle: this.handle, to, data });
  }

  /** Takes off what has come: as soon as there are `count`, or after `ms`. */
  take(count: number, ms = answerMs): Promise<Datagram[]> {
    return this.agent.call('udpTake', { handle: this.handle, count, ms });
  }

  /** The next datagram, which must come. */
  async next(ms = answerMs): Promise<Datagram> {
    const [datagram] = await this.take(1, ms);
    assert.ok(datagram, `nothing came to port ${this.port} within ${ms} ms`);
    return datagram;
  }

  /** Sends and returns the answer, as `text from host port`. */
  async ask(to: Address, data: string, ms = answerMs): Promise<string> {
    await this.send(to, data);
    return describe(await this.next(ms));
  }

  async hearsNothing(): Promise<void> {
    assert.deepEqual((await this.take(1, silenceMs)).map(describe), []);
  }

  flood(to: Address, count: number, size = 10): Promise<void> {
    return this.agent.call('udpFlood', { handle: this.handle, to, count, size });
  }

  /** Datagrams since it was opened. */
  count(): Promise<number> {
    return this.agent.call('udpCount', { handle: this.handle });
  }

  close(): Promise<void> {
    return this.agent.call('udpClose', { handle: this.handle });
  }
}

export function describe({ data, from }: Datagram): string {
  return `${data.toString()} from ${from}`;
}

export class UdpWire {
  private readonly agent: Agent;
  private readonly handle: number;

  private constructor(agent: Agent, handle: number) {
    this.agent = agent;
    this.handle = handle;
  }

  static async open(agent: Agent, at: Address, to: Address): Promise<UdpWire> {
    return new UdpWire(agent, await agent.call('wireOpen', { at, to }));
  }

  /** Takes off the next packets that went in that direction, which must be `count`. */
  async take(direction: Direction, count: number, ms = answerMs): Promise<WirePacket[]> {
    const packets = await this.agent.call('wireTake', { handle: this.handle, direction, count, ms });
    assert.equal(packets.length, count, `packets ${direction} within ${ms} ms`);
    return packets;
  }

  async next(direction: Direction): Promise<WirePacket> {
    return (await this.take(direction, 1))[0]!;
  }

  /** Leaves nothing to be taken. */
  async forget(): Promise<void> {
    for (const direction of ['up', 'down'] as const) {
      await this.agent.call('wireTake', { handle: this.handle, direction, count: 0, ms: 0 });
    }
  }

  /** Keeps what comes from now on instead of passing it. */
  hold(direction: Direction, hold = true): Promise<void> {
    return this.agent.call('wireHold', { handle: this.handle, direction, hold });
  }

  inject(packet: Injected): Promise<void> {
    return this.agent.call('wireInject', { handle: this.handle, ...packet });
  }
}
