/**
 * recvmmsg(2) and sendmmsg(2): many datagrams in a call. Each message is (include/linux/socket.h, include/uapi/linux/uio.h)
 *
 *     mmsghdr    | name | name length u32 | iovec | iovec count | control | control length | flags u32 | bytes u32 |
 *     iovec      | base | length |
 *     cmsghdr    | length | level u32 | type u32 | data …
 *
 * with pointers, counts and lengths of one machine word where no width is given, each at a multiple of its size.
 */
import { EAGAIN, ECONNREFUSED, EIO } from './errno.js';
import { errno } from './ffi.js';
import { recv, recvmmsg, send, sendmmsg, sendmsg, sendto } from './libc.js';
import { Block } from './memory.js';
import { MSG_NOSIGNAL } from './socket.js';
import { IP_PKTINFO, IPV6_PKTINFO, SOL_IP, SOL_IPV6, SOL_UDP, UDP_SEGMENT } from './sockopt.js';

/** 32-bit words in a machine word. */
const long = process.arch === 'arm' || process.arch === 'ia32' ? 1 : 2;

// Offsets in 32-bit words.
const nameLengthAt = long;
const vectorAt = 2 * long;
const vectorCountAt = 3 * long;
const controlAt = 4 * long;
const controlLengthAt = 5 * long;
const flagsAt = 6 * long;
const bytesAt = 6 * long + long;
const messageWords = 8 * long;
const vectorWords = 2 * long;
const controlHeaderSize = (long + 2) * 4;

const MSG_TRUNC = 0x20; // include/linux/socket.h

/** sockaddr_in6 has 28 bytes. */
export const nameStride = 32;
/** Header, then at most a sockaddr_in6. */
const controlStride = 48;
const maxNameSize = 28;
const maxControlSize = controlHeaderSize + 28;

function words(block: Block): Uint32Array {
  return new Uint32Array(block.bytes.buffer, block.bytes.byteOffset, block.size >> 2);
}

function setPointer(array: Uint32Array, at: number, address: number): void {
  array[at] = address; // the low 32 bits: stores into a Uint32Array are modulo 2^32
  if (long === 2) array[at + 1] = address / 0x1_0000_0000;
}

export interface ReceiveOptions {
  /** Learn who sent each datagram. */
  names: boolean;
  /** Learn the one control message of each datagram. */
  control: boolean;
}

/**
 * Receives up to `slots` datagrams a call, datagram i to `block[i * slotSize + offset ...]`, at most to the end of the slot less
 * `tailroom`. The block is shared: several of these, each for another kind of socket, may lie over it.
 */
export class ReceiveBatch {
  readonly slots: number;
  readonly slotSize: number;
  readonly offset: number;
  /** sockaddr of datagram i at `i * nameStride`. */
  readonly names: Block;
  private readonly control: Block;
  private readonly controlWords: Uint32Array;
  private readonly headers: Block;
  private readonly headerWords: Uint32Array;
  private readonly vectors: Block;
  private readonly room: number;
  private readonly firstAddress: number;
  private readonly withNames: boolean;
  private readonly withControl: boolean;
  /** Slots that the last call has filled; all of them at first. */
  private used: number;

  constructor(block: Block, slotSize: number, offset: number, tailroom: number, options: ReceiveOptions) {
    const slots = Math.floor(block.size / slotSize);
    this.slots = slots;
    this.used = slots;
    this.slotSize = slotSize;
    this.offset = offset;
    this.room = slotSize - offset - tailroom;
    this.firstAddress = block.at(offset, this.room);
    this.withNames = options.names;
    this.withControl = options.control;
    this.names = Block.allocate(slots * nameStride);
    this.control = Block.allocate(slots * controlStride);
    this.controlWords = words(this.control);
    this.headers = Block.allocate(slots * messageWords * 4);
    this.headerWords = words(this.headers);
    this.vectors = Block.allocate(slots * vectorWords * 4);
    this.point(block, this.room);
  }

  private point(block: Block, room: number): void {
    const vectors = words(this.vectors);
    for (let i = 0; i < this.slots; i++) {
      setPointer(vectors, i * vectorWords, block.at(i * this.slotSize + this.offset, room));
      vectors[i * vectorWords + long] = room;
      const header = i * messageWords;
      const { headerWords } = this;
      if (this.withNames) setPointer(headerWords, header, this.names.at(i * nameStride, maxNameSize));
      setPointer(headerWords, header + vectorAt, this.vectors.at(i * vectorWords * 4, vectorWords * 4));
      headerWords[header + vectorCountAt] = 1;
      if (this.withControl) {
        setPointer(headerWords, header + controlAt, this.control.at(i * controlStride, controlStride));
      }
    }
  }

  /** How many datagrams came, at most `slots` of them; or the negative errno, EAGAIN when there are none. */
  receive(fd: number, slots: number): number {
    if (slots === 1 && !this.withNames && !this.withControl) return this.receiveOne(fd);
    if (this.withNames || this.withControl) this.restoreRoom();
    const count = recvmmsg(fd, this.headers.address, slots, 0, 0);
    if (count < 0) return -errno();
    this.used = count;
    return count;
  }

  /** Half the price of recvmmsg() for one, and most session sockets have one. */
  private receiveOne(fd: number): number {
    const size = recv(fd, this.firstAddress, this.room, MSG_TRUNC);
    if (size < 0) return -errno();
    this.headerWords[bytesAt] = Math.min(size, this.room);
    this.headerWords[flagsAt] = size > this.room ? MSG_TRUNC : 0;
    return 1;
  }

  /** The kernel has left the sizes of what it wrote, and would take them for the room there is. */
  private restoreRoom(): void {
    const { headerWords, used } = this;
    for (let i = 0; i < used; i++) {
      if (this.withNames) headerWords[i * messageWords + nameLengthAt] = maxNameSize;
      if (this.withControl) headerWords[i * messageWords + controlLengthAt] = maxControlSize;
    }
    this.used = 0;
  }

  /** Where the sender's sockaddr stands in `names`. */
  nameAt(slot: number): number {
    return slot * nameStride;
  }

  lengthOf(slot: number): number {
    return this.headerWords[slot * messageWords + bytesAt]!;
  }

  isTruncated(slot: number): boolean {
    return (this.headerWords[slot * messageWords + flagsAt]! & MSG_TRUNC) !== 0;
  }

  /** Whether the datagram's control message is of this level and type. Its data then stand at `controlData(slot)`. */
  hasControl(slot: number, level: number, type: number): boolean {
    if (this.headerWords[slot * messageWords + controlLengthAt]! < controlHeaderSize) return false;
    const at = (slot * controlStride) / 4 + long;
    return this.controlWords[at] === level && this.controlWords[at + 1] === type;
  }

  get controlBytes(): Buffer {
    return this.control.bytes;
  }

  controlData(slot: number): number {
    return slot * controlStride + controlHeaderSize;
  }
}

function aligned(size: number): number {
  return Math.ceil(size / (long * 4)) * long * 4;
}

const inPacketInfoSize = 12; // include/uapi/linux/in.h: interface int, source 4, destination 4
const in6PacketInfoSize = 20; // include/uapi/linux/ipv6.h: address 16, interface int
export function packetInfoSize(ipv6: boolean): number {
  return ipv6 ? in6PacketInfoSize : inPacketInfoSize;
}

const segmentControlSize = controlHeaderSize + 2;

/**
 * The control messages of a send: from which of our addresses (IP_PKTINFO, IPV6_PKTINFO), where that matters, and the size of
 * segments (UDP_SEGMENT).
 */
export class SendControl {
  readonly block = Block.allocate(128);
  /** Bytes without, and with, the segment size. */
  readonly size: number;
  readonly segmentedSize: number;
  private readonly segmentWord: number;
  private readonly words = words(this.block);

  /** @param family whose packet info goes first, if any. */
  constructor(packetInfo?: 'ipv4' | 'ipv6') {
    const infoSize = packetInfoSize(packetInfo === 'ipv6');
    if (packetInfo !== undefined) {
      this.words[0] = controlHeaderSize + infoSize;
      this.words[long] = packetInfo === 'ipv4' ? SOL_IP : SOL_IPV6;
      this.words[long + 1] = packetInfo === 'ipv4' ? IP_PKTINFO : IPV6_PKTINFO;
    }
    this.size = packetInfo === undefined ? 0 : aligned(controlHeaderSize + infoSize);
    const at = this.size / 4;
    this.words[at] = segmentControlSize;
    this.words[at + long] = SOL_UDP;
    this.words[at + long + 1] = UDP_SEGMENT;
    this.segmentWord = at + controlHeaderSize / 4;
    this.segmentedSize = this.size + aligned(segmentControlSize);
  }

  setSegmentSize(size: number): void {
    this.words[this.segmentWord] = size;
  }

  /** Answers from where the datagram came to whose packet info, as received, is at `bytes[at]`. */
  setSource(ipv6: boolean, bytes: Buffer, at: number): void {
    const to = this.block.bytes;
    const data = controlHeaderSize;
    if (!ipv6) {
      to.fill(0, data, data + inPacketInfoSize);
      for (let i = 4; i < 8; i++) to[data + i] = bytes[at + i]!;
      return;
    }
    for (let i = 0; i < 16; i++) to[data + i] = bytes[at + i]!;
    const linkLocal = bytes[at] === 0xfe && (bytes[at + 1]! & 0xc0) === 0x80; // RFC 4291: says nothing without its interface
    for (let i = 16; i < 20; i++) to[data + i] = linkLocal ? bytes[at + i]! : 0;
  }
}

const withoutSource = new SendControl();

/** UDP_MAX_SEGMENTS (include/linux/udp.h) of the first kernels that have it. */
const maxSegments = 64;
/** All segments are one UDP datagram to the kernel until they are cut, as late as in the driver. */
const maxSegmentedSize = 65_000;
/** A segment must fit into the MTU, of which an Ethernet with IPv4 is the usual one. */
const maxSegmentSize = 1472;

export interface SendOptions {
  /** Runs as one segmented message. Default true. */
  segmented?: boolean;
}

/**
 * Sends datagrams through one socket: `add` them, then `send`. Runs of equal size to one destination go as one segmented
 * message (UDP_SEGMENT, Linux 4.18), the rest many in a call.
 */
export class SendBatch {
  /** After `send`: the errno of the last datagram that could not be sent, 0 when all were. */
  failure = 0;
  private readonly capacity: number;
  private readonly headers: Block;
  private readonly headerWords: Uint32Array;
  private readonly vectors: Block;
  private readonly vectorWords: Uint32Array;
  private readonly addresses: Float64Array;
  private readonly names: Float64Array;
  private readonly nameSizes: Uint8Array;
  private readonly sizes: Uint32Array;
  private readonly segmented = Block.allocate(messageWords * 4);
  private readonly segmentedWords = words(this.segmented);
  private control = withoutSource;
  private count = 0;
  private canSegment: boolean;

  constructor(capacity: number, { segmented = true }: SendOptions = {}) {
    this.capacity = capacity;
    this.canSegment = segmented;
    this.headers = Block.allocate(capacity * messageWords * 4);
    this.headerWords = words(this.headers);
    this.vectors = Block.allocate(capacity * vectorWords * 4);
    this.vectorWords = words(this.vectors);
    this.addresses = new Float64Array(capacity);
    this.names = new Float64Array(capacity);
    this.nameSizes = new Uint8Array(capacity);
    this.sizes = new Uint32Array(capacity);
    for (let i = 0; i < capacity; i++) {
      const header = i * messageWords;
      setPointer(this.headerWords, header + vectorAt, this.vectors.at(i * vectorWords * 4, vectorWords * 4));
      this.headerWords[header + vectorCountAt] = 1;
    }
  }

  get full(): boolean {
    return this.count === this.capacity;
  }

  get size(): number {
    return this.count;
  }

  /**
   * Queues `size` bytes at `address`. They must stay there until `send`.
   *
   * @param name address of a sockaddr of `nameSize` bytes; 0 and 0 on a connected socket.
   */
  add(address: number, size: number, name: number, nameSize: number): void {
    const i = this.count++;
    this.addresses[i] = address;
    this.sizes[i] = size;
    this.names[i] = name;
    this.nameSizes[i] = nameSize;
  }

  /** Sends all that is queued, and empties the queue. Returns how many datagrams were not sent; `failure` says why. */
  send(fd: number, control: SendControl = withoutSource): number {
    const { count } = this;
    this.control = control;
    this.count = 0;
    this.failure = 0;
    let lost = 0;
    let at = 0;
    while (at < count) {
      const run = this.canSegment ? this.runFrom(at, count) : 1;
      if (run > 1) {
        lost += this.sendRun(fd, at, run);
        at += run;
        continue;
      }
      const from = at++;
      while (at < count && (!this.canSegment || this.runFrom(at, count) === 1)) at++;
      const alone = at - from === 1 && control.size === 0;
      lost += alone ? this.sendOne(fd, from) : this.sendMany(fd, from, at);
    }
    return lost;
  }

  /** How many datagrams from `at` on can go as one: one destination, one size, but for the last, which may be smaller. */
  private runFrom(at: number, count: number): number {
    const size = this.sizes[at]!;
    const name = this.names[at]!;
    if (size > maxSegmentSize || size === 0) return 1;
    const last = Math.min(count, at + maxSegments, at + Math.floor(maxSegmentedSize / size));
    let end = at + 1;
    while (end < last && this.names[end] === name && this.sizes[end]! <= size && this.sizes[end]! > 0) {
      end++;
      if (this.sizes[end - 1]! < size) break;
    }
    return end - at;
  }

  private sendOne(fd: number, at: number): number {
    for (let attempt = 0; attempt < 2; attempt++) {
      const address = this.addresses[at]!;
      const size = this.sizes[at]!;
      const nameSize = this.nameSizes[at]!;
      const sent =
        nameSize === 0
          ? send(fd, address, size, MSG_NOSIGNAL)
          : sendto(fd, address, size, MSG_NOSIGNAL, this.names[at]!, nameSize);
      if (sent >= 0) return 0;
      const number = errno();
      this.failure = number;
      if (number !== ECONNREFUSED) break; // told of an earlier datagram; this one was not tried
    }
    return 1;
  }

  private sendRun(fd: number, from: number, count: number): number {
    this.pointVectors(from, from + count);
    const { segmentedWords } = this;
    setPointer(segmentedWords, 0, this.names[from]!);
    segmentedWords[nameLengthAt] = this.nameSizes[from]!;
    setPointer(segmentedWords, vectorAt, this.vectors.at(from * vectorWords * 4, count * vectorWords * 4));
    segmentedWords[vectorCountAt] = count;
    const { control } = this;
    control.setSegmentSize(this.sizes[from]!);
    setPointer(segmentedWords, controlAt, control.block.address);
    segmentedWords[controlLengthAt] = control.segmentedSize;
    if (sendmsg(fd, this.segmented.address, MSG_NOSIGNAL) >= 0) return 0;
    const number = errno();
    if (number === EAGAIN) {
      this.failure = number;
      return count;
    }
    // EINVAL, EMSGSIZE: a segment is larger than this path's MTU. EIO: the device has no checksums for segments, now or ever.
    if (number === EIO) this.canSegment = false;
    return this.sendMany(fd, from, from + count);
  }

  private sendMany(fd: number, from: number, to: number): number {
    this.pointVectors(from, to);
    this.pointHeaders(from, to);
    let lost = 0;
    let at = from;
    let retried = -1;
    while (at < to) {
      const header = this.headers.at(at * messageWords * 4, (to - at) * messageWords * 4);
      const sent = sendmmsg(fd, header, to - at, MSG_NOSIGNAL);
      if (sent > 0) {
        at += sent;
        continue;
      }
      const number = errno();
      this.failure = number;
      if (number === EAGAIN) return lost + (to - at);
      if (number === ECONNREFUSED && retried !== at) {
        retried = at;
        continue;
      }
      lost++;
      at++;
    }
    return lost;
  }

  private pointVectors(from: number, to: number): void {
    const { vectorWords: array } = this;
    for (let i = from; i < to; i++) {
      setPointer(array, i * vectorWords, this.addresses[i]!);
      array[i * vectorWords + long] = this.sizes[i]!;
    }
  }

  private pointHeaders(from: number, to: number): void {
    const { headerWords, control } = this;
    for (let i = from; i < to; i++) {
      const header = i * messageWords;
      setPointer(headerWords, header, this.names[i]!);
      headerWords[header + nameLengthAt] = this.nameSizes[i]!;
      setPointer(headerWords, header + controlAt, control.size === 0 ? 0 : control.block.address);
      headerWords[header + controlLengthAt] = control.size;
    }
  }
}
