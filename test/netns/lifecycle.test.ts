// How the programs end: killed, asked to, or refused at their start.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, describe, test } from 'node:test';
import { addresses } from '../../src/demo/netns.js';
import { unprivileged } from '../helpers/packages.js';
import {
  commandLine,
  elapsedMs,
  modes,
  originPorts,
  origins,
  password,
  redirPort,
  serverPort,
  whySkipped,
  World,
  type Config,
} from '../helpers/world.js';

const endLimitMs = 1000;
const MiB = 1 << 20;

type Program = 'ss-redir' | 'ss-server';
const good: Record<Program, Config> = {
  'ss-redir': {
    server: addresses.internet.ipv4,
    server_port: serverPort,
    local_address: '::',
    local_port: redirPort,
    password,
    method: 'aes-256-gcm',
  },
  'ss-server': { server: '0.0.0.0', server_port: serverPort, password, method: 'aes-256-gcm' },
};

function without(program: Program, key: string): Config {
  const { [key]: _left, ...rest } = good[program];
  return rest;
}

describe('lifecycle', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('life');
  });
  after(() => world?.destroy());
  afterEach(() => world.reset());

  const connect = (port: number) => world.client.connect({ host: origins.ipv4, port });

  for (const mode of modes) {
    test(`${mode}: kill -9 in mid-transfer gives clients RST, not EOF, and leaves no socket`, async () => {
      await world.startServer('ours');
      const redir = await world.startRedir('ours', mode);
      const idle = await connect(originPorts.echo);
      await idle.write('x');
      await idle.wait({ bytes: 1 });
      const downloads = await Promise.all([1, 2, 3].map(() => connect(originPorts.transfer)));
      for (const client of downloads) await client.write('3000000000 0\n');
      for (const client of downloads) await client.wait({ bytes: 2 * MiB });

      redir.kill('SIGKILL');
      await redir.exited;
      for (const client of [idle, ...downloads]) {
        const { error, ended } = await client.wait({ closed: true }, 2000);
        assert.deepEqual([error, ended], ['ECONNRESET', false]);
      }
      const { stdout } = await world.bed.gateway.run('ss', [
        '-Htan',
        'state',
        'connected',
        `sport = :${redirPort}`,
      ]);
      assert.equal(stdout, '');
      const left = world.bed.gateway.pids();
      assert.deepEqual(left, [], 'processes left');
    });
  }

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    test(`${signal} ends ss-redir and ss-server under load within a second, status 0`, async () => {
      const server = await world.startServer('ours');
      const redir = await world.startRedir('ours', 'redirect');
      const target = { host: origins.ipv4, port: originPorts.transfer };
      const load = world.client.bulk({ ...target, connections: 20, down: 1000 * MiB, up: 1000 * MiB });
      const busy = await connect(originPorts.transfer);
      await busy.write('3000000000 0\n');
      await busy.wait({ bytes: 4 * MiB });

      for (const program of [redir, server]) {
        const ms = await elapsedMs(async () => {
          const exit = await program.stop(signal, 5000);
          assert.deepEqual(exit, { code: 0, signal: undefined }, program.output);
        });
        assert.ok(ms < endLimitMs, `${program.label} ended after ${ms} ms`);
      }
      assert.equal((await load).completed, 0);
    });
  }

  test('a second SIGTERM while the first is at work changes nothing', async () => {
    const redir = await world.startRedir('ours', 'redirect');
    redir.kill('SIGTERM');
    assert.deepEqual(await redir.stop('SIGTERM'), { code: 0, signal: undefined });
  });

  // In the client's namespace, where nothing of ours runs.
  async function runToEnd(
    command: string[],
  ): Promise<{ lines: string[]; status: number | undefined; ms: number }> {
    let status: number | undefined;
    let output = '';
    const ms = await elapsedMs(async () => {
      const result = await world.bed.client.run(command[0]!, command.slice(1), {
        reject: false,
        timeout: 5000,
      });
      status = result.exitCode;
      output = `${result.stdout}\n${result.stderr}`;
    });
    assert.doesNotMatch(output, /\n\s+at /, 'a stack trace');
    assert.ok(!output.includes(password), 'the password is in the message');
    return { lines: output.split('\n').filter((line) => line.trim() !== ''), status, ms };
  }

  describe('refused at the start: one line that names the culprit, status 1, within a second', () => {
    const portKey = { 'ss-redir': 'local_port', 'ss-server': 'server_port' } as const;

    for (const program of ['ss-redir', 'ss-server'] as const) {
      const cases: [kind: string, config: Config | string | undefined, culprit: RegExp][] = [
        ['missing file', undefined, /\/nonexistent\.json/],
        ['bad JSON', '{ "server": ', /\.json/],
        ['not an object', '[]', /\.json/],
        ['unknown method', { ...good[program], method: 'aes-257-gcm' }, /aes-257-gcm/],
        ['port 0', { ...good[program], [portKey[program]]: 0 }, new RegExp(`${portKey[program]}.*\\b0\\b`)],
        [
          'port 70000',
          { ...good[program], [portKey[program]]: 70_000 },
          new RegExp(`${portKey[program]}.*70000`),
        ],
        [
          'port by a wrong type',
          { ...good[program], [portKey[program]]: true },
          new RegExp(portKey[program]),
        ],
        ['missing password', without(program, 'password'), /password/],
        ['missing server_port', without(program, 'server_port'), /server_port/],
        ['timeout 0', { ...good[program], timeout: 0 }, /timeout.*\b0\b/],
        ['timeout -5', { ...good[program], timeout: -5 }, /timeout.*-5/],
      ];
      if (program === 'ss-redir') {
        cases.push(['missing server', without(program, 'server'), /server/]); // ss-server then listens on all addresses
      }
      for (const [kind, config, culprit] of cases) {
        test(`${program}: ${kind}`, async () => {
          const file = config === undefined ? '/nonexistent.json' : world.writeConfig(config);
          const command = [...commandLine(program, 'ours'), '-c', file];
          const { lines, status, ms } = await runToEnd(command);
          assert.equal(lines.length, 1, lines.join('\n'));
          assert.match(lines[0]!, culprit);
          assert.equal(status, 1);
          // Once more where it was slow: another test may have had the processor.
          const fastest = ms < endLimitMs ? ms : Math.min(ms, (await runToEnd(command)).ms);
          assert.ok(fastest < endLimitMs, `${fastest} ms`);
        });
      }

      test(`${program}: port in use`, async () => {
        const port = 9500;
        await world.client.listen({ port, behaviour: 'silent' });
        const config = world.writeConfig({ ...good[program], [portKey[program]]: port });
        const { lines, status, ms } = await runToEnd([...commandLine(program, 'ours'), '-c', config]);
        assertOneError(lines, /9500.*(EADDRINUSE|in use)|(EADDRINUSE|in use).*9500/);
        assert.equal(status, 1);
        assert.ok(ms < endLimitMs, `${ms} ms`);
      });
    }

    test('ss-redir: without the capability to mark its packets', async () => {
      const config = world.writeConfig(good['ss-redir']);
      const command = [...unprivileged, ...commandLine('ss-redir', 'ours'), '-c', config];
      const { lines, status } = await runToEnd(command);
      assertOneError(lines, /CAP_NET.*SO_MARK.*--outbound-fwmark 0/);
      assert.equal(status, 1);
    });

    test('ss-redir: -T without the capability for it', async () => {
      const config = world.writeConfig(good['ss-redir']);
      const command = [...unprivileged, ...commandLine('ss-redir', 'ours'), '-c', config, '-T'];
      const { lines, status, ms } = await runToEnd(command);
      assertOneError(lines, /TRANSPARENT.*(EPERM|CAP_NET)/);
      assert.equal(status, 1);
      assert.ok(ms < endLimitMs, `${ms} ms`);
    });
  });

  test('ss-server listens on every address of a list: ["::0", "0.0.0.0"], a common one', async () => {
    await world.startServer('ours', { config: { server: ['::0', '0.0.0.0'] } });
    for (const host of [addresses.internet.ipv4, addresses.internet.ipv6]) {
      const client = await world.client.connect({ host, port: serverPort });
      await client.destroy();
    }
  });

  for (const program of ['ss-redir', 'ss-server'] as const) {
    test(`${program} --check: one line, status 0 for a valid configuration and 1 for another, and nothing is started`, async () => {
      const check = (config: Config) =>
        runToEnd([...commandLine(program, 'ours'), '-c', world.writeConfig(config), '--check']);
      await world.client.listen({ port: serverPort, behaviour: 'silent' }); // so a start would fail
      await world.client.listen({ port: redirPort, behaviour: 'silent' });
      const valid = await check(good[program]);
      assert.deepEqual([valid.status, valid.lines.length], [0, 1], valid.lines.join('\n'));
      assert.match(valid.lines[0]!, /the configuration is valid: .*\.json/);

      const invalid = await check({ ...good[program], method: 'rc4-md5' });
      assert.deepEqual([invalid.status, invalid.lines.length], [1, 1], invalid.lines.join('\n'));
      assert.match(invalid.lines[0]!, /key "method".*retired/);
    });
  }

  // As Debian's unit starts it: CAP_NET_BIND_SERVICE and nothing else.
  test('ss-server serves without the privilege to mark its packets, and refuses only a mark that was asked for', async () => {
    const server = await world.startServer('ours', { prefix: unprivileged });
    await server.waitForOutput(/carry no mark.*CAP_NET/);
    await world.startRedir('ours', 'redirect');
    const client = await connect(originPorts.echo);
    await client.write('x');
    assert.equal((await client.wait({ bytes: 1 })).bytes, 1);
    await world.stop(server);

    const config = world.writeConfig({ ...good['ss-server'], outbound_fwmark: 7 });
    const { lines, status } = await runToEnd([
      ...unprivileged,
      ...commandLine('ss-server', 'ours'),
      '-c',
      config,
    ]);
    assertOneError(lines, /SO_MARK.*--outbound-fwmark 0/);
    assert.equal(status, 1);
  });

  test('no password stands in the log of a running program', async () => {
    const server = await world.startServer('ours', { args: ['-v'] });
    const redir = await world.startRedir('ours', 'redirect', { args: ['-v'] });
    const client = await connect(originPorts.echo);
    await client.write('payload that no log may show');
    await client.wait({ bytes: 10 });
    const output = redir.output + server.output;
    assert.ok(output.length > 0);
    for (const secret of [password, 'payload that']) assert.ok(!output.includes(secret), secret);
    assert.doesNotMatch(readFileSync(`/proc/${redir.pid}/cmdline`, 'utf8'), new RegExp(password));
  });
});

// Lines that tell what was begun may stand before it.
function assertOneError(lines: string[], culprit: RegExp): void {
  assert.match(lines.at(-1) ?? '', culprit);
  assert.equal(lines.filter((line) => /error/i.test(line)).length, 1, lines.join('\n'));
}
