/**
 * Addresses as people write them. The parsers return what they read, or a string that says what was expected.
 *
 * A server is written in one of these ways, alone or in a list:
 *
 *     host    host:port    192.0.2.1    192.0.2.1:port    2001:db8::1    [2001:db8::1]    [2001:db8::1]:port
 */
import { SocketAddress, isIP, isIPv4, isIPv6 } from 'node:net';

export interface WrittenAddress {
  readonly host: string;
  readonly port?: number;
  /** Written without brackets, and its last group could have been meant as a port. */
  readonly ambiguous?: true;
}

const expectedServer = 'a host name or address, "host:port" or "[IPv6]:port"';

export function readServer(text: string): WrittenAddress | string {
  if (isIPv6(text)) return { host: canonicalAddress(text), ...(endsLikePort(text) && { ambiguous: true }) };
  const { host, port, bracketed } = splitPort(text);
  if (bracketed && !isIPv6(host)) return `${expectedServer} (no IPv6 address is in the brackets)`;
  if (!bracketed && host.includes(':'))
    return `${expectedServer} (an IPv6 address with a port needs brackets)`;
  if (!isHost(host)) return expectedServer;
  if (port === undefined) return { host: canonicalAddress(host) };
  const number = readPort(port);
  return number === undefined
    ? `${expectedServer}, with a port from 1 to 65535`
    : { host: canonicalAddress(host), port: number };
}

/** An IP literal, with or without brackets. `localhost` is 127.0.0.1, as in many configuration files. */
export function readIpAddress(text: string): string | undefined {
  if (text.toLowerCase() === 'localhost') return '127.0.0.1';
  const bare = /^\[(?<address>.*)\]$/s.exec(text)?.groups?.['address'];
  if (bare !== undefined) return isIPv6(bare) ? canonicalAddress(bare) : undefined;
  return isIP(text) === 0 ? undefined : canonicalAddress(text);
}

/** A name server: an IP literal and perhaps a port, as dns.setServers wants it. */
export function readNameserver(text: string): string | undefined {
  const server = readServer(text);
  if (typeof server === 'string' || isIP(server.host) === 0) return undefined;
  if (server.port === undefined) return server.host;
  return isIPv4(server.host) ? `${server.host}:${server.port}` : `[${server.host}]:${server.port}`;
}

/** Decimal digits only, 1 to 65535. */
export function readPort(text: string): number | undefined {
  if (!/^\d+$/.test(text)) return undefined;
  const port = Number(text);
  return port >= 1 && port <= 65_535 ? port : undefined;
}

/** `::ffff:192.0.2.1` is the IPv4 address that it holds: nothing else in the program meets a mapped address. */
function canonicalAddress(host: string): string {
  if (!/^[0:]*:ffff:/i.test(host) || !isIPv6(host)) return host;
  const { address } = new SocketAddress({ address: host.split('%', 1)[0]!, family: 'ipv6' });
  const mapped = /^::ffff:(?<ipv4>\d+\.\d+\.\d+\.\d+)$/.exec(address)?.groups?.['ipv4'];
  return mapped ?? host;
}

/** `::1:9001`: what is before the last colon is an address too, and what is behind it looks like a port. */
function endsLikePort(address: string): boolean {
  const at = address.lastIndexOf(':');
  return /^\d{3,4}$/.test(address.slice(at + 1)) && isIPv6(address.slice(0, at));
}

function splitPort(text: string): { host: string; port: string | undefined; bracketed: boolean } {
  const inBrackets = /^\[(?<host>[^\]]*)\](?::(?<port>.*))?$/s.exec(text)?.groups;
  if (inBrackets !== undefined)
    return { host: inBrackets['host']!, port: inBrackets['port'], bracketed: true };
  const parts = text.split(':');
  if (parts.length !== 2) return { host: text, port: undefined, bracketed: false };
  return { host: parts[0]!, port: parts[1], bracketed: false };
}

/** A name is left to the resolver, but what no resolver can take is refused here, where its key can be named. */
function isHost(host: string): boolean {
  if (isIP(host) !== 0) return true;
  if (host.length === 0 || host.length > 255) return false; // an address of type "name" has one byte for its length
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u0020\u007f/\\@%?#"'<>[\],;]/.test(host)) return false;
  return !/(?:^|\.)\d+\.?$/.test(host); // like 1.2.3 and 1.2.3.256: an address with a slip in it
}
