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
const fragmentHeader = 44;
const hopLimit = 64;
const udpSize = 8;
const ipv4Size = 20;
const ipv6Size = 40;
const fragmentSize = 8;
/** Every IPv6 link carries so much (RFC 8200, section 5); an IPv4 link that does not will cut again. */
const cutTo = 1280;
const moreFragments4 = 0x2000;
const moreFragments6 = 1;

export class RawReply {
  private readonly mark: number;
  /** -1 until one is needed. */
  private fd4 = -1;
  private fd6 = -1;
  private id = randomInt(2 ** 32);
  /** sendto() of a raw socket wants no port (raw(7)). */
  private readonly to = Block.allocate(32);

  constructor(mark: number) {
    this.mark = mark;
  }

  /**
   * Sends `block[from..to)` from one sockaddr to the other, of the same family. There must be 56 bytes of room before `from`.
   *
   * @returns 0 or the errno.
   */
  send(
    block: Block,
    from: number,
    to: number,
    source: Buffer,
    sourceAt: number,
    client: Buffer,
    clientAt: number,
  ): number {
    const ipv6 = source[sourceAt] !== AF_INET;
    const fd = this.open(ipv6);
    if (fd < 0) return -fd;
    const nameSize = ipv6 ? 28 : 16;
    this.to.bytes.set(client.subarray(clientAt, clientAt + nameSize));
    this.to.bytes.writeUInt16BE(0, 2);
    const { bytes } = block;
    const addressSize = ipv6 ? 16 : 4;
    const hostAt = ipv6 ? 8 : 4;
    const headerSize = ipv6 ? ipv6Size : ipv4Size;
    const datagram = from - udpSize;
    writeUdp(bytes, datagram, to, source, sourceAt, client, clientAt, ipv6);

    const write = (at: number, end: number, offset: number, more: boolean, cut: boolean): number => {
      const extra = ipv6 && cut ? fragmentSize : 0;
      const header = at - extra - headerSize;
      if (ipv6) {
        bytes.writeUInt32BE(0x60000000, header);
        bytes.writeUInt16BE(end - at + extra, header + 4);
        bytes[header + 6] = cut ? fragmentHeader : udp;
        bytes[header + 7] = hopLimit;
        if (cut) {
          bytes.writeUInt16BE(udp << 8, at - fragmentSize);
          bytes.writeUInt16BE(offset | (more ? moreFragments6 : 0), at - 6);
          bytes.writeUInt32BE(this.id, at - 4);
        }
      } else {
        bytes.writeUInt32BE(0x45000000 | (end - header), header);
        bytes.writeUInt16BE(this.id & 0xffff, header + 4);
        bytes.writeUInt16BE((more ? moreFragments4 : 0) | (offset >> 3), header + 6);
        bytes.writeUInt32BE((hopLimit << 24) | (udp << 16), header + 8); // the kernel fills the checksum in
      }
      const addresses = header + headerSize - 2 * addressSize;
      source.copy(bytes, addresses, sourceAt + hostAt, sourceAt + hostAt + addressSize);
      client.copy(bytes, addresses + addressSize, clientAt + hostAt, clientAt + hostAt + addressSize);
      const size = end - header;
      return sendto(fd, block.at(header, size), size, MSG_NOSIGNAL, this.to.address, nameSize) < 0
        ? errno()
        : 0;
    };

    this.id = (this.id + 1) >>> 0;
    const failure = write(datagram, to, 0, false, false);
    if (failure !== EMSGSIZE) return failure;
    const piece = (cutTo - headerSize - (ipv6 ? fragmentSize : 0)) & ~7;
    // Each header overwrites the end of the piece before, which has gone.
    for (let at = datagram; at < to; at += piece) {
      const last = at + piece >= to;
      const failed = write(at, last ? to : at + piece, at - datagram, !last, true);
      if (failed !== 0) return failed;
    }
    return 0;
  }

  /** A negative errno where the process may not. */
  private open(ipv6: boolean): number {
    const known = ipv6 ? this.fd6 : this.fd4;
    if (known >= 0) return known;
    try {
      const fd = openRawSocket(ipv6, this.mark);
      if (ipv6) this.fd6 = fd;
      else this.fd4 = fd;
      return fd;
    } catch (error) {
      if (!(error instanceof SyscallError)) throw error;
      return -error.errno;
    }
  }
}

function writeUdp(
  bytes: Buffer,
  at: number,
  end: number,
  source: Buffer,
  sourceAt: number,
  client: Buffer,
  clientAt: number,
  ipv6: boolean,
): void {
  const size = end - at;
  source.copy(bytes, at, sourceAt + 2, sourceAt + 4);
  client.copy(bytes, at + 2, clientAt + 2, clientAt + 4);
  bytes.writeUInt16BE(size, at + 4);
  bytes.writeUInt16BE(0, at + 6);
  const hostAt = ipv6 ? 8 : 4;
  const addressSize = ipv6 ? 16 : 4;
  let sum = udp + size;
  sum += sumOf(source, sourceAt + hostAt, sourceAt + hostAt + addressSize);
  sum += sumOf(client, clientAt + hostAt, clientAt + hostAt + addressSize);
  sum += sumOf(bytes, at, end);
  while (sum > 0xffff) sum = (sum & 0xffff) + Math.floor(sum / 0x10000);
  bytes.writeUInt16BE(sum === 0xffff ? 0xffff : ~sum & 0xffff, at + 6); // 0 would say: no checksum
}

/** Sum of the big-endian words (RFC 1071); at most 65,535 / 2 of them, so it stays below 2^31. */
function sumOf(bytes: Buffer, from: number, to: number): number {
  let sum = 0;
  let at = from;
  for (; at + 1 < to; at += 2) sum += (bytes[at]! << 8) | bytes[at + 1]!;
  return at < to ? sum + (bytes[at]! << 8) : sum;
}
