/**
 * The tables of an instance as lines of nft's language. In the plain case they are what
 * nft/redirect.nft or nft/tproxy.nft loads; a test compares the tables. Every rule is counted and says why it is there.
 *
 *     LAN packet   dns_hijack, prerouting → bypass → clients → destinations → redirect, or capture (tproxy)
 *     own packet   output → bypass → destinations → redirect, or a mark that brings it back in through lo
 *     input        nothing may be addressed to the listener itself
 *     forward      what prerouting should have taken is stopped
 *
 * bypass, clients and destinations are asked by every chain that has to know what is proxied: `accept` ends the asking
 * chain, the packet goes direct; coming back means that it is ss-redir's.
 */
import { isIPv4 } from 'node:net';
import type { Addresses } from './addresses.js';
import { Decisions } from './decisions.js';
import { doctorInterface, hex } from './names.js';
import type { Family } from './ranges.js';
import {
  baseChain,
  chain,
  clientRules,
  families,
  ipOf,
  joined,
  reject,
  rule,
  setOf,
  type Protocol,
} from './rule-text.js';
import type { DnsTarget, GatewaySettings } from './settings.js';

/**
 * What the rules' table remembers for those who have no configuration: `ss-redir tcp=redirect:1080 udp=1080 …`. At most 128
 * bytes (NFTNL_UDATA_COMMENT_MAXLEN).
 */
export function describeRules(settings: GatewaySettings): string {
  const { tcp, udp, localPort, udpLocalPort, toProxyMark, ownMark, routeTable, rulePriority, fail } =
    settings;
  const words = ['ss-redir'];
  if (tcp !== 'none') words.push(`tcp=${tcp}:${localPort}`);
  if (udp) words.push(`udp=tproxy:${udpLocalPort}`);
  if (usesTproxy(settings))
    words.push(`mark=${hex(toProxyMark)} table=${routeTable} priority=${rulePriority}`);
  words.push(`own=${hex(ownMark)}`, `fail=${fail}`);
  return words.join(' ');
}

export function usesTproxy({ tcp, udp }: GatewaySettings): boolean {
  return tcp === 'tproxy' || udp;
}

export class Ruleset {
  private readonly settings: GatewaySettings;
  private readonly decisions: Decisions;
  /** What ss-redir gets. */
  private readonly proxied: readonly Protocol[];
  private readonly tproxied: readonly Protocol[];
  private readonly redirects: boolean;
  private readonly lan: string;
  private readonly hasLan: boolean;
  private readonly isOpen: boolean;
  private readonly own: boolean;
  /** Tells packets that go to TPROXY. */
  private readonly isMarked: string;
  private readonly mark: string;

  constructor(settings: GatewaySettings, addresses: Addresses) {
    const { tcp, udp, interfaces, toProxyMark, fail, localDefault } = settings;
    this.settings = settings;
    this.proxied = [...(tcp === 'none' ? [] : (['tcp'] as const)), ...(udp ? (['udp'] as const) : [])];
    this.decisions = new Decisions(settings, addresses, this.proxied);
    this.redirects = tcp === 'redirect';
    this.tproxied = this.proxied.filter((protocol) => protocol === 'udp' || !this.redirects);
    this.hasLan = interfaces.length > 0;
    this.lan = setOf([...interfaces, doctorInterface].map((name) => `"${name}"`));
    this.isOpen = fail === 'open';
    this.own = localDefault !== 'bypass';
    this.isMarked = `meta mark & ${hex(toProxyMark)} == ${hex(toProxyMark)}`;
    this.mark = `meta mark set meta mark | ${hex(toProxyMark)}`;
  }

  /** All sets, by name. */
  sets(): { name: string; lines: readonly string[] }[] {
    return this.decisions.sets().map((lines) => ({ name: lines[0]!.split(' ')[1]!, lines }));
  }

  rulesTable(): string[] {
    const tproxies = this.tproxied.length > 0;
    return joined([
      ['# First packets of connections given to ss-redir.', 'counter to_proxy {', '}'],
      this.tproxied.includes('udp') ? ['# Datagrams given to it.', 'counter to_proxy_udp {', '}'] : [],
      this.isOpen ? [] : ['# Packets that would have gone past it.', 'counter stopped {', '}'],
      ...this.decisions.sets(),
      ...this.decisions.chains(),
      this.settings.dnsHijack.length > 0 && this.hasLan ? this.dnsHijack() : [],
      tproxies ? this.tproxyPrerouting() : [],
      tproxies ? this.capture() : [],
      this.redirects && this.hasLan ? this.redirectPrerouting() : [],
      tproxies && this.own ? this.tproxyOutput() : [],
      this.redirects && this.own ? this.redirectOutput() : [],
      this.tproxied.includes('udp') ? this.untracked() : [],
      this.input(),
      this.quotes ? this.quoting() : [],
      ...(this.hasStrays ? this.decisions.strays() : []),
      this.forward(),
      this.outputStop(),
      tproxies && !this.isOpen ? this.postrouting() : [],
      // Asked by nobody. A table's own comment could not be changed as long as the table is there.
      chain('about', [rule('counter return', describeRules(this.settings))]),
    ]);
  }

  /**
   * What stands before the rules where conntrack may be off until they come. Making them switches it on, a moment before they are
   * in force: a packet from outside that comes by then would make its connection one of a remote host. Looks at no state.
   */
  thresholdTable(): string[] {
    if (!this.hasLan || this.isOpen) return [];
    const inward = `iifname != ${this.lan} oifname ${this.lan}`;
    return joined([
      ['counter stopped {', '}'],
      ...this.decisions.sets(),
      ...this.decisions.strays(),
      baseChain('forward', 'filter', 'forward', 'filter', [
        ...(this.proxied.includes('tcp') ? [`${inward} ${midStream} jump strays`] : []),
        ...(this.proxied.includes('udp') ? [`${inward} meta l4proto udp jump strays`] : []),
      ]),
    ]);
  }

  /** Below the rules, so that it sees only what they let through, or what comes by when they are not there. */
  killTable(): string[] {
    return joined([
      ['# Packets that would have left in clear.', 'counter stopped {', '}'],
      ...this.decisions.sets(),
      ...this.decisions.chains(),
      ...(this.hasStrays ? this.decisions.strays() : []),
      // ss-redir may go on when its rules are gone.
      this.tproxied.includes('udp') ? this.untracked() : [],
      this.quotes ? this.quoting() : [],
      this.hasLan ? this.killForward() : [],
      this.own ? this.killOutput() : [],
    ]);
  }

  private get notLan(): string {
    return rule(`iifname != ${this.lan} counter return`, 'not from the LAN');
  }

  private notOf(protocols: readonly Protocol[]): string {
    return rule(
      `meta l4proto != ${setOf(protocols)} counter return`,
      'not proxied: neighbour discovery, ICMP and all the rest',
    );
  }

  private notOwn(verdict = 'return'): string[] {
    const { ownMark, localBypassMarks, localBypassUsers } = this.settings;
    const own = hex(ownMark);
    return [
      // First, and whatever the addresses say.
      ...(ownMark === 0
        ? []
        : [
            rule(
              `meta mark & ${own} == ${own} counter ${verdict}`,
              "ss-redir's own way out, or it would dial itself",
            ),
          ]),
      ...localBypassMarks.map(({ value, mask }) =>
        rule(`meta mark & ${hex(mask)} == ${hex(value)} counter ${verdict}`, 'a mark that is not proxied'),
      ),
      ...(localBypassUsers.length === 0
        ? []
        : [
            rule(
              `meta skuid ${setOf(localBypassUsers.map((user) => (/^\d/.test(user) ? user : `"${user}"`)))} counter ${verdict}`,
              'a user that is not proxied',
            ),
          ]),
    ];
  }

  /**
   * For DNS of the LAN to anywhere but the router. The target's own questions are let through, or they would come back
   * to it.
   */
  private dnsHijack(): string[] {
    const { dnsHijack, srcBypass } = this.settings;
    const targets = dnsHijack.flatMap(({ address, port }): [Family, string | undefined, string][] => {
      if (address === undefined) return families.map((family) => [family, undefined, `redirect to :${port}`]);
      return isIPv4(address)
        ? [[4, address, `dnat ip to ${address}:${port}`]]
        : [[6, address, `dnat ip6 to [${address}]:${port}`]];
    });
    return baseChain('dns_hijack', 'nat', 'prerouting', 'dstnat - 1', [
      this.notLan,
      rule('meta l4proto != { tcp, udp } counter return', 'no DNS'),
      rule('th dport != 53 counter return', 'no DNS'),
      rule('fib daddr type { local, broadcast, anycast, multicast } counter return', "the router's own DNS"),
      ...clientRules('src_bypass', srcBypass, 'return', 'a client that is not proxied'),
      ...targets.flatMap(([family, address]) =>
        address === undefined
          ? []
          : [rule(`${ipOf[family]} saddr ${address} counter return`, 'questions of the resolver itself')],
      ),
      ...targets.map(([family, , verdict]) =>
        rule(
          `meta nfproto ipv${family} meta l4proto { tcp, udp } th dport 53 counter ${verdict}`,
          'DNS goes to the resolver of the configuration',
        ),
      ),
    ]);
  }

  private tproxyPrerouting(): string[] {
    const { rejectQuic, dnsHijack } = this.settings;
    const notLo = this.own ? 'iifname != "lo" ' : '';
    const asksLan = this.decisions.askLan.slice(1);
    return baseChain('prerouting', 'filter', 'prerouting', 'mangle', [
      this.notOf(this.tproxied),
      rule(
        `iifname "lo" meta mark & ${hex(this.settings.toProxyMark)} != ${hex(this.settings.toProxyMark)} counter return`,
        'from lo only what output has marked',
      ),
      this.hasLan
        ? rule(`iifname != "lo" iifname != ${this.lan} counter return`, 'not from the LAN')
        : rule('iifname != "lo" counter return', 'only own connections are proxied'),
      // Also if the destination is bypassed by now, or the conntrack entry has been flushed. `wildcard 0`: the listener
      // would match any destination with its port. TCP only: with UDP it would match the sockets that send replies.
      ...(this.tproxied.includes('tcp')
        ? [
            rule(
              `meta l4proto tcp socket wildcard 0 socket transparent 1 ${this.mark} counter accept`,
              'a connection that ss-redir already has',
            ),
          ]
        : []),
      rule('ct direction reply counter return', 'answers to connections from outside, as of port forwards'),
      ...(this.tproxied.includes('tcp')
        ? [
            rule(
              'meta l4proto tcp ct state invalid counter return',
              'stray: a reset could end a connection that is in order',
            ),
          ]
        : []),
      ...(this.hasLan ? hijackedFamilies(dnsHijack) : []).map((family) =>
        rule(`iifname != "lo" meta nfproto ipv${family} th dport 53 counter return`, 'DNS is hijacked'),
      ),
      'jump bypass',
      ...(this.hasLan ? asksLan.map((ask) => `${notLo}${ask}`) : []),
      ...(rejectQuic && this.tproxied.includes('udp') ? [`${notLo}${quicRule}`] : []),
      'goto capture',
    ]);
  }

  /**
   * Closed: the mark comes before tproxy, which ends its rule when nobody listens; marked, the packet is delivered locally
   * all the same and `input` refuses it. Open: the mark comes behind.
   */
  private capture(): string[] {
    const rules: string[] = [];
    for (const protocol of this.tproxied) {
      const port = protocol === 'tcp' ? this.settings.localPort : this.settings.udpLocalPort;
      rules.push(
        protocol === 'tcp'
          ? rule('meta l4proto tcp ct state new counter name to_proxy', 'new connections')
          : rule('meta l4proto udp counter name to_proxy_udp', 'datagrams'),
      );
      for (const [family, listener] of [
        [4, `ip to 127.0.0.1:${port}`],
        [6, `ip6 to [::1]:${port}`],
      ] as const) {
        const match = `meta nfproto ipv${family} meta l4proto ${protocol}`;
        const steps = this.isOpen ? `tproxy ${listener} ${this.mark}` : `${this.mark} tproxy ${listener}`;
        rules.push(rule(`${match} ${steps} counter accept`, 'to ss-redir'));
      }
    }
    if (this.isOpen) {
      rules.push(rule('counter accept', 'nobody listens: fail open lets it go direct'));
    } else if (this.tproxied.includes('udp')) {
      // Here, because from `input` the kernel sends no ICMP for a foreign destination.
      rules.push(rule(`meta l4proto udp counter ${reject('udp')}`, 'nobody listens'));
    }
    return chain('capture', rules);
  }

  /** After dstnat: a destination that the administrator rewrites himself stays his. */
  private redirectPrerouting(): string[] {
    return baseChain(this.natChain('prerouting'), 'nat', 'prerouting', 'dstnat + 1', [
      this.notLan,
      this.notOf(['tcp']),
      ...this.decisions.askLan,
      this.redirect,
    ]);
  }

  private get redirect(): string {
    return rule(
      `meta l4proto tcp counter name to_proxy redirect to :${this.settings.localPort}`,
      'to ss-redir, which asks conntrack where it was to go',
    );
  }

  /** Beside the chains of TPROXY a nat chain has a name of its own. */
  private natChain(name: string): string {
    return this.tproxied.length > 0 ? `${name}_nat` : name;
  }

  /** tproxy works in prerouting only: a marked packet is routed again, to lo, and comes in there. */
  private tproxyOutput(): string[] {
    return baseChain('output', 'route', 'output', 'mangle', [
      ...this.notOwn(),
      rule(
        'ct direction reply counter return',
        "answers of the router's services, and what ss-redir sends to a client",
      ),
      this.notOf(this.tproxied),
      ...this.decisions.askOwn,
      ...(this.settings.rejectQuic && this.tproxied.includes('udp')
        ? [rule('udp dport 443 counter return', 'QUIC: output_stop rejects it')]
        : []),
      rule(`${this.mark} counter accept`, 'to ss-redir, by way of lo'),
    ]);
  }

  private redirectOutput(): string[] {
    return baseChain(this.natChain('output'), 'nat', 'output', '-99', [
      ...this.notOwn(),
      this.notOf(['tcp']),
      ...this.decisions.askOwn,
      this.redirect,
    ]);
  }

  /**
   * A datagram that ss-redir sends to a client in the name of a remote host would begin a connection of that host. The
   * client's next one would count as its answer, `ct direction reply`, and go past the proxy.
   */
  private untracked(): string[] {
    const { ownMark } = this.settings;
    if (ownMark === 0) return [];
    return baseChain('untracked', 'filter', 'output', 'raw', [
      rule(
        `meta l4proto udp meta mark & ${hex(ownMark)} == ${hex(ownMark)} fib saddr type != local counter notrack`,
        'what ss-redir sends in the name of a remote host begins no connection of that host',
      ),
    ]);
  }

  private input(): string[] {
    const { localPort, udpLocalPort } = this.settings;
    const rules: string[] = [];
    const loops = 'straight to the listener: it would dial itself';
    const fits = 'given to ss-redir by the rules';
    if (this.redirects) {
      rules.push(
        rule(`tcp dport ${localPort} ct state new ct status dnat counter accept`, fits),
        rule(`tcp dport ${localPort} ct state new counter ${reject('tcp')}`, loops),
      );
    }
    if (this.tproxied.includes('tcp')) {
      rules.push(
        rule(`tcp dport ${localPort} ct state new fib daddr type local counter ${reject('tcp')}`, loops),
      );
    }
    if (this.tproxied.includes('udp')) {
      rules.push(
        rule(
          `udp dport ${udpLocalPort} socket transparent 1 fib daddr type local counter ${reject('udp')}`,
          loops,
        ),
      );
    }
    // Without a listener the kernel drops IPv4 in silence, and a service of the router on all addresses would answer in the
    // name of any host.
    if (this.tproxied.includes('tcp')) {
      rules.push(
        rule(`meta l4proto tcp ${this.isMarked} socket transparent 1 counter accept`, fits),
        rule(`meta l4proto tcp ${this.isMarked} counter ${reject('tcp')}`, 'nobody listens'),
      );
    }
    if (this.tproxied.includes('udp')) {
      rules.push(
        rule(`meta l4proto udp ${this.isMarked} socket transparent 0 counter drop`, 'nobody listens'),
      );
    }
    return baseChain('input', 'filter', 'input', 'filter', rules);
  }

  /** Whether a client's ICMP errors may quote what ss-redir has answered in a remote's name. */
  private get quotes(): boolean {
    return this.hasLan && !this.isOpen && this.tproxied.length > 0;
  }

  /** A client that has closed its socket refuses a late answer with an ICMP error, which quotes it in clear. */
  private quoting(): string[] {
    return chain('quoting', [
      rule('ct direction reply counter accept', 'errors about connections from outside, as of port forwards'),
      ...this.decisions.askLan,
      rule('counter name stopped drop', 'would quote a proxied answer to its remote'),
    ]);
  }

  /** Whether packets from outside may turn a proxied connection into one of a remote host. */
  private get hasStrays(): boolean {
    return this.hasLan && !this.isOpen && this.proxied.includes('tcp');
  }

  /**
   * In the middle of a connection that conntrack does not know, as after a flush, the kernel would take the remote host for the
   * one who began it. All that the client says from then on would be a `reply`, and go past the proxy.
   */
  private get stopStrays(): string[] {
    if (!this.hasStrays) return [];
    return [`iifname != ${this.lan} oifname ${this.lan} ct state new ${midStream} jump strays`];
  }

  /** Accepts what the administrator, or dns_hijack, has sent elsewhere. */
  private get rewritten(): string[] {
    const { localPort, dnsHijack } = this.settings;
    const why = 'a destination that has been rewritten';
    // When no nat rule is left in the kernel it forgets to rewrite connections that ss-redir has, but not what they are.
    if (this.redirects) {
      return [
        rule(`meta l4proto tcp ct status dnat ct reply proto-src != ${localPort} counter accept`, why),
        ...(this.proxied.includes('udp') || dnsHijack.length > 0
          ? [rule('meta l4proto udp ct status dnat counter accept', why)]
          : []),
      ];
    }
    return [rule('ct status dnat counter accept', why)];
  }

  /** For the LAN. What belongs to the proxy is not forwarded: flows older than the rules, lost marks, missing routing. */
  private forward(): string[] {
    // Where UDP goes to TPROXY, prerouting rejects QUIC.
    const rejectQuic = this.settings.rejectQuic && !this.tproxied.includes('udp');
    const stops = this.isOpen ? [] : this.proxied;
    const rules: string[] = [];
    if (!this.isOpen) {
      for (const protocol of this.tproxied) {
        rules.push(
          rule(
            `meta l4proto ${protocol} ${this.isMarked} counter name stopped ${reject(protocol)}`,
            'marked for ss-redir, but the policy routing is missing',
          ),
        );
      }
    }
    if (this.hasLan && (stops.length > 0 || rejectQuic)) {
      rules.push(
        ...this.stopStrays,
        this.notLan,
        ...(this.quotes ? quotingErrors : []),
        this.notOf(rejectQuic ? [...stops, 'udp'] : stops),
        rule('ct direction reply counter accept', 'answers to connections from outside, as of port forwards'),
        ...(this.redirects || this.settings.dnsHijack.length > 0 ? this.rewritten : []),
        ...this.decisions.askLan,
        ...(rejectQuic ? [quicRule, ...passUdp(stops)] : []),
        ...stopRules(stops),
      );
    }
    return rules.length === 0 ? [] : baseChain('forward', 'filter', 'forward', 'filter', rules);
  }

  /** The same for the router's own connections. With TPROXY a marked packet that leaves is stopped in postrouting. */
  private outputStop(): string[] {
    const { rejectQuic } = this.settings;
    const stops: Protocol[] = this.redirects && !this.isOpen ? ['tcp'] : [];
    if (!this.own || (stops.length === 0 && !rejectQuic)) return [];
    return baseChain('output_stop', 'filter', 'output', 'filter', [
      ...this.notOwn(),
      rule('ct direction reply counter return', "answers of the router's services"),
      this.notOf(rejectQuic ? [...stops, 'udp'] : stops),
      ...this.rewritten,
      ...this.decisions.askOwn,
      ...(rejectQuic ? [quicRule, ...passUdp(stops)] : []),
      ...stopRules(stops),
    ]);
  }

  private postrouting(): string[] {
    return baseChain('postrouting', 'filter', 'postrouting', 'mangle', [
      rule(
        `oifname != "lo" ${this.isMarked} counter name stopped drop`,
        'marked for ss-redir, but the policy routing is missing',
      ),
    ]);
  }

  private killForward(): string[] {
    return baseChain('forward', 'filter', 'forward', 'filter + 1', [
      ...this.stopStrays,
      this.notLan,
      ...(this.quotes ? quotingErrors : []),
      this.notOf(this.proxied),
      rule('ct direction reply counter accept', 'answers to connections from outside, as of port forwards'),
      ...this.rewritten,
      ...this.decisions.askLan,
      ...stopRules(this.proxied),
    ]);
  }

  private killOutput(): string[] {
    return baseChain('output', 'filter', 'output', 'filter + 1', [
      ...this.notOwn(),
      rule('ct direction reply counter return', "answers of the router's services"),
      this.notOf(this.proxied),
      // Not by oifname: in this hook it is still that of the route before the mark.
      ...(this.tproxied.length > 0
        ? [rule(`${this.isMarked} counter accept`, 'on its way to ss-redir')]
        : []),
      ...this.rewritten,
      ...this.decisions.askOwn,
      ...stopRules(this.proxied),
    ]);
  }
}

/** Of a packet that does not ask for a connection. */
const midStream = 'tcp flags & (fin | syn | rst | ack) != syn';

const quicRule = rule(
  'udp dport 443 counter reject with icmpx type port-unreachable',
  'QUIC is rejected, so that browsers fall back to TCP',
);

/** Where only QUIC of UDP is looked at and TCP is stopped below. */
function passUdp(stops: readonly Protocol[]): string[] {
  return stops.includes('tcp') ? [rule('meta l4proto udp counter accept', 'UDP is not proxied')] : [];
}

/** The end of a chain into which only these protocols come, and only what belongs to the proxy. */
const quotingErrors = [
  'icmp type { destination-unreachable, time-exceeded, parameter-problem } jump quoting',
  'icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem } jump quoting',
];

function stopRules(stops: readonly Protocol[]): string[] {
  const why = 'would have gone past the proxy';
  const rules: string[] = [];
  if (stops.includes('udp')) rules.push(rule(`meta l4proto udp counter name stopped ${reject('udp')}`, why));
  if (stops.includes('tcp')) {
    rules.push(
      // Not answered: a reset for a stray packet could end a connection that is in order.
      rule('ct state invalid counter name stopped drop', why),
      rule(`counter name stopped ${reject('tcp')}`, why),
    );
  }
  return rules;
}

export function hijackedFamilies(targets: readonly DnsTarget[]): Family[] {
  return families.filter((family) =>
    targets.some(({ address }) => address === undefined || isIPv4(address) === (family === 4)),
  );
}
