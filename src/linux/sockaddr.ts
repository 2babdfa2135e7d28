/**
 * sockaddr_in and sockaddr_in6 (include/uapi/linux/in.h, in6.h) <-> Endpoint.
 *
 *     sockaddr_in     | family u16 | port u16be | address 4 | zero 8 |                              16 bytes
 *     sockaddr_in6    | family u16 | port u16be | flowinfo u32 | address 16 | scope_id u32 |        28 bytes
 *
 * An IPv4-mapped IPv6 address (::ffff:a.b.c.d) is turned into IPv4 wherever one is read, so nothing behind this file
 * ever sees one.
 */
import { errno } from './ffi.js';
import { Block } from './memory.js';
import { errnoName } from './errno.js';
import { ifNametoindex, inetNtop, inetPton } from './libc.js';

export const AF_INET = 2; // include/linux/socket.h
export const AF_INET6 = 10;

const inSize = 2 + 2 + 4 + 8;
const in6Size = 2 + 2 + 4 + 16 + 4;
const INET6_ADDRSTRLEN = 46; // POSIX netinet/in.h

/** An address and a port as numbers: `address` has 4 bytes for IPv4 and 16 for IPv6, in network order. */
export class Endpoint {
  readonly address: Uint8Array;
  readonly port: number;
  /** Interface index of a link-local IPv6 address, else 0. */
  readonly scope: number;

  constructor(address: Uint8Array, port: number, scope = 0) {
    this.address = address;
    this.port = port;
    this.scope = scope;
  }

  /** From a numeric host, `fe80::1%eth0` included; undefined when `host` is a name. */
  static parse(host: string, port: number): Endpoint | undefined {
    const [text, zone] = host.split('%', 2) as [string, string?];
    if (inetPton(AF_INET, text, scratch.address) === 1) return new Endpoint(copyOut(4), port);
    if (inetPton(AF_INET6, text, scratch.address) !== 1) return undefined;
    if (isMapped(scratch.bytes, 0))
      return new Endpoint(Uint8Array.from(scratch.bytes.subarray(12, 16)), port);
    return new Endpoint(copyOut(16), port, zone === undefined ? 0 : scopeOf(zone));
  }

  get isIpv4(): boolean {
    return this.address.length === 4;
  }

  equals(other: Endpoint): boolean {
    if (this.port !== other.port || this.address.length !== other.address.length) return false;
    return this.address.every((byte, i) => byte === other.address[i]);
  }

  /** The numeric address, without brackets. */
  get host(): string {
    scratch.bytes.set(this.address);
    const out = scratch.at(16, INET6_ADDRSTRLEN);
    if (inetNtop(this.isIpv4 ? AF_INET : AF_INET6, scratch.address, out, INET6_ADDRSTRLEN) === 0) {
      throw new RangeError(`inet_ntop: ${errnoName(errno())}`);
    }
    return scratch.bytes.toString('latin1', 16, scratch.bytes.indexOf(0, 16));
  }

  /** `192.0.2.1:80`, `[2001:db8::1]:80`. */
  toString(): string {
    return this.isIpv4 ? `${this.host}:${this.port}` : `[${this.host}]:${this.port}`;
  }
}

/** Room for any sockaddr, with the socklen_t that calls fill in behind it. Reused by every call of the thread. */
export class SockaddrBlock {
  private readonly block = Block.allocate(in6Size + 4);

  get address(): number {
    return this.block.address;
  }

  get contents(): Buffer {
    return this.block.bytes;
  }

  /** Address of a socklen_t that says how much room there is. Write it anew before every call. */
  prepareLength(): number {
    this.block.bytes.writeUInt32LE(in6Size, in6Size);
    return this.block.at(in6Size, 4);
  }

  /** Writes `endpoint` for a socket of `family`: IPv4 becomes IPv4-mapped on an IPv6 socket. Returns the size. */
  write(endpoint: Endpoint, family: number = endpoint.isIpv4 ? AF_INET : AF_INET6): number {
    const { bytes } = this.block;
    bytes.fill(0, 0, in6Size);
    bytes.writeUInt16LE(family, 0);
    bytes.writeUInt16BE(endpoint.port, 2);
    if (family === AF_INET) {
      bytes.set(endpoint.address, 4);
      return inSize;
    }
    if (endpoint.isIpv4) {
      bytes.fill(0xff, 8 + 10, 8 + 12);
      bytes.set(endpoint.address, 8 + 12);
    } else {
      bytes.set(endpoint.address, 8);
    }
    bytes.writeUInt32LE(endpoint.scope, 8 + 16);
    return in6Size;
  }

  /** What a call wrote; undefined for a family that is neither IPv4 nor IPv6. */
  read(): Endpoint | undefined {
    const { bytes } = this.block;
    const family = bytes.readUInt16LE(0);
    const port = bytes.readUInt16BE(2);
    if (family === AF_INET) return new Endpoint(Uint8Array.from(bytes.subarray(4, 8)), port);
    if (family !== AF_INET6) return undefined;
    if (isMapped(bytes, 8)) return new Endpoint(Uint8Array.from(bytes.subarray(20, 24)), port);
    const scope = bytes.readUInt32LE(8 + 16);
    return new Endpoint(Uint8Array.from(bytes.subarray(8, 24)), port, scope);
  }
}

const scratch = Block.allocate(16 + INET6_ADDRSTRLEN);

function copyOut(size: number): Uint8Array {
  return Uint8Array.from(scratch.bytes.subarray(0, size));
}

/** ::ffff:0:0/96 (RFC 4291 section 2.5.5.2). */
export function isMapped(bytes: Uint8Array, at: number): boolean {
  for (let i = 0; i < 10; i++) if (bytes[at + i] !== 0) return false;
  return bytes[at + 10] === 0xff && bytes[at + 11] === 0xff;
}

function scopeOf(zone: string): number {
  return /^\d+$/.test(zone) ? Number(zone) : ifNametoindex(zone);
}
