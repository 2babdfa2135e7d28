// How fast the programs end while they carry a load on two workers, whoever ends them: a fault in either plane,
// process.exit, and Ctrl-C in a terminal. Signals sent to the process alone are in lifecycle.test.ts.
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { addresses } from '../../src/demo/netns.js';
import {
  commandLine,
  elapsedMs,
  originPorts,
  origins,
  password,
  redirPort,
  serverPort,
  whySkipped,
  World,
} from '../helpers/world.js';
import { loadRules } from '../helpers/rules.js';
import type { Sabotage } from './saboteur.js';

const endLimitMs = 1000;
const attempts = 3; // where it was slow: another test may have had the processors
const MiB = 1 << 20;
const saboteur = new URL('saboteur.js', import.meta.url).href;

describe('endings under load', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('endings');
  });
  after(() => world?.destroy());
  afterEach(() => world.reset());

  /** Loads the proxy, lets `end` end one of its programs, and says how long that took. */
  async function timedUnderLoad(end: () => Promise<unknown>): Promise<number> {
    const target = { host: origins.ipv4, port: originPorts.transfer };
    const load = world.client.bulk({ ...target, connections: 10, down: 1000 * MiB, up: 1000 * MiB });
    const busy = await world.client.connect(target);
    await busy.write('3000000000 0\n');
    assert.ok((await busy.wait({ bytes: 4 * MiB })).bytes >= 4 * MiB, 'there is no load');

    const ms = await elapsedMs(end);
    const { error, ended } = await busy.wait({ closed: true }, 2000);
    assert.deepEqual([error, ended], ['ECONNRESET', false], 'a cut transfer looks whole');
    await world.client.call('clear', undefined);
    assert.equal((await load).completed, 0);
    return ms;
  }

  async function withinASecond(attempt: () => Promise<number>): Promise<void> {
    const times: number[] = [];
    while (times.length < attempts) {
      times.push(await attempt());
      if (times.at(-1)! < endLimitMs) return;
      await world.reset();
    }
    assert.fail(`ended after ${times.map(Math.round).join(', ')} ms`);
  }

  const endings: [how: Sabotage, status: number, said: RegExp][] = [
    ['main throws', 70, /internal error: Error: sabotage of the control plane/],
    ['main rejects', 70, /internal error: Error: sabotage of a promise/],
    ['worker throws', 70, /internal error: Error: sabotage of the data plane/],
    ['main exits', 3, /(?:)/],
  ];
  for (const program of ['ss-redir', 'ss-server'] as const) {
    for (const [how, status, said] of endings) {
      test(`${program}: ${how}: status ${status} within a second, clients get RST, nothing is left`, () =>
        withinASecond(async () => {
          const file = join(world.directory, 'sabotage');
          rmSync(file, { force: true });
          const env = { NODE_OPTIONS: `--import=${saboteur}`, SABOTAGE: file };
          const broken = { args: ['--workers', '2'], env };
          const server = await world.startServer('ours', program === 'ss-server' ? broken : {});
          const redir = await world.startRedir('ours', 'redirect', program === 'ss-redir' ? broken : {});
          const service = program === 'ss-redir' ? redir : server;

          const ms = await timedUnderLoad(async () => {
            writeFileSync(file, how);
            const { code } = await service.exited;
            assert.equal(code, status, service.output.slice(-2000));
          });
          assert.match(service.output, said);
          assert.doesNotMatch(service.output, /\n\s+at /, 'a stack trace over several lines');
          const netns = program === 'ss-redir' ? world.bed.gateway : world.bed.internet;
          assert.ok(!netns.pids().includes(service.pid), 'the process is still there');
          return ms;
        }));
    }
  }

  test('ss-redir: Ctrl-C in its terminal: status 0 within a second', () =>
    withinASecond(async () => {
      const config = {
        server: addresses.internet.ipv4,
        server_port: serverPort,
        local_address: '::',
        local_port: redirPort,
        password,
        method: 'aes-256-gcm',
      };
      await world.startServer('ours');
      const words = [...commandLine('ss-redir', 'ours'), '-c', world.writeConfig(config), '--workers', '2'];
      // script(1) gives it a terminal of its own, and types into that what it reads itself. It runs a shell, $SHELL or sh:
      // one that stays would take the Ctrl-C, too, and end with its own status.
      const terminal = world.bed.gateway.spawn('script', ['-qefc', `exec ${words.join(' ')}`, '/dev/null']);
      let shown = '';
      terminal.all.on('data', (chunk: Buffer) => (shown += chunk.toString()));
      try {
        assert.ok(await world.settles(() => /listening at/.test(shown), 5000), `no listener: ${shown}`);
        await loadRules(world.bed.gateway, 'redirect', redirPort);

        const ms = await timedUnderLoad(async () => {
          terminal.stdin?.write('\x03');
          assert.equal((await terminal).exitCode, 0, shown);
        });
        assert.match(shown, /SIGINT: stopping/);
        assert.deepEqual(world.bed.gateway.pids(), [], 'processes left');
        return ms;
      } finally {
        terminal.kill('SIGKILL');
      }
    }));
});
