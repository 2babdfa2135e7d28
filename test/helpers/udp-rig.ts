// UDP relays without their worker, on loopback, with peers that live in the same reactor (relay-rig.ts).
import assert from 'node:assert/strict';
import type { Credentials } from '../../src/crypto/credentials.js';
import { randomBytes } from '../../src/crypto/random.js';
import { createSaltMemory, SaltFilter } from '../../src/crypto/replay.js';
import type { EventHandler } from '../../src/engine/reactor.js';
import { connectUdp, listenUdp } from '../../src/linux/datagram.js';
import { EPOLLIN } from '../../src/linux/epoll.js';
import { close, sendto } from '../../src/linux/libc.js';
import { Block } from '../../src/linux/memory.js';
import { ReceiveBatch } from '../../src/linux/messages.js';
import { Endpoint, SockaddrBlock } from '../../src/linux/sockaddr.js';
import { localEndpoint } from '../../src/linux/socket.js';
import { writeIpAddress } from '../../src/protocol/address.js';
import type { ClientPacketSession, PacketSealer, ServerPackets } from '../../src/protocol/packet.js';
import { createClientPackets, createServerPackets } from '../../src/protocol/packets.js';
import { Access, accessOf } from '../../src/relay/access.js';
import { endpointAt } from '../../src/relay/udp-address.js';
import { DatagramMemory, type UdpContext } from '../../src/relay/udp-context.js';
import { createUdpCounters, UdpCounters } from '../../src/relay/udp-counters.js';
import { UdpRedir } from '../../src/relay/udp-redir.js';
import { UdpServer } from '../../src/relay/udp-server.js';
import type { UdpServerSession } from '../../src/relay/udp-server-session.js';
import { Upstreams } from '../../src/relay/upstream.js';
import { Rig, type RigOptions } from './relay-rig.js';

export interface UdpRigOptions extends RigOptions {
  timeoutMs?: number;
  maxSessions?: number;
  mtu?: number;
  /** 2022: how many the server's codec remembers. */
  remembered?: number;
}

export interface Datagram {
  text: string;
  from: string;
}

export class UdpRig extends Rig {
  readonly udp: UdpContext;
  readonly upstreams = new Upstreams();
  readonly tcpUpstreams = new Upstreams();
  /** The last one that was started. */
  redir: UdpRedir | undefined;
  private readonly options: UdpRigOptions;

  constructor(options: UdpRigOptions = {}) {
    super(options);
    this.options = options;
    this.udp = {
      reactor: this.reactor,
      log: this.context.log,
      counters: new UdpCounters(createUdpCounters()),
      datagrams: new DatagramMemory(this.reactor),
      socketOptions: { mark: 0, tos: 0 },
      timeoutMs: options.timeoutMs ?? 60_000,
      maxSessions: options.maxSessions ?? 100,
      mtu: options.mtu ?? 0,
    };
  }

  /** Where a server of ours listens. */
  startServer(host = '127.0.0.1'): Endpoint {
    const { backend, method, credentials, names, userCounters } = this.context;
    const salts = new SaltFilter(createSaltMemory(randomBytes(8)));
    const maxSessions = this.options.remembered ?? 1000;
    const packets = createServerPackets<UdpServerSession>(backend, method, credentials, {
      salts,
      maxSessions,
      clientShare: () => server.clientShare(),
    });
    const server: UdpServer = new UdpServer(this.udp, { packets, names, userCounters });
    const fd = listenUdp(Endpoint.parse(host, 0)!, { packetInfo: host === '::' || host === '0.0.0.0' });
    server.listen(fd, host.includes(':'));
    return localEndpoint(fd)!;
  }

  /**
   * Where a redir of ours listens. There is no TPROXY rule: it takes what is sent to that address for a datagram to there,
   * because it is told another port to be its own. So the server it has must not be one that sends on: see PacketServer.
   */
  startRedir(servers: readonly Endpoint[], replySockets = 10, knowsItsPort = false): Endpoint {
    this.upstreams.set(servers);
    const access = new Access(this.context);
    const accessFor = (server: Endpoint) => accessOf(server, access);
    const { upstreams, tcpUpstreams } = this;
    tcpUpstreams.set(servers);
    const parts = { upstreams, tcpUpstreams, accessOf: accessFor, maxReplySockets: replySockets };
    const redir = new UdpRedir(this.udp, parts);
    this.redir = redir;
    const fd = listenUdp(Endpoint.parse('127.0.0.1', 0)!, { transparent: true });
    const endpoint = localEndpoint(fd)!;
    redir.listen(fd, knowsItsPort ? endpoint.port : 1, 0);
    return endpoint;
  }

  /** A socket of a client or of a far end. */
  peer(host = '127.0.0.1', port = 0): UdpPeer {
    return new UdpPeer(this, Endpoint.parse(host, port)!);
  }

  packetServer(): PacketServer {
    return new PacketServer(this);
  }

  /** A client that speaks the protocol, to the server at `server`, from an address of its own if it is given one. */
  client(server: Endpoint, credentials: Credentials = this.context.credentials, host?: string): PacketClient {
    const { backend, method } = this.context;
    const bind4 = host === undefined ? undefined : Endpoint.parse(host, 0);
    return new PacketClient(this, server, createClientPackets(backend, method, credentials)(), bind4);
  }
}

const slotSize = 2048;
const memory = Block.allocate(64 * slotSize);

/** Keeps what it gets; answers when told to. */
export class UdpPeer implements EventHandler {
  readonly got: Datagram[] = [];
  readonly endpoint: Endpoint;
  /** Sends every datagram back to where it came from. */
  echoes = false;
  /** In place of keeping what comes. */
  onGot: (() => void) | undefined;
  readonly fd: number;
  private readonly batch = new ReceiveBatch(memory, slotSize, 0, 0, { names: true, control: false });
  private readonly to = new SockaddrBlock();

  constructor(rig: Rig, endpoint: Endpoint) {
    this.fd = listenUdp(endpoint);
    this.endpoint = localEndpoint(this.fd)!;
    rig.reactor.add(this.fd, this, EPOLLIN);
  }

  get texts(): string {
    return this.got.map(({ text }) => text).join(' ');
  }

  say(to: Endpoint, text: string): void {
    const block = Block.allocate(Math.max(1, text.length));
    block.bytes.write(text, 'latin1');
    sendto(this.fd, block.address, text.length, 0, this.to.address, this.to.write(to));
  }

  onEvents(): void {
    const count = this.batch.receive(this.fd, 64);
    for (let i = 0; i < count; i++) {
      if (this.onGot !== undefined) {
        this.onGot();
        continue;
      }
      const at = i * slotSize;
      const text = memory.bytes.toString('latin1', at, at + this.batch.lengthOf(i));
      const from = endpointAt(this.batch.names.bytes, this.batch.nameAt(i));
      this.got.push({ text, from: from.toString() });
      if (this.echoes) this.say(from, text);
    }
  }
}

/** What ss-server does, but for the targets: a test answers in their place, and may lie. */
export class PacketServer implements EventHandler {
  readonly got: { text: string; to: string; from: Endpoint; sealer: PacketSealer }[] = [];
  readonly endpoint: Endpoint;
  /** Answers in the name of these, in place of the target. */
  answersAs: readonly (Endpoint | Uint8Array)[] | undefined;
  /** Changes each answer before it leaves. */
  mangle: (packet: Buffer) => Buffer = (packet) => packet;
  silent = false;
  readonly fd: number;
  private readonly rig: Rig;
  private readonly packets: ServerPackets<unknown>;
  private readonly batch = new ReceiveBatch(memory, slotSize, 0, 0, { names: true, control: false });
  private readonly to = new SockaddrBlock();

  constructor(rig: Rig, port = 0) {
    const { backend, method, credentials } = rig.context;
    this.rig = rig;
    const salts = new SaltFilter(createSaltMemory(randomBytes(8)));
    this.packets = createServerPackets(backend, method, credentials, { salts, maxSessions: 1000 });
    this.fd = listenUdp(Endpoint.parse('127.0.0.1', port)!);
    this.endpoint = localEndpoint(this.fd)!;
    rig.reactor.add(this.fd, this, EPOLLIN);
  }

  close(): void {
    this.rig.reactor.remove(this.fd);
    close(this.fd);
  }

  onEvents(): void {
    const count = this.batch.receive(this.fd, 64);
    for (let i = 0; i < count; i++) {
      const at = i * slotSize;
      const verdict = this.packets.open(memory, at, at + this.batch.lengthOf(i), this.rig.reactor.nowMs);
      assert.equal(verdict, 'accepted');
      const { from, to, session, sealer } = this.packets;
      const { address, payload } = addressAt(memory.bytes, from);
      const text = memory.bytes.toString('latin1', payload, to);
      const client = endpointAt(this.batch.names.bytes, this.batch.nameAt(i));
      this.got.push({ text, to: address.toString(), from: client, sealer: session?.sealer ?? sealer! });
      if (this.silent) continue;
      for (const source of this.answersAs ?? [address]) this.answer(this.got.length - 1, source, text);
    }
  }

  /** Answers, in the name of `source`, the session that the datagram `index` was of. */
  answer(index: number, source: Endpoint | Uint8Array, text: string): void {
    const { from, sealer } = this.got[index]!;
    this.sayRaw(from, this.mangle(sealPacket(sealer, source, text)));
  }

  sayRaw(to: Endpoint, packet: Buffer): void {
    packet.copy(packetSpace.bytes);
    sendto(this.fd, packetSpace.address, packet.length, 0, this.to.address, this.to.write(to));
  }
}

function addressAt(bytes: Buffer, from: number): { address: Endpoint; payload: number } {
  const size = bytes[from] === 1 ? 7 : 19;
  const host = Uint8Array.from(bytes.subarray(from + 1, from + size - 2));
  return { address: new Endpoint(host, bytes.readUInt16BE(from + size - 2)), payload: from + size };
}

const offset = 2048;
const packetSpace = Block.allocate(70_000);

/** @param target an endpoint, or an address as it goes on the wire. */
function sealPacket(sealer: PacketSealer, target: Endpoint | Uint8Array, text: string): Buffer {
  const address = target instanceof Endpoint ? writeIpAddress(target.address, target.port) : target;
  packetSpace.bytes.set(address, offset);
  packetSpace.bytes.write(text, offset + address.length, 'latin1');
  sealer.seal(packetSpace, offset, offset + address.length + text.length);
  return Buffer.from(packetSpace.bytes.subarray(sealer.start, sealer.end));
}

/** What ss-redir does, one packet at a time. */
export class PacketClient implements EventHandler {
  readonly got: Datagram[] = [];
  readonly session: ClientPacketSession;
  private readonly rig: Rig;
  private readonly server: Endpoint;
  private readonly bind4: Endpoint | undefined;
  private fd: number;
  private readonly batch = new ReceiveBatch(memory, slotSize, 0, 0, { names: false, control: false });

  constructor(rig: Rig, server: Endpoint, session: ClientPacketSession, bind4?: Endpoint) {
    this.rig = rig;
    this.bind4 = bind4;
    this.server = server;
    this.session = session;
    this.fd = this.open();
  }

  private open(): number {
    const fd = connectUdp(this.server, { mark: 0, tos: 0, bind4: this.bind4 });
    this.rig.reactor.add(fd, this, EPOLLIN);
    return fd;
  }

  /** Goes on from another port. */
  move(): void {
    this.rig.reactor.remove(this.fd);
    close(this.fd);
    this.fd = this.open();
  }

  seal(target: Endpoint | Uint8Array, text: string): Buffer {
    return sealPacket(this.session.sealer, target, text);
  }

  say(target: Endpoint | Uint8Array, text: string): void {
    this.sayRaw(this.seal(target, text));
  }

  sayRaw(packet: Buffer): void {
    packet.copy(packetSpace.bytes);
    sendto(this.fd, packetSpace.address, packet.length, 0, 0, 0);
  }

  get texts(): string {
    return this.got.map(({ text }) => text).join(' ');
  }

  onEvents(): void {
    const count = this.batch.receive(this.fd, 64);
    for (let i = 0; i < count; i++) {
      const { opener } = this.session;
      const at = i * slotSize;
      const verdict = opener.open(memory, at, at + this.batch.lengthOf(i), this.rig.reactor.nowMs);
      if (verdict !== 'accepted') {
        this.got.push({ text: verdict, from: '' });
        continue;
      }
      const { from, to } = opener;
      const { address, payload } = addressAt(memory.bytes, from);
      this.got.push({ text: memory.bytes.toString('latin1', payload, to), from: address.toString() });
    }
  }
}
