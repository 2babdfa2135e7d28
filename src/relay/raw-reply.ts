/**
 * Answers with hand-made headers (RFC 791, RFC 8200, RFC 768), written right before the payload in its block. What does not
 * fit into the way's MTU is cut here: for a raw socket the kernel cuts nothing.
 *
 *     IPv4    | version, length 1 | 0 | total u16 | id u16 | fragment u16 | TTL | 17 | checksum u16 | source 4 | destination 4 |
 *     IPv6    | version 4 | length u16 | next 1 | hop limit 1 | source 16 | destination 16 |
 *     fragment of IPv6    | 17 | 0 | offset u16 | id u32 |
 *     UDP     | source port u16 | destination port u16 | length u16 | checksum u16 |
 */
import { randomInt } from 'node:crypto';
import { SyscallError } from '../errors.js';
import { openRawSocket } from '../linux/datagram.js';
import { EMSGSIZE } from '../linux/errno.js';
import { errno } from '../linux/ffi.js';
import { sendto } from '../linux/libc.js';
import { Block } from '../linux/memory.js';
import { AF_INET } from '../linux/sockaddr.js';
import { MSG_NOSIGNAL } from '../linux/socket.js';

const udp = 17; // IANA protocol numbers
const fragment = 44;
const hopLimit = 64; // RFC 1700
const udpSize = 8;
const fragmentSize = 8;
const moreFragments4 = 0x2000;
const moreFragments6 = 1;
/** Every IPv6 link carries so much (RFC 8200, section 5). An IPv4 link that does not cuts again. */
const cutTo = 1280;

/** Where in a sockaddr the address stands, and how large it and the IP header are. */
const ipv4 = { hostAt: 4, hostSize: 4, headerSize: 20, nameSize: 16 } as const;
const ipv6 = { hostAt: 8, hostSize: 16, headerSize: 40, nameSize: 28 } as const;
type Family = typeof ipv4 | typeof ipv6;

export class RawReply {
  private readonly mark: number;
  /** -1 until one is needed. */
  private fd4 = -1;
  private fd6 = -1;
  private id = randomInt(2 ** 32);
  /** sockaddr of the present answer. sendto() of a raw socket wants no port in it (raw(7)). */
  private readonly to = Block.allocate(32);

  constructor(mark: number) {
    this.mark = mark;
  }

  /** Whether this process may have such a socket: it takes CAP_NET_RAW. */
  get isAllowed(): boolean {
    return this.socketOf(ipv4) >= 0;
  }

  /**
   * Sends `block[from..to)` from one sockaddr to the other, of the same family. There must be 56 bytes of room before `from`.
   *
   * @returns 0 or the errno.
   */
  send(block: Block, from: number, to: number, source: Buffer, client: Buffer): number {
    const family = source[0] === AF_INET ? ipv4 : ipv6;
    const fd = this.socketOf(family);
    if (fd < 0) return -fd;
    this.id = (this.id + 1) >>> 0;
    if ((this.id & 0xffff) === 0) this.id++; // for 0 the kernel chooses, another one for each piece
    copyBytes(client, 0, this.to.bytes, 0, family.nameSize);
    this.to.bytes.writeUInt16BE(0, 2);
    const datagram = from - udpSize;
    writeUdp(block.bytes, datagram, to, family, source, client);

    const header = this.writeIp(block.bytes, datagram, to, family, source, client);
    const failure = this.sendPacket(fd, block, header, to, family);
    return failure === EMSGSIZE ? this.sendPieces(fd, block, datagram, to, family, source, client) : failure;
  }

  /** Each piece's header overwrites the end of the piece before, which has gone. */
  private sendPieces(
    fd: number,
    block: Block,
    from: number,
    to: number,
    family: Family,
    source: Buffer,
    client: Buffer,
  ): number {
    const extra = family === ipv6 ? fragmentSize : 0;
    const size = (cutTo - family.headerSize - extra) & ~7;
    for (let at = from; at < to; at += size) {
      const end = Math.min(at + size, to);
      const header = this.writeIp(block.bytes, at - extra, end, family, source, client);
      this.markPiece(block.bytes, header, at - from, end < to, family);
      const failure = this.sendPacket(fd, block, header, end, family);
      if (failure !== 0) return failure;
    }
    return 0;
  }

  private writeIp(
    bytes: Buffer,
    from: number,
    to: number,
    family: Family,
    source: Buffer,
    client: Buffer,
  ): number {
    const { hostAt, hostSize, headerSize } = family;
    const header = from - headerSize;
    if (family === ipv4) {
      bytes.writeUInt32BE(0x45000000 | (to - header), header);
      bytes.writeUInt32BE((this.id & 0xffff) * 0x10000, header + 4);
      bytes.writeUInt32BE((hopLimit << 24) | (udp << 16), header + 8); // the kernel fills the checksum in
    } else {
      bytes.writeUInt32BE(0x60000000, header);
      bytes.writeUInt16BE(to - from, header + 4);
      bytes[header + 6] = udp;
      bytes[header + 7] = hopLimit;
    }
    copyBytes(source, hostAt, bytes, from - 2 * hostSize, hostSize);
    copyBytes(client, hostAt, bytes, from - hostSize, hostSize);
    return header;
  }

  /** @param offset of the piece in the datagram, a multiple of 8: it is written in eights, before three flag bits. */
  private markPiece(bytes: Buffer, header: number, offset: number, more: boolean, family: Family): void {
    if (family === ipv4) {
      bytes.writeUInt16BE((more ? moreFragments4 : 0) | (offset >> 3), header + 6);
      return;
    }
    const at = header + family.headerSize;
    bytes[header + 6] = fragment;
    bytes.writeUInt16BE(udp << 8, at);
    bytes.writeUInt16BE(offset | (more ? moreFragments6 : 0), at + 2);
    bytes.writeUInt32BE(this.id, at + 4);
  }

  private sendPacket(fd: number, block: Block, from: number, to: number, family: Family): number {
    const size = to - from;
    const sent = sendto(fd, block.at(from, size), size, MSG_NOSIGNAL, this.to.address, family.nameSize);
    return sent < 0 ? errno() : 0;
  }

  /** A negative errno where the process may not have one. */
  private socketOf(family: Family): number {
    const known = family === ipv6 ? this.fd6 : this.fd4;
    if (known >= 0) return known;
    try {
      const fd = openRawSocket(family === ipv6, this.mark);
      if (family === ipv6) this.fd6 = fd;
      else this.fd4 = fd;
      return fd;
    } catch (error) {
      if (!(error instanceof SyscallError)) throw error;
      return -error.errno;
    }
  }
}

/** The checksum goes over addresses, protocol and length, too (RFC 768; RFC 8200, section 8.1). */
function writeUdp(
  bytes: Buffer,
  at: number,
  end: number,
  family: Family,
  source: Buffer,
  client: Buffer,
): void {
  const { hostAt, hostSize } = family;
  copyBytes(source, 2, bytes, at, 2);
  copyBytes(client, 2, bytes, at + 2, 2);
  bytes.writeUInt16BE(end - at, at + 4);
  bytes.writeUInt16BE(0, at + 6);
  let sum = udp + (end - at);
  sum = addWords(sum, source, hostAt, hostAt + hostSize);
  sum = addWords(sum, client, hostAt, hostAt + hostSize);
  sum = addWords(sum, bytes, at, end);
  bytes.writeUInt16BE(sum === 0xffff ? 0xffff : 0xffff - sum, at + 6); // 0 would say: no checksum
}

/** Adds big-endian words in one's complement (RFC 1071), the last one filled up with zero. At most 0xffff. */
function addWords(start: number, bytes: Buffer, from: number, to: number): number {
  let sum = start;
  let at = from;
  for (; at + 1 < to; at += 2) {
    sum += (bytes[at]! << 8) | bytes[at + 1]!;
    if (sum > 0x3fff_0000) sum = (sum & 0xffff) + (sum >>> 16); // stays in what V8 keeps unboxed
  }
  if (at < to) sum += bytes[at]! << 8;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return sum;
}

/** A dozen bytes: Buffer.copy() takes longer. */
function copyBytes(from: Buffer, fromAt: number, to: Buffer, toAt: number, size: number): void {
  for (let i = 0; i < size; i++) to[toAt + i] = from[fromAt + i]!;
}
