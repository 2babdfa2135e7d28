// -a and -f, in the testbed: who the threads are and what they may, and that what needs a privilege still works (R47, R49).
import assert from 'node:assert/strict';
import { execaSync } from 'execa';
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { addresses } from '../../src/demo/netns.js';
import { Service } from '../../src/demo/service.js';
import { loadRules } from '../helpers/rules.js';
import { readableProgram, type ReadableProgram } from '../helpers/readable-program.js';
import { statusOf, threadsOf, workersOf } from '../helpers/threads.js';
import { UdpSocket } from '../helpers/udp-sockets.js';
import {
  families,
  originPorts,
  origins,
  password,
  redirPort,
  serverPort,
  whySkipped,
  World,
  type Config,
} from '../helpers/world.js';

const nobody = 65_534;
const capNetRaw = (1n << 13n).toString(16).padStart(16, '0');
const none = '0'.repeat(16);

const common = { password, method: 'aes-256-gcm', mode: 'tcp_and_udp' };
const redirConfig = {
  ...common,
  server: addresses.internet.ipv4,
  server_port: serverPort,
  local_address: '::',
  local_port: redirPort,
  tcp_tproxy: true,
};

const directory = mkdtempSync(join(tmpdir(), 'ss-redir-test-'));
process.on('exit', () => rmSync(directory, { recursive: true, force: true }));
const pidFile = join(directory, 'ss-redir.pid');
const pidIn = (): number => Number(readFileSync(pidFile, 'utf8'));
const isAlive = (pid: number): boolean => existsSync(`/proc/${pid}`);

/** The process that stays is no child of ours: it is ended by its number. */
async function end(pid: number, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  process.kill(pid, signal);
  for (let tries = 0; tries < 200 && isAlive(pid); tries++) await delay(10);
  assert.ok(!isAlive(pid), 'has not ended');
}

describe('privileges', { skip: whySkipped() }, () => {
  let world: World;
  let program: ReadableProgram;
  const started: { stop(): Promise<unknown> }[] = [];
  before(async () => {
    world = await World.create('s1-priv');
    for (const family of families)
      await UdpSocket.open(world.origin, {
        host: origins[family],
        port: originPorts.udpEcho,
        behaviour: 'echo',
      });
    program = readableProgram(nobody);
  });
  after(async () => {
    program?.remove();
    await world?.destroy();
  });
  afterEach(async () => {
    await Promise.all(started.splice(0).map((service) => service.stop()));
    await world.reset();
  });

  function words(command: 'ss-redir' | 'ss-server', config: Config, args: string[]): string[] {
    return [process.execPath, program.script(command), '-c', world.writeConfig(config), ...args];
  }

  async function startRedir(args: string[], config: Config = {}): Promise<Service> {
    const [node, ...rest] = words('ss-redir', { ...redirConfig, ...config }, args);
    const service = await world.bed.gateway.start(node!, rest, { listen: redirPort });
    started.push(service);
    await service.waitForOutput(/listening at/);
    return service;
  }

  /** Runs to its end; in the gateway, or where nothing of ours is. */
  async function run(command: string[], prefix: string[] = []) {
    const [first, ...rest] = [...prefix, ...command];
    const result = await world.bed.gateway.run(first!, rest, { reject: false, timeout: 10_000 });
    return { status: result.exitCode, output: `${result.stdout}${result.stderr}` };
  }

  const inBackground = (args: string[] = [], config: Config = {}) =>
    run(words('ss-redir', { ...redirConfig, ...config }, ['-f', pidFile, ...args]));

  test('-a: every thread is the user, the workers have CAP_NET_RAW alone, all others nothing or the same', async () => {
    const redir = await startRedir(['-a', 'nobody', '--workers', '2']);
    const workers = await workersOf(redir.pid, 2);
    for (const tid of threadsOf(redir.pid)) {
      assert.equal(statusOf(redir.pid, tid, 'Uid'), [nobody, nobody, nobody, nobody].join('\t'));
      assert.equal(statusOf(redir.pid, tid, 'Gid'), [nobody, nobody, nobody, nobody].join('\t'));
      assert.equal(statusOf(redir.pid, tid, 'Groups'), String(nobody));
      for (const set of ['CapPrm', 'CapEff']) {
        const got = statusOf(redir.pid, tid, set);
        const isOurs = tid === redir.pid || workers.includes(tid);
        assert.ok(isOurs ? got === capNetRaw : [none, capNetRaw].includes(got), `${set} ${got} of ${tid}`);
      }
      for (const set of ['CapInh', 'CapAmb']) assert.equal(statusOf(redir.pid, tid, set), none, set);
    }
    for (const tid of [redir.pid, ...workers]) assert.equal(statusOf(redir.pid, tid, 'CapBnd'), capNetRaw);
  });

  for (const [how, args, config] of [
    ['-a nobody', ['-a', 'nobody'], {}],
    ['"user": "nobody"', [], { user: 'nobody' }],
  ] as const) {
    test(`${how}: TPROXY carries TCP and answers UDP, by IPv4 and IPv6`, async () => {
      const [node, ...rest] = words('ss-server', { ...common, server: '::', server_port: serverPort }, [
        ...args,
      ]);
      const { internet } = world.bed;
      started.push(await internet.start(node!, rest, { listen: serverPort }));
      const redir = await startRedir([...args], config);
      assert.equal(statusOf(redir.pid, redir.pid, 'Uid').split('\t')[0], String(nobody));
      await loadRules(world.bed.gateway, 'tproxy', redirPort, { protocols: ['tcp', 'udp'] });
      for (const family of families) {
        const target = { host: origins[family], port: originPorts.transfer };
        const { failures } = await world.client.bulk({ ...target, connections: 4, down: 1e6, up: 1e6 });
        assert.deepEqual(failures, {}, family);
        const echo = { host: origins[family], port: originPorts.udpEcho };
        const datagrams = await UdpSocket.open(world.client, { host: family === 'ipv4' ? '0.0.0.0' : '::' });
        assert.equal(await datagrams.ask(echo, 'hello'), `hello from ${echo.host} ${echo.port}`);
      }
    });
  }

  test('a worker started later than the drop has the capability as well', async () => {
    // The workers are started one after another, all of them after the drop: the last is as the first.
    const redir = await startRedir(['-a', 'nobody', '--workers', '4']);
    for (const tid of await workersOf(redir.pid, 4)) {
      assert.equal(statusOf(redir.pid, tid, 'CapEff'), capNetRaw);
    }
  });

  test('ports below 1024 are listened at before the drop; the user may be a number', async () => {
    const redir = await startRedir(['-a', String(nobody)], { dscp: { '853': 'EF' } });
    await redir.waitForListen(853);
    assert.equal(statusOf(redir.pid, redir.pid, 'Uid').split('\t')[0], String(nobody));
    assert.equal(statusOf(redir.pid, redir.pid, 'CapEff'), capNetRaw);
  });

  test('a configuration that the user cannot read again is told of at the start', async () => {
    const redir = await startRedir(['-a', 'nobody']); // world.writeConfig makes it 0600
    assert.match(
      redir.output,
      /WARN: user "nobody" \(-a\) cannot read .*\.json: a reload will not be possible/,
    );
  });

  describe('refused at the start, with status 1 and one line of ERROR', () => {
    const minimal: Config = { ...redirConfig, mode: 'tcp_only', tcp_tproxy: false };
    const unprivileged = ['setpriv', '--inh-caps=-all', '--bounding-set=-all'];
    const threeWays =
      /start it as root.*-a USER.*AmbientCapabilities=CAP_NET_RAW.*setpriv .*--ambient-caps \+net_raw/;
    const asNobody = ['setpriv', `--reuid=${nobody}`, '--clear-groups'];
    const cases: [claim: string, config: Config, args: string[], prefix: string[], message: RegExp][] = [
      [
        'a user that is not there',
        minimal,
        ['-a', 'nosuchuser'],
        [],
        /user "nosuchuser" \(-a\): .*none of that name/,
      ],
      [
        'becoming root',
        minimal,
        ['-a', 'root', '--outbound-fwmark', '0'],
        asNobody,
        /"root" \(-a\).*takes root, or CAP_SETUID/,
      ],
      [
        'no capability for the mark',
        minimal,
        [],
        unprivileged,
        /ERROR: marking our own traffic needs CAP_NET_RAW/,
      ],
      ['no capability for the mark: the ways to give it', minimal, [], unprivileged, threeWays],
      [
        'no capability for TPROXY',
        { ...minimal, tcp_tproxy: true },
        ['--outbound-fwmark', '0'],
        unprivileged,
        threeWays,
      ],
      [
        'no capability for UDP',
        { ...minimal, mode: 'tcp_and_udp' },
        ['--outbound-fwmark', '0'],
        unprivileged,
        threeWays,
      ],
    ];
    for (const [claim, config, args, prefix, message] of cases) {
      test(claim, async () => {
        // Readable for everybody: what is refused is not the file.
        const file = join(tmpdir(), `ss-redir-test-${process.pid}.json`);
        writeFileSync(file, JSON.stringify(config), { mode: 0o644 });
        const { status, output } = await run(
          [process.execPath, program.script('ss-redir'), '-c', file, ...args],
          prefix,
        );
        rmSync(file);
        assert.equal(status, 1, output);
        const errors = output.split('\n').filter((line) => line.includes('ERROR'));
        assert.equal(errors.length, 1, output);
        assert.match(errors[0]!, message);
        assert.doesNotMatch(output, /listening at|\n\s+at /);
      });
    }
  });

  describe('-f', () => {
    afterEach(async () => {
      const left = world.bed.gateway.pids();
      for (const pid of left)
        if (readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('-f')) await end(pid, 'SIGKILL');
    });

    test('the command ends with status 0 once its child listens; the file has the number of the process that serves', async () => {
      const { status, output } = await inBackground();
      assert.equal(status, 0, output);
      const pid = pidIn();
      const sockets = execaSync('ip', [
        'netns',
        'exec',
        world.bed.gateway.name,
        'ss',
        '-Hltnp',
        `sport = ${redirPort}`,
      ]);
      assert.match(
        sockets.stdout,
        new RegExp(`pid=${pid},`),
        'it listens at the moment the command has ended',
      );
      assert.match(output, /listening at \[::\]/, 'what it says at its start is seen');
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
      assert.equal(Number(stat[3]), pid, 'in a session of its own');
      assert.equal(readlinkSync(`/proc/${pid}/cwd`), '/');
      for (const fd of [0, 1, 2]) assert.equal(readlinkSync(`/proc/${pid}/fd/${fd}`), '/dev/null');
      await end(pid);
      assert.ok(!existsSync(pidFile), 'the file is gone after a clean end');
    });

    test('its refusal is the command’s: status 1, the message, and no file left', async () => {
      await world.bed.gateway
        .start(process.execPath, ['-e', `require('node:net').createServer().listen(${redirPort})`], {
          listen: redirPort,
        })
        .then((service) => started.push(service));
      const { status, output } = await inBackground();
      assert.equal(status, 1);
      assert.match(
        output,
        new RegExp(`ERROR: cannot listen at \\[::\\]:${redirPort} \\(TCP\\): the port is in use`),
      );
      assert.ok(!existsSync(pidFile));
    });

    test('a second start is refused with the number of the first, which goes on', async () => {
      assert.equal((await inBackground()).status, 0);
      const pid = pidIn();
      const { status, output } = await inBackground([], { local_port: redirPort + 1 });
      assert.equal(status, 1);
      assert.match(
        output,
        new RegExp(`ERROR: .*ss-redir.pid \\(-f\\): already running as process ${pid}\\b`),
      );
      assert.equal(pidIn(), pid);
      assert.ok(isAlive(pid));
      await end(pid);
    });

    test('a file left by kill -9 is replaced, also when its number is another process by now', async () => {
      assert.equal((await inBackground()).status, 0);
      const killed = pidIn();
      await end(killed, 'SIGKILL');
      assert.equal(pidIn(), killed, 'left behind');
      writeFileSync(pidFile, `${process.pid}\n`);
      assert.equal((await inBackground()).status, 0);
      assert.notEqual(pidIn(), process.pid);
      await end(pidIn());
    });

    test('a file that cannot be written refuses the start', async () => {
      const command = words('ss-redir', redirConfig, ['-f', '/nonexistent/x.pid']);
      const { status, output } = await run(command);
      assert.equal(status, 1);
      assert.match(
        output,
        /ERROR: \/nonexistent\/x\.pid \(-f\): cannot be written: no such file or directory/,
      );
    });

    test('with -a the file is made by root, and left empty where the user may not remove it', async () => {
      const { status, output } = await inBackground(['-a', 'nobody']);
      assert.equal(status, 0, output);
      const pid = pidIn();
      assert.equal(statusOf(pid, pid, 'Uid').split('\t')[0], String(nobody));
      await end(pid);
      assert.equal(statSync(pidFile).size, 0); // a directory of root's
      rmSync(pidFile);
    });
  });
});
