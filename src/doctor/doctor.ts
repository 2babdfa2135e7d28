/** Everything that the doctor looks at, in the order in which a packet needs it. */
import type { Config } from '../config/config.js';
import { gatewayInput } from '../config/gateway.js';
import { ConfigError, UsageError } from '../errors.js';
import { resolveServers } from '../nft/addresses.js';
import { defaultInstance } from '../nft/names.js';
import { readGatewaySettings, type GatewaySettings } from '../nft/settings.js';
import { fine, unknown, wrong, type Finding } from './finding.js';
import { askByTcp, askByUdp, type Outcome } from './handshake.js';
import { sendThroughRules } from './probe.js';
import { lookAtRules } from './rules.js';
import { lookAtClock, lookAtDescriptors, lookAtKernel, lookAtSettings, lookForConflicts } from './system.js';

/** @param tell gets each finding as soon as it is there. */
export async function examine(
  config: Config,
  mark: number,
  tell: (finding: Finding) => void,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const note = (...found: readonly Finding[]) => {
    findings.push(...found);
    found.forEach(tell);
  };
  note(...lookAtConfiguration(config));
  const settings = readSettings(config, note);
  const addresses = await resolveAll(config, note);
  let pid: number | undefined;
  let areLoaded = false;
  if (settings !== undefined && process.getuid?.() !== 0) {
    note(unknown('kernel, rules and routing', 'not looked at', 'root'));
  } else if (settings !== undefined) {
    note(
      ...(await lookAtKernel(settings)),
      ...lookAtSettings(settings),
      ...(await lookForConflicts(settings)),
    );
    const all = [...addresses.values()].flat();
    const standing = await lookAtRules(settings, settings, config, all);
    note(...standing.findings);
    ({ pid, areLoaded } = standing);
  }
  note(lookAtDescriptors(pid, config), ...lookAtClock(config));
  note(...(await lookAtServers(config, addresses, mark)));
  if (settings === undefined) return findings;
  if (areLoaded && pid !== undefined) note(...(await sendThroughRules(settings)));
  else note(unknown('a client through the rules', 'not tried', 'rules and ss-redir'));
  return findings;
}

function lookAtConfiguration({ configFile, warnings }: Config): Finding[] {
  const name = configFile ?? 'command line';
  if (warnings.length === 0) return [fine('configuration', `${name} is valid`, 'valid, without a warning')];
  return warnings.map((warning) => wrong('configuration', warning, 'no warning', `edit ${name}`));
}

/** Undefined where there are no settings for rules: an administrator may have rules of his own. */
function readSettings(config: Config, note: (finding: Finding) => void): GatewaySettings | undefined {
  try {
    return readGatewaySettings(gatewayInput(config), config.instance ?? defaultInstance);
  } catch (error) {
    if (!(error instanceof ConfigError) && !(error instanceof UsageError)) throw error;
    if (config.gateway === undefined)
      note(
        unknown(
          'gateway',
          'the configuration has no [gateway] section: rules are not looked at',
          'one, for our rules',
        ),
      );
    else note(wrong('gateway', error.message, 'valid', `edit ${config.configFile ?? 'it'}`));
    return undefined;
  }
}

/** By name, also where that is an address already. */
async function resolveAll(config: Config, note: (finding: Finding) => void): Promise<Map<string, string[]>> {
  const addresses = new Map<string, string[]>();
  for (const host of new Set(config.servers.map((server) => server.host))) {
    let failure = 'no address';
    const found = await resolveServers([host], (message) => (failure = message));
    addresses.set(host, found);
    const name = `address of ${host}`;
    if (found.length === 0)
      note(wrong(name, failure, 'an address', 'server; /etc/resolv.conf and its name servers'));
    else if (found[0] !== host) note(fine(name, found.join(', '), 'an address'));
  }
  return addresses;
}

async function lookAtServers(
  { servers, tcp, udp }: Config,
  addresses: ReadonlyMap<string, readonly string[]>,
  mark: number,
): Promise<Finding[]> {
  const asked: { name: string; outcome: Promise<Outcome> }[] = [];
  for (const server of servers) {
    for (const address of addresses.get(server.host) ?? []) {
      const name = `server ${address.includes(':') ? `[${address}]` : address}:${server.port}`;
      if (tcp && server.tcp) asked.push({ name: `${name}, TCP`, outcome: askByTcp(server, address, mark) });
      if (udp && server.udp) asked.push({ name: `${name}, UDP`, outcome: askByUdp(server, address, mark) });
    }
  }
  return Promise.all(
    asked.map(async ({ name, outcome }) => {
      const { isOk, found, remedy } = await outcome;
      return isOk ? fine(name, found) : wrong(name, found, 'answers', remedy);
    }),
  );
}
