/** What the rules are made from: the gateway section, and what ss-redir itself runs with. */
import { dirname, resolve } from 'node:path';
import { oneLine } from '../text.js';
import type { Config } from './config.js';
import { Setting } from './setting.js';
import type { Settings } from './setting.js';

/**
 * The settings of the gateway section and, under the names of their flat keys, those in which the rules must agree with
 * ss-redir: servers, ports, protocols, TPROXY, mark. Of these the section says nothing.
 *
 * @throws {ConfigError} for one of them in the section.
 */
export function gatewayInput(config: Config): Settings {
  const input = new Map<string, Setting>();
  const origin = oneLine(config.configFile ?? 'command line');
  for (const [key, value] of Object.entries(shared(config))) {
    const written = config.gateway?.get(key);
    if (written !== undefined)
      throw written.refuse(
        'is for the flat keys, in INI those of [redir]: the rules follow what ss-redir does',
      );
    input.set(key, Setting.fromFile(origin, key, value, String(value)));
  }
  for (const [key, setting] of config.gateway ?? [])
    input.set(key, besideFile(key, setting, config.configFile));
  if (config.fail !== undefined) input.set('fail', config.fail);
  return input;
}

/** Files are named from the folder of the configuration on, wherever the command is run, as password_file is. */
function besideFile(key: string, setting: Setting, configFile: string | undefined): Setting {
  const { value } = setting;
  const names = [value].flat();
  if (!key.endsWith('_file') || configFile === undefined || !names.every((name) => typeof name === 'string'))
    return setting;
  return setting.as(names.filter((name) => name !== '').map((name) => resolve(dirname(configFile), name)));
}

function shared({
  tcp,
  udp,
  tcpTproxy,
  localPort,
  servers,
  outboundFwmark,
}: Config): Record<string, unknown> {
  return {
    mode: udp ? (tcp ? 'tcp_and_udp' : 'udp_only') : 'tcp_only',
    tcp_tproxy: tcpTproxy,
    local_port: localPort,
    server: [...new Set(servers.map(({ host }) => host))],
    outbound_fwmark: outboundFwmark,
  };
}
