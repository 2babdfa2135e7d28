/**
 * Addresses of datagrams between the two forms that they have here, byte for byte and without an object:
 *
 *     sockaddr (linux/sockaddr.ts)    as the kernel gives and takes them
 *     SOCKS5 (protocol/address.ts)    as they stand before a payload
 *
 * IPv4-mapped IPv6 addresses become IPv4 in either direction.
 */
import { AF_INET, AF_INET6, Endpoint, isMapped } from '../linux/sockaddr.js';

const atypIpv4 = 1;
const atypName = 3;
const atypIpv6 = 4;
const inSize = 16;
const in6Size = 28;

/** Writes the sockaddr at `from[at]` so that it ends before `to[end]`. Returns where it begins. */
export function writeSocksBefore(from: Buffer, at: number, to: Buffer, end: number): number {
  const ipv6 = from[at] !== AF_INET && !isMapped(from, at + 8);
  const size = ipv6 ? 16 : 4;
  const host = from[at] === AF_INET ? at + 4 : ipv6 ? at + 8 : at + 20;
  const start = end - 2 - size - 1;
  to[start] = ipv6 ? atypIpv6 : atypIpv4;
  for (let i = 0; i < size; i++) to[start + 1 + i] = from[host + i]!;
  to[end - 2] = from[at + 2]!;
  to[end - 1] = from[at + 3]!;
  return start;
}

/** The size of the well-formed address at `bytes[at]`. */
export function socksSize(bytes: Buffer, at: number): number {
  const atyp = bytes[at];
  return atyp === atypIpv4 ? 7 : atyp === atypIpv6 ? 19 : 4 + bytes[at + 1]!;
}

/** Writes the sockaddr of the well-formed address at `from[at]` to `to[toAt]`. Returns its size, 0 for a name. */
export function writeSockaddr(from: Buffer, at: number, to: Buffer, toAt: number): number {
  const atyp = from[at];
  if (atyp === atypName) return 0;
  if (atyp === atypIpv4) return writeIpv4(from, at + 1, at + 5, to, toAt);
  if (isMapped(from, at + 1)) return writeIpv4(from, at + 13, at + 17, to, toAt);
  to.fill(0, toAt, toAt + in6Size);
  to[toAt] = AF_INET6;
  to[toAt + 2] = from[at + 17]!;
  to[toAt + 3] = from[at + 18]!;
  for (let i = 0; i < 16; i++) to[toAt + 8 + i] = from[at + 1 + i]!;
  return in6Size;
}

/** Copies the sockaddr at `from[at]`, an IPv4-mapped one as IPv4. Returns its size. */
export function copySockaddr(from: Buffer, at: number, to: Buffer, toAt: number): number {
  if (from[at] !== AF_INET && isMapped(from, at + 8)) return writeIpv4(from, at + 20, at + 2, to, toAt);
  const size = from[at] === AF_INET ? inSize : in6Size;
  for (let i = 0; i < size; i++) to[toAt + i] = from[at + i]!;
  return size;
}

export function sockaddrPort(bytes: Buffer, at: number): number {
  return (bytes[at + 2]! << 8) | bytes[at + 3]!;
}

function writeIpv4(from: Buffer, host: number, port: number, to: Buffer, toAt: number): number {
  for (let i = 0; i < inSize; i++) to[toAt + i] = 0;
  to[toAt] = AF_INET;
  to[toAt + 2] = from[port]!;
  to[toAt + 3] = from[port + 1]!;
  for (let i = 0; i < 4; i++) to[toAt + 4 + i] = from[host + i]!;
  return inSize;
}

/** A hash of the network that the sockaddr at `bytes[at]` is of: IPv4's address, or what one line has of IPv6, its first 64 bits. */
export function networkHash(bytes: Buffer, at: number, seed: number): number {
  const isIpv4 = bytes[at] === AF_INET || isMapped(bytes, at + 8);
  const from = bytes[at] === AF_INET ? at + 4 : isIpv4 ? at + 20 : at + 8;
  let hash = Math.imul(bytes.readInt32LE(from) ^ seed, 0x9e3779b1);
  if (!isIpv4) hash = Math.imul(hash ^ (hash >>> 15) ^ bytes.readInt32LE(from + 4), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** The sockaddr at `bytes[at]` as an object: not for every datagram. */
export function endpointAt(bytes: Buffer, at: number): Endpoint {
  const port = sockaddrPort(bytes, at);
  if (bytes[at] === AF_INET) return new Endpoint(Uint8Array.from(bytes.subarray(at + 4, at + 8)), port);
  const from = isMapped(bytes, at + 8) ? at + 20 : at + 8;
  return new Endpoint(Uint8Array.from(bytes.subarray(from, at + 24)), port, bytes.readUInt32LE(at + 24));
}
