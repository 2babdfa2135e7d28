/** Servers of the configuration as the workers know them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nameServers, planWorkers } from '../../src/control/plan.js';
import type { Config } from '../../src/config/config.js';
import { ConfigFolder } from '../helpers/config-file.js';

const folder = new ConfigFolder();
const budget = { maxConnections: 10, maxSessions: 10, maxReplySockets: 10 };

function load(servers: readonly object[], more: object = {}): Config {
  const common = { local_port: 1080, local_address: '::', password: 'x', server_port: 8388 };
  return folder.load('c.json', JSON.stringify({ ...common, ...more, servers }));
}

function planned(config: Config): { methodName: string; key: string }[] {
  const [plan] = planWorkers(config, 0, { tcp: [[]], udp: [] }, budget as never);
  const { methodName, credentials, otherKeys = [] } = plan!;
  return [{ methodName, credentials }, ...otherKeys].map((keys) => ({
    methodName: keys.methodName,
    key: Buffer.from(keys.credentials.key).toString('hex').slice(0, 8),
  }));
}

test('servers that have all in common are told nothing of keys', () => {
  const config = load([{ address: 'a.example' }, { address: 'b.example', port: 1 }]);
  assert.equal(planned(config).length, 1);
  assert.deepEqual(nameServers(config), [
    { host: 'a.example', port: 8388 },
    { host: 'b.example', port: 1 },
  ]);
});

test('each method and password is told once, and each server which of them it has', () => {
  const config = load([
    { address: 'a.example' },
    { address: 'b.example', method: 'aes-256-gcm' },
    { address: 'c.example', password: 'y' },
    { address: 'd.example', method: 'aes-256-gcm' },
    { address: 'e.example' },
  ]);
  const plans = planned(config);
  assert.deepEqual(
    plans.map(({ methodName }) => methodName),
    ['chacha20-ietf-poly1305', 'aes-256-gcm', 'chacha20-ietf-poly1305'],
  );
  assert.equal(plans[0]!.key, plans[1]!.key);
  assert.notEqual(plans[0]!.key, plans[2]!.key);
  assert.deepEqual(
    nameServers(config).map(({ keys }) => keys),
    [undefined, 0, 1, 0, undefined],
  );
});

test('a server is told which of the relayed protocols it is without', () => {
  const config = load(
    [{ address: 'a', mode: 'tcp_only' }, { address: 'b', mode: 'udp_only' }, { address: 'c' }],
    { mode: 'tcp_and_udp' },
  );
  assert.deepEqual(
    nameServers(config).map(({ without }) => without),
    ['udp', 'tcp', undefined],
  );
  const tcpOnly = load([{ address: 'a', mode: 'tcp_only' }]);
  assert.deepEqual(nameServers(tcpOnly), [{ host: 'a', port: 8388 }]);
});
