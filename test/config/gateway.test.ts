import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Config } from '../../src/config/config.js';
import { gatewayInput } from '../../src/config/gateway.js';
import { ConfigFolder, refusal } from '../helpers/config-file.js';

const folder = new ConfigFolder();

function load(gateway: string, args: readonly string[] = []): Config {
  const server = '[server a]\naddress = a.example\nport = 1\npassword = x\n';
  const content = `[redir]\nlocal_port = 1080\n${server}${server.replace(' a]', ' b]')}[gateway]\n${gateway}\n`;
  return folder.load('lan.conf', content, 'ss-redir', args);
}

test('the rules are made from the section and from what ss-redir runs with, the command line included', () => {
  const input = gatewayInput(
    load('ifnames = br-lan\nkill_switch = true', ['-l', '1081', '-T', '-u', '-b', '::']),
  );
  assert.deepEqual(
    [...input].map(([key, { value }]) => [key, value]),
    [
      ['mode', 'tcp_and_udp'],
      ['tcp_tproxy', true],
      ['local_port', 1081],
      ['server', ['a.example']],
      ['outbound_fwmark', 0x0200_0000],
      ['ifnames', 'br-lan'],
      ['kill_switch', true],
    ],
  );
  assert.match(input.get('ifnames')!.origin, /lan\.conf:12: \[gateway\]: key "ifnames"$/);
});

test('what ss-redir decides is refused in the section', () => {
  for (const key of ['mode', 'tcp_tproxy', 'local_port', 'server', 'outbound_fwmark']) {
    assert.match(
      refusal(() => gatewayInput(load(`${key} = 1`))),
      new RegExp(
        `lan\\.conf:12: \\[gateway\\]: key "${key}": is for the flat keys, in INI those of \\[redir\\]`,
      ),
    );
  }
});

test('without a section the input is what ss-redir runs with', () => {
  const json = {
    server: ['192.0.2.1', '192.0.2.1:2'],
    server_port: 1,
    local_port: 1080,
    password: 'x',
    mode: 'udp_only',
  };
  const input = gatewayInput(folder.load('c.json', JSON.stringify(json)));
  assert.deepEqual([...input].map(([key, { value }]) => [key, value]).slice(0, 4), [
    ['mode', 'udp_only'],
    ['tcp_tproxy', false],
    ['local_port', 1080],
    ['server', ['192.0.2.1']],
  ]);
});
