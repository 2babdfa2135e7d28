/** What of this host, its kernel and the settings of other programs gateways stumble over. */
import { readFileSync } from 'node:fs';
import type { Config } from '../config/config.js';
import { ToolError } from '../errors.js';
import { isClockSynchronized } from '../linux/clock.js';
import { collectAddresses } from '../nft/addresses.js';
import { findConflicts, hasInterface, isBridge, readSysctl } from '../nft/conflicts.js';
import { hasIpv6 } from '../nft/routing.js';
import { renderRules } from '../nft/rules.js';
import { usesTproxy } from '../nft/ruleset.js';
import type { GatewaySettings } from '../nft/settings.js';
import { checkNftApart } from '../nft/tools.js';
import { fine, unknown, wrong, type Finding } from './finding.js';

/** Whether nft and the kernel have all that the rules need. In a network namespace of its own. */
export async function lookAtKernel(settings: GatewaySettings): Promise<Finding[]> {
  const wanted = 'take the rules';
  try {
    const literal = settings.servers.filter((host) => /^[\d.]+$|:/.test(host));
    await checkNftApart(renderRules(settings, collectAddresses(settings, literal)));
    return [fine('nft and kernel', wanted)];
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    return [
      wrong(
        'nft and kernel',
        error.message,
        wanted,
        'load or install the module that is named, or nft itself',
      ),
    ];
  }
}

/** Numbers, names and ports that others have. */
export async function lookForConflicts(settings: GatewaySettings): Promise<Finding[]> {
  const conflicts = await findConflicts(settings, { owns: true });
  if (conflicts.length === 0) return [fine('conflicts', 'none')];
  return conflicts.map((text) =>
    wrong(
      'conflicts',
      text.replace(/ \(--[a-z-]+\)$/, ''),
      'none',
      remedyOf(text) ?? 'change the one or the other',
    ),
  );
}

function remedyOf(text: string): string | undefined {
  const option = /\((--[a-z-]+)\)$/.exec(text)?.[1];
  return option && `another number by ss-nft ${option}, or its key in [gateway]`;
}

export function lookAtSettings(settings: GatewaySettings): Finding[] {
  const { interfaces } = settings;
  const missing = interfaces.filter((name) => !hasInterface(name));
  return [
    ...(missing.length === 0
      ? [fine('LAN interfaces', interfaces.join(' ') || 'none', 'there')]
      : [
          wrong(
            'LAN interfaces',
            `${missing.join(', ')} is not there`,
            'there',
            'ip link; then ifnames in [gateway]',
          ),
        ]),
    ...(interfaces.length > 0 ? forwarding() : []),
    ...interfaces.filter(hasInterface).map(reversePath),
    ...(usesTproxy(settings) ? [...validMarks(interfaces), ...bridgeCalls(interfaces)] : []),
    ipv6(settings),
  ];
}

/** What is direct is forwarded, and so are all protocols that are not proxied. */
function forwarding(): Finding[] {
  const keys = ['net.ipv4.ip_forward', ...(hasIpv6() ? ['net.ipv6.conf.all.forwarding'] : [])];
  return keys.map((key) => sysctl(key, '1'));
}

function reversePath(name: string): Finding {
  const values = ['all', name].map((each) => Number(readSysctl(`net/ipv4/conf/${each}/rp_filter`) ?? 0));
  const value = Math.max(...values); // the larger one counts (Documentation/networking/ip-sysctl)
  const meaning = ['off', 'strict', 'loose'][value] ?? String(value);
  return fine(
    `rp_filter of ${name}`,
    meaning,
    'any: strict drops clients that come by a way that is not the way to them',
  );
}

/** conf.all and the interface's own value: either one counts. */
function validMarks(interfaces: readonly string[]): Finding[] {
  return ['all', ...interfaces]
    .filter((name) => readSysctl(`net/ipv4/conf/${name}/src_valid_mark`) !== undefined)
    .map((name) =>
      sysctl(`net.ipv4.conf.${name}.src_valid_mark`, '0', `net/ipv4/conf/${name}/src_valid_mark`),
    );
}

function bridgeCalls(interfaces: readonly string[]): Finding[] {
  if (!interfaces.some(isBridge)) return [];
  return ['iptables', 'ip6tables']
    .map((table) => `net.bridge.bridge-nf-call-${table}`)
    .filter((key) => readSysctl(key) !== undefined)
    .map((key) => sysctl(key, '0'));
}

function ipv6({ servers }: GatewaySettings): Finding {
  if (hasIpv6()) return fine('IPv6', 'on', 'on or off');
  const ofIpv6 = servers.filter((host) => host.includes(':'));
  if (ofIpv6.length === 0) return fine('IPv6', 'off: rules and routing serve IPv4 alone', 'on or off');
  return wrong(
    'IPv6',
    `off, and the server ${ofIpv6[0]} has no other address`,
    'on',
    'sysctl -w net.ipv6.conf.all.disable_ipv6=0',
  );
}

function sysctl(key: string, wanted: string, path = key): Finding {
  const found = readSysctl(path);
  if (found === undefined) return unknown(key, 'cannot be read', wanted);
  return found === wanted ? fine(key, found) : wrong(key, found, wanted, `sysctl -w ${key}=${wanted}`);
}

/** The 2022 edition refuses what is more than 30 s off. */
export function lookAtClock({ servers }: Config): Finding[] {
  if (!servers.some(({ method }) => method.startsWith('2022-'))) return [];
  const isSynchronized = isClockSynchronized();
  const wanted = 'within 30 s of the server';
  if (isSynchronized === true) return [fine('clock', 'synchronized', wanted)];
  const now = new Date().toISOString().slice(0, 19);
  return [unknown('clock', `${now} UTC, and nobody has told the kernel that it is right`, wanted)];
}

/** Of the process that serves, or of this one where none does. */
export function lookAtDescriptors(pid: number | undefined, { maxConnections }: Config): Finding {
  const limits = readFileSync(`/proc/${pid ?? 'self'}/limits`, 'utf8');
  const [, soft = '0', hard = '0'] = /^Max open files +(\S+) +(\S+)/m.exec(limits) ?? [];
  const limit = Number(pid === undefined ? hard : soft); // a start raises it by itself
  const who = pid === undefined ? 'descriptors' : `descriptors of process ${pid}`;
  const enough = Math.min(1024, maxConnections);
  const wanted = `two a connection: ${2 * enough + 100} or more`;
  if (limit >= 2 * enough + 100) return fine(who, String(limit), wanted);
  return wrong(
    who,
    String(limit),
    wanted,
    'LimitNOFILE=65536 in the unit, or ulimit -Hn 65536 before the start',
  );
}
