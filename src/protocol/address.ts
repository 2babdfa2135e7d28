/**
 * The target address in the form of SOCKS5 (RFC 1928, section 5), as Shadowsocks sends it:
 *
 *     | ATYP | address                                     | port  |
 *     | 1    | 01: IPv4 4 | 04: IPv6 16 | 03: n 1, name n  | u16be |     7, 19 or 4 + n bytes, at most 259
 *
 * IPv4-mapped IPv6 addresses (::ffff:a.b.c.d) are made IPv4 whether written or read, and a name that is an IP address in
 * text is read as that address: rules about an address must not be dodged by spelling it differently.
 */
import { isIP } from 'node:net';
import { ProtocolError } from '../errors.js';

const atypIpv4 = 1;
const atypName = 3;
const atypIpv6 = 4;

/** ATYP, length of the name, name, port. */
export const maxAddressSize = 1 + 1 + 255 + 2;

export interface Address {
  /** An IP address in canonical text without brackets, or a name. */
  readonly host: string;
  readonly port: number;
}

export interface AddressRead extends Address {
  /** 4 or 6 when `host` is an IP address of that version, 0 when it is a name to be resolved. */
  readonly family: 0 | 4 | 6;
  /** Offset of the first byte behind the address. */
  readonly end: number;
}

/**
 * Reads the address that begins at `bytes[from]`; undefined while `bytes[from..to)` holds only a part of it.
 *
 * @throws {ProtocolError} BAD_ADDRESS, as soon as the fault is visible.
 */
export function readAddress(bytes: Uint8Array, from: number, to: number): AddressRead | undefined {
  if (to - from < 2) {
    if (to > from) checkAtyp(bytes[from]!);
    return undefined;
  }
  const atyp = checkAtyp(bytes[from]!);
  const hostAt = atyp === atypName ? from + 2 : from + 1;
  const hostSize = atyp === atypIpv4 ? 4 : atyp === atypIpv6 ? 16 : bytes[from + 1]!;
  if (hostSize === 0) throw badAddress('name of length 0, expected 1..255');
  const portAt = hostAt + hostSize;
  const end = portAt + 2;
  if (end > to) return undefined;

  const port = (bytes[portAt]! << 8) | bytes[portAt + 1]!;
  if (port === 0) throw badAddress('port 0, expected 1..65535');
  if (atyp !== atypName) {
    const host = formatIp(bytes, hostAt, hostSize);
    return { host, port, family: host.includes(':') ? 6 : 4, end };
  }
  const name = readName(bytes.subarray(hostAt, portAt));
  const ip = parseIp(name);
  if (ip === undefined) return { host: name, port, family: 0, end };
  const host = formatIp(ip, 0, ip.length);
  return { host, port, family: host.includes(':') ? 6 : 4, end };
}

function checkAtyp(atyp: number): number {
  if (atyp === atypIpv4 || atyp === atypName || atyp === atypIpv6) return atyp;
  throw badAddress(`address type ${atyp}, expected 1, 3 or 4`);
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function readName(bytes: Uint8Array): string {
  let name: string;
  try {
    name = utf8.decode(bytes);
  } catch {
    throw badAddress(`name of ${bytes.length} bytes that are not UTF-8`);
  }
  // Control characters, NUL among them, and blanks: no name has them, and a log or a resolver may stumble over them.
  if (/[\p{Cc}\p{Z}]/u.test(name))
    throw badAddress(`name of ${bytes.length} bytes with a blank or control character`);
  if (name.includes('%') && isIP(name) === 6)
    throw badAddress('IPv6 address with a zone, which means nothing here');
  return name;
}

function badAddress(what: string): ProtocolError {
  return new ProtocolError('BAD_ADDRESS', `target address: ${what}`);
}

/**
 * The bytes of an address. IP addresses in text, with or without brackets, become what they are.
 *
 * @throws {RangeError} for a name of more than 255 bytes or an impossible port.
 */
export function writeAddress({ host, port }: Address): Uint8Array {
  const ip = parseIp(host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : host);
  if (ip !== undefined) return writeIpAddress(ip, 0, ip.length, port);
  const name = Buffer.from(host, 'utf8');
  if (name.length < 1 || name.length > 255)
    throw new RangeError(`name of ${name.length} bytes, expected 1..255`);
  const bytes = new Uint8Array(1 + 1 + name.length + 2);
  bytes[0] = atypName;
  bytes[1] = name.length;
  bytes.set(name, 2);
  writePort(bytes, port);
  return bytes;
}

/** The same from the `size` (4 or 16) bytes of an IP address at `source[at]`, as they stand in a sockaddr. */
export function writeIpAddress(source: Uint8Array, at: number, size: number, port: number): Uint8Array {
  if (size === 16 && isMapped(source, at)) return writeIpAddress(source, at + 12, 4, port);
  if (size !== 4 && size !== 16) throw new RangeError(`IP address of ${size} bytes, expected 4 or 16`);
  const bytes = new Uint8Array(1 + size + 2);
  bytes[0] = size === 4 ? atypIpv4 : atypIpv6;
  for (let i = 0; i < size; i += 1) bytes[1 + i] = source[at + i]!;
  writePort(bytes, port);
  return bytes;
}

function writePort(bytes: Uint8Array, port: number): void {
  if (!Number.isInteger(port) || port < 0 || port > 0xffff)
    throw new RangeError(`port ${port}, expected 0..65535`);
  bytes[bytes.length - 2] = port >>> 8;
  bytes[bytes.length - 1] = port & 0xff;
}

/** ::ffff:0:0/96 (RFC 4291, section 2.5.5.2) */
function isMapped(bytes: Uint8Array, at: number): boolean {
  for (let i = 0; i < 10; i += 1) if (bytes[at + i] !== 0) return false;
  return bytes[at + 10] === 0xff && bytes[at + 11] === 0xff;
}

/** Canonical text of an IP address (RFC 5952); IPv4 for an IPv4-mapped one. */
export function formatIp(bytes: Uint8Array, at: number, size: number): string {
  if (size === 4) return `${bytes[at]}.${bytes[at + 1]}.${bytes[at + 2]}.${bytes[at + 3]}`;
  if (isMapped(bytes, at)) return formatIp(bytes, at + 12, 4);
  const groups = Array.from({ length: 8 }, (_, i) => (bytes[at + 2 * i]! << 8) | bytes[at + 2 * i + 1]!);
  const { start, length } = longestZeroRun(groups);
  const text = (part: number[]) => part.map((group) => group.toString(16)).join(':');
  if (length < 2) return text(groups);
  return `${text(groups.slice(0, start))}::${text(groups.slice(start + length))}`;
}

/** The first of the longest. */
function longestZeroRun(groups: number[]): { start: number; length: number } {
  let best = { start: 0, length: 0 };
  let length = 0;
  for (const [i, group] of groups.entries()) {
    length = group === 0 ? length + 1 : 0;
    if (length > best.length) best = { start: i - length + 1, length };
  }
  return best;
}

/** The 4 or 16 bytes of an IP address in text; undefined if it is none, or has a zone, which no peer could use. */
export function parseIp(text: string): Uint8Array | undefined {
  const family = isIP(text);
  if (family === 4) return parseIpv4(text);
  if (family === 0 || text.includes('%')) return undefined;
  const lastColon = text.lastIndexOf(':');
  const last = text.slice(lastColon + 1);
  if (!last.includes('.')) return parseGroups(text);
  const [a, b, c, d] = parseIpv4(last) as unknown as [number, number, number, number];
  const groups = [(a << 8) | b, (c << 8) | d].map((group) => group.toString(16)).join(':');
  return parseGroups(text.slice(0, lastColon + 1) + groups);
}

function parseIpv4(text: string): Uint8Array {
  return Uint8Array.from(text.split('.'), Number);
}

/** Of an address that is known to be right. */
function parseGroups(text: string): Uint8Array {
  const [head = '', tail] = text.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const bytes = new Uint8Array(16);
  const view = new DataView(bytes.buffer);
  before.forEach((group, i) => view.setUint16(2 * i, Number.parseInt(group, 16)));
  after.forEach((group, i) => view.setUint16(2 * (8 - after.length + i), Number.parseInt(group, 16)));
  return bytes;
}
