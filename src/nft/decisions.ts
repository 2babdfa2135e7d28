/**
 * What is proxied and what is direct: the sets, and the chains that every hook asks. `accept` ends the asking chain, the
 * packet goes direct; coming back means that it is ss-redir's.
 *
 *     bypass         for everybody
 *     extra          the match of the configuration
 *     clients        for some clients of the LAN
 *     destinations   for some destinations
 */
import type { Addresses, PerFamily } from './addresses.js';
import { hex } from './names.js';
import {
  addressSet,
  chain,
  clientRules,
  clientSets,
  families,
  ipOf,
  isEmpty,
  portSet,
  rule,
  type Protocol,
} from './rule-text.js';
import { formatRanges, ofFamily, type SetContents } from './sets.js';
import type { Clients, GatewaySettings } from './settings.js';

export class Decisions {
  private readonly settings: GatewaySettings;
  private readonly addresses: Addresses;
  private readonly proxied: readonly Protocol[];

  constructor(settings: GatewaySettings, addresses: Addresses, proxied: readonly Protocol[]) {
    this.settings = settings;
    this.addresses = addresses;
    this.proxied = proxied;
  }

  addressSets(): SetContents[] {
    const { reserved, servers, dstBypass, dstForward } = this.addresses;
    const lists: [string, PerFamily, boolean][] = [
      ['bypass', servers, true],
      ['reserved', reserved, this.settings.reserved],
      ['dst_bypass', dstBypass, this.has('dst_bypass')],
      ['dst_forward', dstForward, this.has('dst_forward')],
    ];
    return lists
      .filter(([, , isUsed]) => isUsed)
      .flatMap(([name, ranges]) =>
        families.map((family) => ({
          name: `${name}${family}`,
          elements: formatRanges(ranges[family], family),
        })),
      );
  }

  sets(): string[][] {
    const { srcBypass, srcForward, srcCheckdst, tcpPorts, udpPorts } = this.settings;
    const sets = this.addressSets().map(({ name, elements }) =>
      addressSet(name, elements, name.endsWith('4') ? 4 : 6),
    );
    for (const [name, clients] of [
      ['src_bypass', srcBypass],
      ['src_forward', srcForward],
      ['src_checkdst', srcCheckdst],
    ] as const) {
      sets.push(...clientSets(name, clients));
    }
    if (this.proxied.includes('tcp') && tcpPorts.length > 0) sets.push(portSet('tcp_ports', tcpPorts));
    if (this.takesUdp && udpPorts.length > 0) sets.push(portSet('udp_ports', udpPorts));
    return sets;
  }

  /** Whether there is a destination list; files count also when they are empty, since they can be filled later. */
  private has(name: 'dst_bypass' | 'dst_forward'): boolean {
    const { dstBypass, dstBypassFiles, dstForward, dstForwardFiles } = this.settings;
    return name === 'dst_bypass'
      ? dstBypass.length + dstBypassFiles.length > 0
      : dstForward.length + dstForwardFiles.length > 0;
  }

  /** UDP is looked at also where only QUIC is rejected. */
  private get takesUdp(): boolean {
    return this.proxied.includes('udp') || this.settings.rejectQuic;
  }

  private get hasDestinations(): boolean {
    const { dstDefault, domainsFiles } = this.settings;
    return (
      dstDefault === 'bypass' || domainsFiles.length > 0 || this.has('dst_bypass') || this.has('dst_forward')
    );
  }

  private get hasExtra(): boolean {
    return this.settings.tcpExtra !== '' || this.settings.udpExtra !== '';
  }

  private get hasClients(): boolean {
    const { srcBypass, srcForward, srcCheckdst, srcDefault } = this.settings;
    const listed = [srcBypass, srcForward, srcCheckdst].some((clients) => !isEmpty(clients));
    return listed || srcDefault !== 'checkdst' || this.hasExtra;
  }

  chains(): string[][] {
    return [
      this.bypass(),
      this.hasExtra ? this.extra() : [],
      this.hasClients ? this.clients() : [],
      this.hasDestinations ? this.destinations() : [],
    ];
  }

  /** What is direct for everybody. */
  private bypass(): string[] {
    const { tcpPorts, udpPorts } = this.settings;
    const rules = [
      rule(
        'fib daddr type { local, broadcast, anycast, multicast } counter accept',
        "the router's own services, and what has no single receiver",
      ),
    ];
    if (this.settings.reserved) {
      rules.push(
        rule('ip daddr @reserved4 counter accept', 'not on the internet'),
        rule('ip6 daddr @reserved6 counter accept', 'not on the internet'),
      );
    }
    rules.push(
      rule('ip daddr @bypass4 counter accept', 'the way to the server does not lead through the server'),
      rule('ip6 daddr @bypass6 counter accept', 'the way to the server does not lead through the server'),
    );
    if (this.proxied.includes('tcp') && tcpPorts.length > 0) {
      rules.push(rule('tcp dport != @tcp_ports counter accept', 'not in the list of TCP ports'));
    }
    if (this.takesUdp && udpPorts.length > 0) {
      rules.push(rule('udp dport != @udp_ports counter accept', 'not in the list of UDP ports'));
    }
    return chain('bypass', rules);
  }

  private extra(): string[] {
    const { tcpExtra, udpExtra } = this.settings;
    const why = 'has what the extra match wants';
    return chain('extra', [
      rule(`meta l4proto tcp ${tcpExtra} counter return`, why),
      rule(`meta l4proto udp ${udpExtra} counter return`, why),
      rule('counter accept', 'lacks what the extra match wants'),
    ]);
  }

  /** What is direct for some clients of the LAN. */
  private clients(): string[] {
    const { srcBypass, srcForward, srcCheckdst, srcDefault } = this.settings;
    const check = this.hasDestinations ? 'goto destinations' : 'return';
    const why = {
      bypass: 'clients not proxied by default',
      forward: 'clients proxied by default',
      checkdst: '',
    };
    const last = { bypass: 'accept', forward: 'return', checkdst: check };
    return chain('clients', [
      ...(this.hasExtra ? ['jump extra'] : []),
      ...clientRules('src_bypass', srcBypass, 'accept', 'a client that is not proxied'),
      ...clientRules('src_forward', srcForward, 'return', 'a client that is proxied wherever it goes'),
      ...clientRules('src_checkdst', srcCheckdst, check, 'a client whose destination decides'),
      rule(`counter ${last[srcDefault]}`, why[srcDefault] || 'the destination decides by default'),
    ]);
  }

  private destinations(): string[] {
    const { dstDefault, domainsFiles, nameSetMark } = this.settings;
    const other = dstDefault === 'forward' ? 'accept' : 'return';
    const rules: string[] = [];
    if (domainsFiles.length > 0) {
      const bit = hex(nameSetMark);
      rules.push(rule(`meta mark & ${bit} == ${bit} counter ${other}`, 'an address of a listed name'));
    }
    for (const [name, verdict, why] of [
      ['dst_bypass', 'accept', 'a destination that is not proxied'],
      ['dst_forward', 'return', 'a destination that is proxied'],
    ] as const) {
      if (!this.has(name)) continue;
      for (const family of families) {
        rules.push(rule(`${ipOf[family]} daddr @${name}${family} counter ${verdict}`, why));
      }
    }
    rules.push(
      dstDefault === 'bypass'
        ? rule('counter accept', 'destinations not proxied by default')
        : rule('counter return', 'destinations proxied by default'),
    );
    return chain('destinations', rules);
  }

  /**
   * The same seen from the other side, asked about a packet that comes from a remote host to the LAN: what is surely direct
   * is accepted, the rest dropped. Hardware addresses and extra matches are not seen there.
   */
  strays(): string[][] {
    const { srcBypass, srcForward, srcCheckdst, srcDefault, tcpPorts, reserved } = this.settings;
    const check = this.hasDestinations ? 'goto stray_remotes' : stray;
    const isSeen =
      [srcBypass, srcForward, srcCheckdst].every(({ macs }) => macs.length === 0) && !this.hasExtra;
    const last = { bypass: isSeen ? 'counter accept' : stray, forward: stray, checkdst: check };
    const clients = [
      ...strayClients('src_bypass', srcBypass, 'counter accept'),
      ...strayClients('src_forward', srcForward, stray),
      ...strayClients('src_checkdst', srcCheckdst, check),
      rule(last[srcDefault], 'the rest of the clients'),
    ];
    return [
      chain('strays', [
        ...(reserved ? strayRemotes('reserved', 'counter accept') : []),
        ...strayRemotes('bypass', 'counter accept'),
        ...(tcpPorts.length > 0
          ? [rule('tcp sport != @tcp_ports counter accept', 'of a connection that is direct')]
          : []),
        ...clients,
      ]),
      this.hasDestinations ? this.strayRemotes() : [],
    ];
  }

  private strayRemotes(): string[] {
    const { dstDefault, domainsFiles, nameSetMark } = this.settings;
    const bit = hex(nameSetMark);
    const [names, rest] = dstDefault === 'forward' ? ['counter accept', stray] : [stray, 'counter accept'];
    return chain('stray_remotes', [
      ...(domainsFiles.length > 0 ? [rule(`meta mark & ${bit} == ${bit} ${names}`, 'of a listed name')] : []),
      ...(this.has('dst_bypass') ? strayRemotes('dst_bypass', 'counter accept') : []),
      ...(this.has('dst_forward') ? strayRemotes('dst_forward', stray) : []),
      rule(rest, 'the rest of the remotes'),
    ]);
  }

  /** Asked about a packet of the LAN. */
  get askLan(): string[] {
    const checks = this.hasClients ? ['jump clients'] : this.hasDestinations ? ['jump destinations'] : [];
    return ['jump bypass', ...checks];
  }

  /** Asked about a packet of the router's own. */
  get askOwn(): string[] {
    const checks = this.settings.localDefault === 'checkdst' && this.hasDestinations;
    return [
      'jump bypass',
      ...(this.hasExtra ? ['jump extra'] : []),
      ...(checks ? ['jump destinations'] : []),
    ];
  }
}

const stray = 'counter name stopped drop';

function strayRemotes(set: string, verdict: string): string[] {
  const why = verdict === stray ? 'of a connection that is proxied' : 'of a connection that is direct';
  return families.map((family) => rule(`${ipOf[family]} saddr @${set}${family} ${verdict}`, why));
}

function strayClients(set: string, { prefixes }: Clients, verdict: string): string[] {
  return families
    .filter((family) => ofFamily(prefixes, family).length > 0)
    .map((family) => rule(`${ipOf[family]} daddr @${set}${family} ${verdict}`, 'this client'));
}
