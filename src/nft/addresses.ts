/** What stands in the sets of addresses: from the settings, the files they name, and the servers' names. */
import { Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';
import { Dns } from '../control/dns.js';
import { merge, mostSpecific, readPrefix, subtract, type Family, type Prefix, type Range } from './ranges.js';
import { ofFamily, readPrefixFile } from './sets.js';
import type { GatewaySettings } from './settings.js';

export type PerFamily = Readonly<Record<Family, readonly Range[]>>;

export interface Addresses {
  readonly servers: PerFamily;
  readonly reserved: PerFamily;
  readonly dstBypass: PerFamily;
  readonly dstForward: PerFamily;
}

/** Not on the internet: IANA IPv4 Special-Purpose Address Registry, and multicast (RFC 5771). */
const reserved4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
];

/** The same for IPv6 (RFC 4291 for multicast). NAT64 (64:ff9b::/96) is left out on purpose: behind it is the internet. */
const reserved6 = [
  '::/128',
  '::1/128',
  '100::/64',
  '2001:db8::/32',
  '3fff::/20',
  '5f00::/16',
  'fc00::/7',
  'fe80::/10',
  'ff00::/8',
];

/** ::ffff:0:0/96, addresses of IPv4 in IPv6's clothes: never on the wire. */
const mapped6: Range = { from: 0xffff_0000_0000n, to: 0xffff_ffff_ffffn };

/**
 * @param servers addresses; names are resolved with `resolveServers`.
 * @throws {ConfigError} naming file and line of what is no prefix.
 */
export function collectAddresses(settings: GatewaySettings, servers: readonly string[]): Addresses {
  const bypass = [...settings.dstBypass, ...settings.dstBypassFiles.flatMap(readPrefixFile)];
  const forward = [...settings.dstForward, ...settings.dstForwardFiles.flatMap(readPrefixFile)];
  const serverPrefixes = servers.flatMap((server) => readPrefix(server.split('%', 1)[0]!) ?? []);
  const lists = ([4, 6] as const).map((family): [Family, Record<keyof Addresses, Range[]>] => {
    const [dstBypass, dstForward] = mostSpecific(ofFamily(bypass, family), ofFamily(forward, family));
    // A reserved network that is explicitly proxied, a company's own behind the server, is not reserved.
    const reserved = subtract(reservedOf(family), dstForward);
    return [family, { dstBypass, dstForward, reserved, servers: merge(ofFamily(serverPrefixes, family)) }];
  });
  const both = (name: keyof Addresses): PerFamily =>
    Object.fromEntries(lists.map(([family, ranges]) => [family, ranges[name]])) as unknown as PerFamily;
  return {
    servers: both('servers'),
    reserved: both('reserved'),
    dstBypass: both('dstBypass'),
    dstForward: both('dstForward'),
  };
}

function reservedOf(family: Family): Range[] {
  const prefixes = (family === 4 ? reserved4 : reserved6).map((text): Prefix => readPrefix(text)!);
  return merge(family === 4 ? prefixes : [...prefixes, mapped6]);
}

/**
 * All addresses of all servers, IPv4 and IPv6. A name that does not resolve, as at boot, stops nothing: ss-redir's own
 * connections are known by their mark, and `onFailure` is told.
 */
export async function resolveServers(
  servers: readonly string[],
  onFailure: (message: string) => void,
): Promise<string[]> {
  const dns = new Dns({ nameservers: [], ipv6First: false, maxQueries: 64 });
  const found = await Promise.all(
    servers.map(async (host) => {
      if (isIP(host.split('%', 1)[0]!) !== 0) return [host];
      // Dns stops at the first answer and a moment; here a late family counts too.
      const resolver = new Resolver({ timeout: 3000, tries: 2 });
      const answers = await Promise.allSettled([
        dns.resolve(host).then(({ addresses }) => addresses),
        resolver.resolve4(host),
        resolver.resolve6(host),
      ]);
      const addresses = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
      const [first] = answers;
      if (addresses.length === 0 && first?.status === 'rejected') onFailure(String(first.reason.message));
      return addresses;
    }),
  );
  return [...new Set(found.flat())];
}
