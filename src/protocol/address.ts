/**
 * The target address in the form of SOCKS5 (RFC 1928, section 5), as Shadowsocks sends it:
 *
 *     | ATYP | address                                     | port  |
 *     | 1    | 01: IPv4 4 | 04: IPv6 16 | 03: n 1, name n  | u16be |     7, 19 or 4 + n bytes, at most 259
 *
 * IPv4-mapped IPv6 addresses (::ffff:a.b.c.d) are made IPv4 whether written or read, and a name that is an IP address in
 * text is read as that address: rules about an address must not be dodged by spelling it differently.
 */
import { ProtocolError } from '../errors.js';
import { Endpoint, isMapped } from '../linux/sockaddr.js';

const atypIpv4 = 1;
const atypName = 3;
const atypIpv6 = 4;

/** A name of one byte. */
export const minAddressSize = 1 + 1 + 1 + 2;

/** ATYP, length of the name, name, port. */
export const maxAddressSize = 1 + 1 + 255 + 2;

export interface Address {
  /** An IP address in canonical text without brackets, or a name. */
  readonly host: string;
  readonly port: number;
}

export interface AddressRead extends Address {
  /** What `host` and `port` are, when `host` is an IP address; undefined for a name, which has to be resolved. */
  readonly endpoint: Endpoint | undefined;
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
  if (atyp !== atypName) return atEndpoint(new Endpoint(readIp(bytes, hostAt, hostSize), port), end);
  const name = readName(bytes.subarray(hostAt, portAt));
  const endpoint = Endpoint.parse(name, port);
  return endpoint === undefined ? { host: name, port, endpoint, end } : atEndpoint(endpoint, end);
}

/**
 * The size of the address that begins at `bytes[from]`; -1 when `bytes[from..to)` does not begin with a whole one. Makes no
 * object, and looks at the form only: `readAddress` may refuse the characters of a name, or the port.
 */
export function addressSize(bytes: Uint8Array, from: number, to: number): number {
  if (to - from < 2) return -1;
  const atyp = bytes[from]!;
  const nameSize = bytes[from + 1]!;
  const size =
    atyp === atypIpv4
      ? 1 + 4 + 2
      : atyp === atypIpv6
        ? 1 + 16 + 2
        : atyp === atypName && nameSize > 0
          ? 1 + 1 + nameSize + 2
          : Infinity;
  return size <= to - from ? size : -1;
}

function atEndpoint(endpoint: Endpoint, end: number): AddressRead {
  return { host: endpoint.host, port: endpoint.port, endpoint, end };
}

/** A copy, without the prefix of an IPv4-mapped address. */
function readIp(bytes: Uint8Array, at: number, size: number): Uint8Array {
  return unmapped(Uint8Array.from(bytes.subarray(at, at + size)));
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
  // A zone, as in fe80::1%eth0, names an interface of the sender's.
  if (/[\p{Cc}\p{Z}%]/u.test(name)) {
    throw badAddress(`name of ${bytes.length} bytes with a blank, a control character or %`);
  }
  return name;
}

function badAddress(what: string): ProtocolError {
  return new ProtocolError('BAD_ADDRESS', `target address: ${what}`);
}

/**
 * The bytes of an address. IP addresses in text, with or without brackets, become what they are.
 *
 * @throws {RangeError} for a name of more than 255 bytes, a zone or an impossible port.
 */
export function writeAddress({ host, port }: Address): Uint8Array {
  if (host.includes('%'))
    throw new RangeError(`host "${host}" has a zone, which means nothing to another host`);
  const endpoint = Endpoint.parse(
    host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : host,
    port,
  );
  if (endpoint !== undefined) return writeIpAddress(endpoint.address, port);
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

/** The same from the 4 or 16 bytes of an IP address, as an Endpoint has them: no text is made on the way. */
export function writeIpAddress(address: Uint8Array, port: number): Uint8Array {
  if (address.length !== 4 && address.length !== 16) {
    throw new RangeError(`IP address of ${address.length} bytes, expected 4 or 16`);
  }
  const ip = unmapped(address);
  const bytes = new Uint8Array(1 + ip.length + 2);
  bytes[0] = ip.length === 4 ? atypIpv4 : atypIpv6;
  bytes.set(ip, 1);
  writePort(bytes, port);
  return bytes;
}

function unmapped(ip: Uint8Array): Uint8Array {
  return ip.length === 16 && isMapped(ip, 0) ? ip.subarray(12) : ip;
}

function writePort(bytes: Uint8Array, port: number): void {
  if (!Number.isInteger(port) || port < 0 || port > 0xffff)
    throw new RangeError(`port ${port}, expected 0..65535`);
  bytes[bytes.length - 2] = port >>> 8;
  bytes[bytes.length - 1] = port & 0xff;
}
