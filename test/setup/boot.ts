// The walk of ss-redir(7) from nothing to a working gateway and back, under a real systemd. booted.test.ts boots it and runs
// this file there with the argument "run".
//
//   lan (192.168.77.2) -> br-lan, this host, wan -> net: ss-server at 198.51.100.7, target at 8.8.8.8
//
// lan and net are network namespaces. The target says to its client who that is: through the proxy it is the server.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import {
  appendFileSync,
  copyFileSync,
  cpSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { repository, runScenarios, type Scenarios } from '../helpers/booted.js';
import { examplesOf, readPage, sectionOf, type Example } from '../man/pages.js';

const program = fileURLToPath(import.meta.url);
const setupScript = join(repository, 'dist/src/bin/ss-setup.js');
const installed = '/usr/local/bin/ss-setup';
const service = 'ss-redir@lan.service';
const holder = 'ss-redir-rules@lan.service';
const server = '198.51.100.7'; // as in the page
const lan = { router: '192.168.77.1', client: '192.168.77.2' };
const wan = { router: '192.168.78.1', far: '192.168.78.2' };
const target = { host: '8.8.8.8', port: 9001, udpPort: 9011 };

/** The blocks of the walk, in their order. */
const walk: readonly Example[] = examplesOf(
  sectionOf(readPage('ss-redir.7'), 'SIX COMMANDS TO A GATEWAY'),
  'ss-redir.7',
);

let node = process.execPath;
let before: Map<string, string>;
let kernelBefore: string;

/** In the order in which they run. */
export const scenarios: Scenarios = {
  'the walk of ss-redir(7) has at most six commands': async () => {
    const commands = walk
      .filter(({ kind }) => kind !== 'file')
      .flatMap(({ text }) => text.trim().split('\n'));
    assert.ok(commands.length <= 6, commands.join('\n'));
  },

  'where it fails late, at a folder, nothing is installed, and the user is not there either': async () => {
    before = filesThere();
    writeFileSync('/run/ss-redir', '');
    const { status, stderr } = setup('install', '--rules', 'lan');
    unlinkSync('/run/ss-redir');
    assert.equal(status, 1, stderr);
    assert.match(
      stderr,
      /^ss-setup: \/run\/ss-redir is in the place of a directory: move it away; nothing was changed\n$/,
    );
    assert.deepEqual(difference(before, filesThere()), []);
    assert.equal(spawnSync('id', ['ss-redir']).status, 1);
  },

  'its third command installs: units, user, folders; and says nothing of what runs': async () => {
    const command = walk.find(({ text }) => text.includes('ss-setup'));
    const { status, stdout, stderr } = spawnSync('sh', ['-c', command!.text], {
      cwd: repository,
      encoding: 'utf8',
    });
    assert.deepEqual([status, stderr], [0, '']);
    assert.doesNotMatch(stdout, /restart/);
    const [uid, gid] = ['-u', '-g'].map((flag) => Number(output('id', flag, 'ss-redir')));
    for (const [path, owner, mode] of [
      ['/etc/ss-redir', 0, 0o2750],
      ['/run/ss-redir', uid, 0o750],
    ] as const) {
      const there = lstatSync(path);
      assert.deepEqual([there.uid, there.gid, there.mode & 0o7777], [owner, gid, mode], path);
    }
    assert.equal(output('systemctl', 'show', '--value', '-p', 'LoadState', service).trim(), 'loaded');
    assert.match(output('systemctl', 'show', '-p', 'Requires', service), /ss-redir-rules@lan\.service/);
  },

  'a configuration that the rules refuse: nothing starts, the journal says why, and nobody tries for ever':
    async () => {
      writeFileSync(
        '/etc/ss-redir/lan.conf',
        walk.find(({ kind }) => kind === 'file')!.text.replace(/^ifnames.*$/m, ''),
      );
      assert.equal(spawnSync('systemctl', ['enable', '--now', service]).status, 1);
      assert.deepEqual([show(holder, 'ActiveState'), show(service, 'ActiveState')], ['failed', 'inactive']);
      assert.match(
        output('journalctl', '-o', 'cat', '-u', holder),
        /^ss-nft: no LAN interface given \(ifnames, /m,
      );
      await delay(1000);
      assert.deepEqual([show(holder, 'ActiveState'), show(holder, 'NRestarts')], ['failed', '0']);
      output('systemctl', 'disable', service);
      unlinkSync('/etc/ss-redir/lan.conf');
    },

  'with its file and its fifth command the gateway works: TCP and UDP of the LAN come from the server':
    async () => {
      kernelBefore = kernelState();
      const file = walk.find((example) => example.kind === 'file');
      assert.equal(file?.path, '/etc/ss-redir/lan.conf');
      writeFileSync(file.path, file.text);
      output('chmod', 'o=', file.path); // as a warning says; the group, which reads it, is the folder's
      assert.deepEqual([await ask('tcp'), await ask('udp')], [lan.client, lan.client]); // routed, not proxied
      const start = walk.find(({ text }) => text.includes('enable --now'));
      output('sh', '-c', start!.text);
      for (const unit of [service, holder]) assert.equal(show(unit, 'ActiveState'), 'active');
      assert.deepEqual([await ask('tcp'), await ask('udp')], [server, server]);
      assert.equal(output('systemctl', 'is-enabled', service).trim(), 'enabled');
    },

  'nothing goes out in clear while others flush, it is restarted, reloaded, killed and stopped in its tracks':
    async () => {
      const load = spawn('ip', ['netns', 'exec', 'lan', process.execPath, program, 'load'], {
        stdio: ['pipe', 'pipe', 'inherit'],
      });
      let said = '';
      load.stdout.on('data', (data: Buffer) => (said += data.toString()));
      await delay(500);
      await clearSeen();
      const file = '/etc/ss-redir/lan.conf';
      const good = readFileSync(file, 'utf8');
      // As a firewall of others does at its start.
      output('nft', 'flush', 'ruleset');
      execFileSync('nft', ['-f', '-'], { input: kernelBefore.split('\n--\n')[0] });
      await delay(300);
      output('systemctl', 'restart', service);
      writeFileSync(file, good.replace('reject_quic', '# reject_quic'));
      output('systemctl', 'reload', service); // and the holder's with it
      writeFileSync(file, 'nonsense');
      output('systemctl', 'reload', service);
      assert.match(show(service, 'StatusText'), /not reloaded: .*lan\.conf:1/);
      await until(() => /not reloaded: .*lan\.conf:1/.test(show(holder, 'StatusText')));
      writeFileSync(file, good);
      output('systemctl', 'reload', service);
      const pid = show(service, 'MainPID');
      process.kill(Number(pid), 'SIGKILL');
      await until(() => show(service, 'MainPID') !== pid && show(service, 'ActiveState') === 'active');
      const next = Number(show(service, 'MainPID'));
      process.kill(next, 'SIGSTOP');
      await delay(1000);
      process.kill(next, 'SIGCONT');
      await delay(300);
      assert.equal(await seen(), 0);
      load.stdin.end();
      await once(load, 'close');
      assert.ok(Number(/attempts (\d+)/.exec(said)![1]) > 300, said);
      assert.deepEqual([await ask('tcp'), await ask('udp')], [server, server]);
    },

  'kill -9 of the holder: rules and routing are there again, and nothing of before is left': async () => {
    const rules = kernelState();
    const pid = show(holder, 'MainPID');
    process.kill(Number(pid), 'SIGKILL');
    const isBack = () =>
      ![pid, '0'].includes(show(holder, 'MainPID')) && show(service, 'ActiveState') === 'active';
    await until(() => isBack() && show(holder, 'ActiveState') === 'active');
    assert.equal(withoutCounts(kernelState()), withoutCounts(rules));
    assert.deepEqual([await ask('tcp'), await ask('udp')], [server, server]);
  },

  'a holder that had to give up is started again as long as its service runs': async () => {
    const group = show(holder, 'ControlGroup');
    const pids = readFileSync(`/sys/fs/cgroup${group}/cgroup.procs`, 'utf8').trim().split('\n');
    const nft = pids.find((pid) => readFileSync(`/proc/${pid}/comm`, 'utf8').trim() === 'nft');
    const tool = realpathSync(output('sh', '-c', 'command -v nft').trim());
    renameSync(tool, `${tool}.away`);
    process.kill(Number(nft), 'SIGKILL');
    try {
      await until(() => show(holder, 'ExecMainStatus') === '1');
    } finally {
      renameSync(`${tool}.away`, tool);
    }
    await until(() => show(holder, 'ActiveState') === 'active' && show(service, 'ActiveState') === 'active');
    assert.deepEqual([await ask('tcp'), await ask('udp')], [server, server]);
  },

  'installing it again changes nothing; another version names what runs, and goes on running': async () => {
    const there = filesThere();
    const again = setup('install');
    assert.deepEqual([again.status, again.stdout], [0, 'everything is in its place already\n'], again.stderr);
    assert.deepEqual(difference(there, filesThere()), []);
    const pid = show(service, 'MainPID');
    cpSync('/usr/local/lib/ss-redir', '/tmp/newer', { recursive: true });
    appendFileSync('/tmp/newer/dist/src/cli/run.js', '// newer\n');
    const newer = setupBy('/tmp/newer/dist/src/bin/ss-setup.js', 'install');
    assert.equal(newer.status, 0, newer.stderr);
    assert.match(newer.stdout, new RegExp(`: systemctl restart ${service.replace('.', String.raw`\.`)}\n`));
    assert.equal(show(service, 'MainPID'), pid);
    output('systemctl', 'restart', service);
    assert.deepEqual([await ask('tcp'), await ask('udp')], [server, server]);
    rmSync('/tmp/newer', { recursive: true });
  },

  'as long as it runs or is enabled, or rules are loaded, it is not removed': async () => {
    const there = filesThere();
    assert.equal(refused(), `ss-setup: still in use: systemctl disable --now ${service}, and then again\n`);
    output('systemctl', 'stop', service);
    assert.equal(refused(), `ss-setup: still in use: systemctl disable --now ${service}, and then again\n`);
    output('systemctl', 'disable', service);
    output('ss-nft', 'up', 'lan');
    assert.match(
      refused(),
      /^ss-setup: rules are loaded \(ss_redir_lan\): ss-nft down --all --kill-switch, /,
    );
    output('ss-nft', 'down', '--all', '--kill-switch');
    output('systemctl', 'enable', '--now', service);
    assert.deepEqual(difference(there, filesThere()), []);
  },

  'stopped and disabled, it leaves no rule, no route and no process': async () => {
    output('systemctl', 'disable', '--now', service);
    await until(() => show(holder, 'ActiveState') === 'inactive');
    assert.deepEqual([await ask('tcp'), await ask('udp')], [lan.client, lan.client]);
    assert.equal(kernelState(), kernelBefore);
    const uid = output('id', '-u', 'ss-redir').trim();
    const processes = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
    assert.deepEqual(
      processes.filter((pid) => ownerOf(pid) === uid),
      [],
    );
    assert.deepEqual(readdirSync('/run/ss-redir'), []);
  },

  "remove leaves the administrator's configuration, which a new installation finds": async () => {
    appendFileSync('/usr/local/share/ss-redir/tproxy.nft', '# mine\n');
    const { status, stderr } = setupBy(installed, 'remove');
    assert.equal(status, 0);
    assert.match(stderr, /tproxy\.nft was edited and stays/);
    assert.match(stderr, /the user ss-redir stays: \/etc\/ss-redir is of its group/);
    assert.deepEqual(
      difference(before, filesThere()).filter((path) => !isUserBase(path) && !lstatSync(path).isDirectory()),
      [
        '/etc/ss-redir/lan.conf',
        '/usr/local/lib/ss-redir/installed.json',
        '/usr/local/share/ss-redir/tproxy.nft',
      ],
    );
    assert.equal(setup('install', '--rules', 'lan').status, 0);
    output('systemctl', 'enable', '--now', service);
    assert.equal(await ask('tcp'), server);
    output('systemctl', 'disable', '--now', service);
    await until(() => show(holder, 'ActiveState') === 'inactive');
  },

  'remove --purge leaves nothing: files, user, rules and routes are as before': async () => {
    const { status, stdout, stderr } = setupBy(installed, 'remove', '--purge');
    assert.deepEqual([status, stderr], [0, '']);
    assert.match(stdout, /^remove \/etc\/ss-redir$/m);
    assert.deepEqual(difference(before, filesThere()), []);
    assert.equal(kernelState(), kernelBefore);
    assert.equal(spawnSync('id', ['ss-redir']).status, 1);
    assert.equal(show(service, 'LoadState'), 'not-found');
    const again = setup('remove', '--purge');
    assert.deepEqual(
      [again.status, again.stdout],
      [0, 'nothing is installed below /usr/local\n'],
      again.stderr,
    );
  },
};

const parts: Record<string, () => Promise<unknown>> = {
  run: async () => {
    await makeNetwork();
    await runScenarios(scenarios);
  },
  target: runTarget,
  ask: () => runAsk(process.argv[3]!),
  load: runLoad,
};
await parts[process.argv[2] ?? '']?.();

interface Run {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function setup(...words: string[]): Run {
  return setupBy(setupScript, ...words);
}

function setupBy(script: string, ...words: string[]): Run {
  const { status, stdout, stderr } = spawnSync(node, [script, ...words], { encoding: 'utf8' });
  return { status, stdout, stderr };
}

/** What `remove` says while it refuses. */
function refused(): string {
  const { status, stderr } = setupBy(installed, 'remove', '--purge');
  assert.equal(status, 1);
  return stderr;
}

async function makeNetwork(): Promise<void> {
  // Where the units see it, and the page's own "node" is found.
  if (!['/usr/bin/node', '/usr/local/bin/node'].includes(process.execPath)) {
    node = '/usr/local/bin/node';
    copyFileSync(process.execPath, node);
  }
  // No network will come online here.
  for (const kind of ['systemd-networkd', 'ifupdown', 'NetworkManager'])
    output('systemctl', 'mask', '--quiet', `${kind}-wait-online.service`);
  const lines = `
    netns add lan
    netns add net
    link add br-lan type bridge
    link add port type veth peer name eth0 netns lan
    link add wan type veth peer name eth0 netns net
    link set port master br-lan up
    link set br-lan up
    link set wan up
    address add ${lan.router}/24 dev br-lan
    address add ${wan.router}/24 dev wan
    route add default via ${wan.far}
    -n lan link set eth0 up
    -n lan address add ${lan.client}/24 dev eth0
    -n lan route add default via ${lan.router}
    -n net link set lo up
    -n net link set eth0 up
    -n net address add ${wan.far}/24 dev eth0
    -n net address add ${server}/32 dev lo
    -n net address add ${target.host}/32 dev lo
    -n net route add ${lan.client} via ${wan.router}`;
  for (const line of lines.trim().split('\n')) output('ip', ...line.trim().split(' '));
  output('sysctl', '-qw', 'net.ipv4.ip_forward=1');
  for (const key of ['iptables', 'ip6tables'])
    // as the page says of bridges
    if (existsSync('/proc/sys/net/bridge')) output('sysctl', '-qw', `net.bridge.bridge-nf-call-${key}=0`);
  const words = ['netns', 'exec', 'net', process.execPath];
  const child = spawn('ip', [...words, program, 'target'], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(child.stdout, 'data');
  // The other end, with the secret of the page; its connections to the target leave from its own address.
  const file = '/tmp/server.json';
  const config = {
    server,
    server_port: 8388,
    local_address: server,
    method: 'aes-256-gcm',
    password: 'change me',
  };
  writeFileSync(file, JSON.stringify({ ...config, mode: 'tcp_and_udp' }), { mode: 0o600 });
  const bin = join(repository, 'dist/src/bin/ss-server.js');
  spawn('ip', [...words, bin, '-c', file], { stdio: ['ignore', 'inherit', 'inherit'] });
  await until(() => output('ip', 'netns', 'exec', 'net', 'ss', '-Hltn').includes(':8388'));
}

/** Tells each client its address. */
async function runTarget(): Promise<void> {
  const tcp = createServer((socket) => socket.on('error', () => {}).end(String(socket.remoteAddress)));
  tcp.listen(target.port, target.host);
  const udp = createSocket('udp4');
  udp.on('message', (_, from) => udp.send(from.address, from.port, from.address));
  udp.bind(target.udpPort, target.host);
  await Promise.all([once(tcp, 'listening'), once(udp, 'listening')]);
  console.log('listening');
}

/** As whom the target sees a client in the LAN. Ten seconds of silence are asked again once: other tests keep the machine busy. */
async function ask(protocol: 'tcp' | 'udp'): Promise<string> {
  return (await askOnce(protocol)) || askOnce(protocol);
}

async function askOnce(protocol: 'tcp' | 'udp'): Promise<string> {
  const child = spawn('ip', ['netns', 'exec', 'lan', process.execPath, program, 'ask', protocol], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let answer = '';
  child.stdout.on('data', (data: Buffer) => (answer += data.toString()));
  await once(child, 'close');
  return answer;
}

async function runAsk(protocol: string): Promise<void> {
  const timer = setTimeout(() => process.exit(1), 10_000);
  if (protocol === 'tcp') {
    const socket = connect(target.port, target.host);
    socket.on('data', (data) => process.stdout.write(data));
    socket.on('error', ({ message }) => process.stdout.write(message));
    await once(socket, 'close');
  } else {
    const socket = createSocket('udp4');
    socket.send('who am I?', target.udpPort, target.host);
    const [data] = (await once(socket, 'message')) as [Buffer];
    process.stdout.write(data);
    socket.close();
  }
  clearTimeout(timer);
}

/** Connections and datagrams of the LAN without a pause, until its standard input ends. */
async function runLoad(): Promise<void> {
  let attempts = 0;
  process.stdin.resume().on('end', () => {
    console.log(`attempts ${attempts}`);
    process.exit(0);
  });
  const udp = createSocket('udp4').on('error', () => {});
  for (;;) {
    attempts += 2;
    const socket = connect(target.port, target.host).on('error', () => {});
    setTimeout(() => socket.destroy(), 500);
    udp.send('load', target.udpPort, target.host, () => {});
    await delay(10);
  }
}

/** What the target's side sees of the LAN's own address: in clear. */
async function clearSeen(): Promise<void> {
  const rules = `add table inet witness
    delete table inet witness
    table inet witness {
      counter seen {
      }
      chain input {
        type filter hook prerouting priority raw
        ip saddr ${lan.client} ip daddr ${target.host} counter name seen
      }
    }`;
  execFileSync('ip', ['netns', 'exec', 'net', 'nft', '-f', '-'], { input: rules });
}

async function seen(): Promise<number> {
  const text = output('ip', 'netns', 'exec', 'net', 'nft', 'list', 'counter', 'inet', 'witness', 'seen');
  return Number(/packets (\d+)/.exec(text)![1]);
}

function withoutCounts(rules: string): string {
  const lines = rules.replaceAll(/packets \d+ bytes \d+/g, '').split('\n');
  return lines.toSorted().join('\n'); // chains that stay come first
}

/** Rules, policy routing, routes: what others count, expire and learn apart. */
function kernelState(): string {
  return [
    output('nft', 'list', 'ruleset'),
    ...['-4', '-6'].flatMap((family) => [
      output('ip', family, 'rule'),
      output('ip', family, 'route', 'show', 'table', 'all'),
    ]),
  ].join('\n--\n');
}

/** Everything but what the kernel, systemd and this test keep, with what it is. */
function filesThere(): Map<string, string> {
  const found = new Map<string, string>();
  const left = ['/etc', '/usr', '/opt', '/var/lib', '/srv', '/home', '/run/ss-redir'];
  for (let path = left.pop(); path !== undefined; path = left.pop()) {
    const status = lstatSync(path, { throwIfNoEntry: false });
    if (status === undefined || isOfSystem(path)) continue;
    if (status.isDirectory()) left.push(...readdirSync(path).map((name) => `${path}/${name}`));
    const what = status.isSymbolicLink()
      ? readlinkSync(path)
      : status.isFile()
        ? contentOf(path, status.size)
        : '';
    found.set(path, `${status.mode.toString(8)} ${status.uid} ${status.gid} ${what}`);
  }
  return found;
}

/** Of large files, which only packages have here, the size. */
function contentOf(path: string, size: number): string {
  return path.startsWith('/etc') && size < 1e5 ? readFileSync(path, 'latin1') : String(size);
}

function isUserBase(path: string): boolean {
  return /^\/etc\/g?(?:passwd|group|shadow)$/.test(path);
}

/** Backups and locks of the user database, passwd(5), and what systemd notes of itself. */
function isOfSystem(path: string): boolean {
  return /^\/etc\/(?:passwd-|group-|shadow-|gshadow-|subuid-|subgid-|\.pwd\.lock|\.updated|machine-id|resolv\.conf)$|^\/var\/lib\/systemd|^\/var\/\.updated/.test(
    path,
  );
}

function difference(one: ReadonlyMap<string, string>, other: ReadonlyMap<string, string>): string[] {
  const paths = new Set([...one.keys(), ...other.keys()]);
  return [...paths].filter((path) => one.get(path) !== other.get(path)).toSorted();
}

function show(unit: string, property: string): string {
  return output('systemctl', 'show', '--value', '-p', property, unit).trim();
}

function output(command: string, ...words: string[]): string {
  return execFileSync(command, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

function ownerOf(pid: string): string | undefined {
  const status = lstatSync(`/proc/${pid}`, { throwIfNoEntry: false });
  return status === undefined ? undefined : String(status.uid);
}

async function until(isTrue: () => boolean, ms = 15_000): Promise<void> {
  const end = performance.now() + ms;
  while (!isTrue()) {
    assert.ok(performance.now() < end, `not true after ${ms} ms: ${String(isTrue)}`);
    await delay(50);
  }
}
