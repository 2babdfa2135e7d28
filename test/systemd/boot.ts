// What happens under a real systemd, each a scenario. units-running.test.ts boots one (test/testbed/systemd-boot), runs
// this file there with the argument "run", and reads a line `RESULT {"name":…}` for each scenario.
//
//   client (this process, root) -> nft: redirect of what root sends -> ss-redir@home -> ss-server@up -> target (a child)
//
// The target is in a network namespace of its own, because what has an address of this host is not proxied.
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer } from 'node:net';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { runScenarios, type Scenarios } from '../helpers/booted.js';
import { HungThread, statusOf, threadsOf, workersOf } from '../helpers/threads.js';

const setupScript = fileURLToPath(new URL('../../src/bin/ss-setup.js', import.meta.url));
const configurations = '/etc/shadowsocks-libev';
const target = { host: '8.8.8.8', port: 9001, udpPort: 9011 };
const link = { near: '192.168.60.1', far: '192.168.60.2' };
const redirPort = 1234;
const capNetRaw = (1n << 13n).toString(16).padStart(16, '0');
const watchdogSeconds = 2;
const common = { password: 'correct horse', method: 'aes-256-gcm', mode: 'tcp_and_udp' };

/** Without holding up this process, as execFileSync would: the load goes on. */
const inBackground = promisify(execFile);

const service = 'ss-redir@home.service';

/** In the order in which they run: each begins with the services serving, and leaves them so. */
export const scenarios: Scenarios = {
  'units start, are ready, and run as their user with nothing but their capability': async () => {
    for (const unit of ['ss-server@up.service', service]) {
      systemctl('start', unit);
      assert.equal(show(unit, 'ActiveState'), 'active');
      assert.match(
        show(unit, 'StatusText'),
        /^serving 0 TCP connections and 0 UDP associations with [12] workers?$/,
      );
    }
    const pid = mainPid(service);
    const uid = output('id', '-u', 'ss-redir').trim();
    for (const tid of threadsOf(pid)) {
      assert.equal(statusOf(pid, tid, 'Uid').split('\t')[0], uid);
      for (const set of ['CapEff', 'CapPrm', 'CapBnd']) assert.equal(statusOf(pid, tid, set), capNetRaw, set);
    }
    assert.match(limitOf(pid, 'Max open files'), /^(\d{5,}) +\1/);
    assert.match(limitOf(pid, 'Max core file size'), /^0 +0/);
  },

  'TCP is carried, and UDP by TPROXY answered in the name of its target': async () => {
    for (let i = 0; i < 20; i++) assert.equal(await ask(), 'answered');
    assert.equal(await askUdp(), `${target.host}:${target.udpPort}`);
  },

  'directories and user are there as sysusers and tmpfiles say': async () => {
    const group = Number(output('id', '-g', 'ss-redir'));
    for (const [path, uid, mode] of [
      ['/etc/ss-redir', 0, 0o2750],
      ['/run/ss-redir', Number(output('id', '-u', 'ss-redir')), 0o750],
    ] as const) {
      const stat = statSync(path);
      assert.deepEqual([stat.uid, stat.gid, stat.mode & 0o7777], [uid, group, mode], path);
    }
  },

  'a reload returns, and the same process goes on': async () => {
    const pid = mainPid(service);
    systemctl('reload', service);
    assert.equal(show(service, 'ActiveState'), 'active');
    assert.equal(mainPid(service), pid);
    assert.equal(await ask(), 'answered');
  },

  'a restart under load refuses no connection: its listeners are kept': async () => {
    assert.ok(Number(show(service, 'NFileDescriptorStore')) >= 3, show(service, 'NFileDescriptorStore'));
    await underLoad(() => inBackground('systemctl', ['restart', service]));
  },

  'kill -9 under load refuses no connection, and it is started again': async () => {
    await underLoad(async () => {
      const pid = mainPid(service);
      process.kill(pid, 'SIGKILL');
      await until(() => mainPid(service) !== pid && show(service, 'ActiveState') === 'active');
    });
  },

  'with fewer and more workers than kept listeners every one of them is accepted from': async () => {
    for (const workers of [1, 3, 2]) {
      configure('home', { workers });
      systemctl('restart', service);
      assert.match(show(service, 'StatusText'), new RegExp(`with ${workers} worker`));
      assert.deepEqual(listeningPorts(), [redirPort, redirPort, redirPort], `${workers} workers`);
      const results = await Promise.all(Array.from({ length: 40 }, ask)); // the kernel spreads them over both sockets
      assert.deepEqual(new Set(results), new Set(['answered']));
    }
  },

  'after a change of workers and port the old listeners are gone, and the new ones serve': async () => {
    configure('home', { local_port: 1300, workers: 1 });
    systemctl('restart', service);
    assert.deepEqual(listeningPorts(), [1300, 1300]);
    configure('home', { workers: 'auto' }); // ProcSubset=pid hides the processors from os.cpus()
    systemctl('restart', service);
    const sockets = availableParallelism() + 1;
    assert.deepEqual(listeningPorts(), Array(sockets).fill(redirPort));
    configure('home', {});
    systemctl('restart', service);
    assert.deepEqual(listeningPorts(), [redirPort, redirPort, redirPort]);
    assert.equal(await ask(), 'answered');
  },

  'a worker that hangs alone is told of, and the watchdog starts the service again': async () => {
    const pid = mainPid(service);
    const [worker] = await workersOf(pid, 2);
    const hung = new HungThread(worker!);
    await until(() => /^hanging: worker [12]$/.test(show(service, 'StatusText')));
    await until(() => (hung.reap(), mainPid(service) !== pid && show(service, 'ActiveState') === 'active'));
    assert.equal(await ask(), 'answered');
  },

  'a process that is stopped as a whole is started again by the watchdog': async () => {
    const pid = mainPid(service);
    process.kill(pid, 'SIGSTOP');
    await until(() => mainPid(service) !== pid && show(service, 'ActiveState') === 'active');
    assert.equal(await ask(), 'answered');
  },

  'a socket unit starts the service with the first client, and refuses none while it is restarted':
    async () => {
      systemctl('stop', service);
      assert.equal(await ask(), 'ECONNREFUSED');
      systemctl('start', 'ss-redir@home.socket');
      assert.equal(show(service, 'ActiveState'), 'inactive');
      assert.equal(await ask(), 'answered');
      assert.equal(show(service, 'ActiveState'), 'active');
      assert.equal(show(service, 'NFileDescriptorStore'), '0', "the socket unit's own are not kept twice");
      assert.equal(await askUdp(), `${target.host}:${target.udpPort}`);
      await underLoad(() => inBackground('systemctl', ['restart', service]));
      await underLoad(async () => {
        await inBackground('systemctl', ['stop', service]);
        await until(() => show(service, 'ActiveState') === 'active');
      });
      systemctl('stop', 'ss-redir@home.socket', service);
    },

  "it takes the place of Debian's unit with the same configuration": async () => {
    const debian = 'shadowsocks-libev-redir@home.service';
    const file = join(configurations, 'home.json');
    // libev knows no UDP without a capability that Debian's unit lacks here, and no workers.
    const before = readFileSync(file);
    systemctl('start', debian);
    await until(() => listeningPorts().includes(redirPort));
    assert.equal(show(debian, 'ActiveState'), 'active');
    systemctl('start', service);
    assert.equal(show(debian, 'ActiveState'), 'inactive');
    assert.deepEqual(readFileSync(file), before);
    assert.equal(await ask(), 'answered');
  },

  'a stop is clean, and nothing is left': async () => {
    systemctl('stop', service, 'ss-server@up.service');
    for (const unit of [service, 'ss-server@up.service']) {
      assert.equal(show(unit, 'Result'), 'success');
      assert.equal(show(unit, 'ActiveState'), 'inactive');
      assert.equal(show(unit, 'NFileDescriptorStore'), '0');
    }
    assert.deepEqual(listeningPorts(), []);
    const uid = output('id', '-u', 'ss-redir').trim();
    const left = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && ownerOf(name) === uid);
    assert.deepEqual(left, []);
    assert.deepEqual(readdirSync('/run/ss-redir'), []);
  },
};

const parts: Record<string, () => Promise<void>> = { run: runAll, target: runTarget };
await parts[process.argv[2] ?? '']?.();

async function runAll(): Promise<never> {
  await install();
  return runScenarios(scenarios);
}

/** Program, units, user, directories by ss-setup. */
async function install(): Promise<void> {
  if (!['/usr/bin/node', '/usr/local/bin/node'].includes(process.execPath))
    copyFileSync(process.execPath, '/usr/local/bin/node'); // the sandbox hides /home, /root and /tmp
  const node = ['/usr/local/bin/node', '/usr/bin/node'].find((path) => existsSync(path))!;
  output(process.execPath, setupScript, 'install', '--node', node);
  mkdirSync(`/etc/systemd/system/${service}.d`);
  writeFileSync(`/etc/systemd/system/${service}.d/test.conf`, `[Service]\nWatchdogSec=${watchdogSeconds}\n`);
  // No network will come online here.
  for (const kind of ['systemd-networkd', 'ifupdown', 'NetworkManager'])
    systemctl('mask', '--quiet', `${kind}-wait-online.service`);
  systemctl('daemon-reload');

  mkdirSync(configurations, { recursive: true });
  configure('home', {});
  writeFileSync(
    join(configurations, 'up.json'),
    JSON.stringify({ ...common, server: '127.0.0.1', server_port: 8388 }),
  );
  await startTarget();
  output('ip', 'rule', 'add', 'fwmark', '0x01000000/0x01000000', 'lookup', '8388');
  output('ip', 'route', 'add', 'local', 'default', 'dev', 'lo', 'table', '8388');
  // Root's traffic goes to the proxy: the services run as another user.
  execFileSync('nft', ['-f', '-'], {
    input: `table ip test {
      chain to_tcp { type nat hook output priority -100;
        meta skuid 0 ip daddr ${target.host} tcp dport ${target.port} redirect to :${redirPort}
      }
      chain to_mark { type route hook output priority -150;
        meta skuid 0 ip daddr ${target.host} udp dport ${target.udpPort} meta mark set 0x01000000
      }
      chain to_udp { type filter hook prerouting priority -150;
        meta mark & 0x01000000 == 0x01000000 udp dport ${target.udpPort} tproxy to 127.0.0.1:${redirPort} accept
      }
    }`,
  });
}

/** Beyond a link; it ends with this process, whose end closes its standard input. */
async function startTarget(): Promise<void> {
  const words = ['-n', process.execPath, fileURLToPath(import.meta.url), 'target'];
  const child = spawn('unshare', words, { stdio: ['pipe', 'pipe', 'inherit'] });
  const says = async (wanted: string): Promise<void> => {
    const [line] = (await once(child.stdout, 'data')) as [Buffer];
    assert.equal(line.toString().trim(), wanted);
  };
  await says('running');
  output('ip', 'link', 'add', 'near', 'type', 'veth', 'peer', 'name', 'far', 'netns', String(child.pid));
  output('ip', 'address', 'add', `${link.near}/24`, 'dev', 'near');
  output('ip', 'link', 'set', 'near', 'up');
  output('ip', 'route', 'add', target.host, 'via', link.far);
  child.stdin.write('linked\n');
  await says('listening');
}

async function runTarget(): Promise<void> {
  process.stdin.on('end', () => process.exit(0));
  console.log('running');
  await once(process.stdin, 'data');
  output('ip', 'address', 'add', `${target.host}/32`, 'dev', 'lo');
  output('ip', 'address', 'add', `${link.far}/24`, 'dev', 'far');
  for (const device of ['lo', 'far']) output('ip', 'link', 'set', device, 'up');
  const server = createServer((socket) => socket.on('error', () => {}).pipe(socket));
  server.listen(target.port, target.host);
  const echo = createSocket('udp4');
  echo.on('message', (data, from) => echo.send(data, from.port, from.address));
  echo.bind(target.udpPort, target.host);
  await Promise.all([once(server, 'listening'), once(echo, 'listening')]);
  console.log('listening');
}

/** Readable for all, as Debian's unit with its DynamicUser= needs it. */
function configure(name: string, changes: object): void {
  const config = {
    ...common,
    server: '127.0.0.1',
    server_port: 8388,
    local_address: '::',
    local_port: redirPort,
    workers: 2,
    ...changes,
  };
  writeFileSync(join(configurations, `${name}.json`), JSON.stringify(config));
}

/** One connection, one line there and back. */
async function ask(): Promise<string> {
  const socket = connect(target.port, target.host);
  const timer = setTimeout(() => socket.destroy(new Error('no answer')), 10_000);
  try {
    await once(socket, 'connect');
    socket.write('hello');
    const [data] = (await once(socket, 'data')) as [Buffer];
    return data.toString() === 'hello' ? 'answered' : 'other bytes';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? (error as Error).message;
  } finally {
    clearTimeout(timer);
    socket.destroy();
  }
}

/** Who answers. */
async function askUdp(): Promise<string> {
  const socket = createSocket('udp4');
  socket.send('hello', target.udpPort, target.host);
  const answer = await Promise.race([once(socket, 'message'), delay(3000, undefined, { ref: false })]);
  socket.close();
  const from = answer?.[1] as { address: string; port: number } | undefined;
  return from === undefined ? 'no answer' : `${from.address}:${from.port}`;
}

/**
 * A new connection every few milliseconds while `work` runs, and a while before and after. Those that are established when
 * the process goes are cut, which no restart can help; none is refused, and each that begins afterwards is answered.
 */
async function underLoad(work: () => unknown): Promise<void> {
  const pid = mainPid(service);
  const asked: { startMs: number; result: Promise<string> }[] = [];
  const timer = setInterval(() => asked.push({ startMs: performance.now(), result: ask() }), 4);
  await delay(200);
  const gone = whenGone(pid);
  await work();
  const goneMs = await gone;
  await delay(300);
  clearInterval(timer);
  const counts: Record<string, number> = {};
  for (const { startMs, result } of asked) {
    const what = (await result) === 'ECONNRESET' && startMs < goneMs ? 'cut' : await result;
    counts[what] = (counts[what] ?? 0) + 1;
  }
  const { answered = 0, cut: _cut, ...others } = counts;
  const begunWithout = asked.filter(({ startMs }) => startMs > goneMs).length;
  assert.deepEqual(others, {}, JSON.stringify(counts));
  assert.ok(answered > 50 && begunWithout > 30, JSON.stringify({ ...counts, begunWithout }));
}

async function whenGone(pid: number): Promise<number> {
  while (existsSync(`/proc/${pid}`)) await delay(2);
  return performance.now();
}

function mainPid(unit: string): number {
  return Number(show(unit, 'MainPID'));
}

function show(unit: string, property: string): string {
  return output('systemctl', 'show', '--value', '-p', property, unit).trim();
}

function systemctl(...words: string[]): void {
  output('systemctl', ...words);
}

function output(command: string, ...words: string[]): string {
  return execFileSync(command, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

function limitOf(pid: number, name: string): string {
  return new RegExp(`^${name} +(.*)$`, 'm').exec(readFileSync(`/proc/${pid}/limits`, 'utf8'))![1]!;
}

/** Of the ports that the services here may have: one entry a socket, TCP and UDP. */
function listeningPorts(): number[] {
  const lines = output('ss', '-Hltun').split('\n');
  const ports = lines.map((line) => Number(/:(\d+) +\S+ *$/.exec(line)?.[1]));
  return ports.filter((port) => [redirPort, 1300].includes(port));
}

function ownerOf(pid: string): string | undefined {
  const file = `/proc/${pid}`;
  return existsSync(file) ? String(statSync(file).uid) : undefined;
}

async function until(isTrue: () => boolean, ms = 15_000): Promise<void> {
  const end = performance.now() + ms;
  while (!isTrue()) {
    assert.ok(performance.now() < end, `not true after ${ms} ms: ${String(isTrue)}`);
    await delay(50);
  }
}
