/** Rules, routing and listeners as they stand. */
import type { Config } from '../config/config.js';
import { CAP_NET_ADMIN, CAP_NET_RAW } from '../linux/capabilities.js';
import { collectAddresses } from '../nft/addresses.js';
import { listTable } from '../nft/loaded.js';
import { portsOf } from '../nft/conflicts.js';
import { formatRanges } from '../nft/sets.js';
import type { GatewaySettings } from '../nft/settings.js';
import { findListeners } from '../nft/sockets.js';
import { readStatus, type Status } from '../nft/status.js';
import { readFileSync } from 'node:fs';
import { fine, unknown, wrong, type Finding } from './finding.js';

export interface Standing {
  readonly findings: Finding[];
  readonly areLoaded: boolean;
  /** The process that listens. */
  readonly pid: number | undefined;
}

export async function lookAtRules(
  { instance }: GatewaySettings,
  settings: GatewaySettings,
  config: Config,
  servers: readonly string[],
): Promise<Standing> {
  const status = await readStatus(instance);
  const areLoaded = status.rules !== 'missing';
  const up = `ss-nft up ${instance}, or systemctl restart ss-redir@${instance}`;
  const rules = areLoaded
    ? fine('rules', describe(status), 'loaded')
    : wrong('rules', `table inet ${status.table} is missing`, 'loaded', up);
  const { findings: listeners, pid } = await lookAtListeners(settings);
  return {
    findings: [
      rules,
      ...status.routing.map(({ family, rule, route }) => {
        const missing = [...(rule ? [] : ['rule']), ...(route ? [] : ['route'])].join(' and ');
        return missing === ''
          ? fine(`${family} policy routing`, 'rule and route')
          : wrong(`${family} policy routing`, `${missing} missing`, 'rule and route', up);
      }),
      ...(areLoaded ? await lookAtServerSet(status, settings, servers) : []),
      ...listeners,
      ...(pid === undefined ? [] : [lookAtCapabilities(pid, config)]),
    ],
    areLoaded,
    pid,
  };
}

function describe({ rules, holder, owned }: Status): string {
  if (holder !== undefined) return `held by process ${holder.pid}`;
  return `${rules}${owned ? ', owned by another process' : ''}`;
}

/** The servers' addresses as they are now, in the set that lets them pass. */
async function lookAtServerSet(
  { table }: Status,
  settings: GatewaySettings,
  servers: readonly string[],
): Promise<Finding[]> {
  const wanted = collectAddresses(settings, servers).servers;
  const loaded = new Map(
    (await listTable(table)).flatMap(({ set }) =>
      set === undefined ? [] : [[set.name, elementsOf(set.elem)]],
    ),
  );
  return ([4, 6] as const).flatMap((family) => {
    const expected = formatRanges(wanted[family], family);
    const found = loaded.get(`bypass${family}`) ?? [];
    const lacking = expected.filter((element) => !found.includes(element));
    const name = `set bypass${family}`;
    if (lacking.length > 0)
      return [
        wrong(
          name,
          `lacks ${lacking.join(', ')}`,
          'the addresses of the servers',
          `ss-nft refresh ${settings.instance}`,
        ),
      ];
    return expected.length === 0 ? [] : [fine(name, expected.join(', '), 'the addresses of the servers')];
  });
}

function elementsOf(elements: readonly unknown[] = []): string[] {
  return elements.map((element) => {
    if (typeof element === 'string') return element;
    const { prefix, range } = element as { prefix?: { addr: string; len: number }; range?: string[] };
    if (prefix !== undefined) return `${prefix.addr}/${prefix.len}`;
    return range?.join('-') ?? '';
  });
}

async function lookAtListeners(
  settings: GatewaySettings,
): Promise<{ findings: Finding[]; pid: number | undefined }> {
  let pid: number | undefined;
  const findings: Finding[] = [];
  for (const [protocol, port, mode] of portsOf(settings)) {
    const what = `${protocol} port ${port}`;
    const listeners = await findListeners(protocol, port);
    const [listener] = listeners;
    if (listener === undefined) {
      findings.push(
        wrong(
          what,
          'nobody listens',
          'ss-redir',
          `start ss-redir (systemctl start ss-redir@${settings.instance})`,
        ),
      );
      continue;
    }
    pid ??= listener.pid;
    const found = listeners
      .map(({ command = 'a process', address }) => `${command} at ${address}`)
      .join(', ');
    const isLoopback = listeners.every(({ address }) => /^(?:127\.|\[::1\])/.test(address));
    if (mode === 'tproxy' && listeners.every(({ isTransparent }) => isTransparent === false)) {
      findings.push(
        wrong(
          what,
          `${found}, not transparent`,
          'a transparent socket',
          protocol === 'tcp' ? 'start ss-redir with -T (tcp_tproxy)' : 'start ss-redir with -u (mode)',
        ),
      );
    } else if (mode === 'redirect' && isLoopback && settings.interfaces.length > 0) {
      findings.push(
        wrong(what, found, 'an address that the LAN reaches', 'local_address = :: (-b ::), and start again'),
      );
    } else {
      findings.push(fine(what, found, 'ss-redir'));
    }
  }
  return { findings, pid };
}

/** CAP_NET_RAW marks, binds other hosts' addresses and sends raw replies; CAP_NET_ADMIN does the first two. */
function lookAtCapabilities(pid: number, { outboundFwmark, tcpTproxy, udp }: Config): Finding {
  const what = `capabilities of process ${pid}`;
  const wanted = 'CAP_NET_RAW';
  let effective: bigint;
  try {
    effective = BigInt(`0x${/^CapEff:\s*(\w+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]}`);
  } catch {
    return unknown(what, 'cannot be read', wanted);
  }
  const has = (capability: number) => (effective & (1n << BigInt(capability))) !== 0n;
  const needsIt = outboundFwmark !== 0 || tcpTproxy || udp;
  if (has(CAP_NET_RAW)) return fine(what, 'CAP_NET_RAW');
  if (!needsIt || has(CAP_NET_ADMIN))
    return fine(what, has(CAP_NET_ADMIN) ? 'CAP_NET_ADMIN' : 'none', 'enough for this configuration');
  return wrong(
    what,
    'neither CAP_NET_RAW nor CAP_NET_ADMIN',
    wanted,
    'AmbientCapabilities=CAP_NET_RAW in the unit, or start as root with -a USER',
  );
}
