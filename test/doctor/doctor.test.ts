// ss-redir --doctor on a real gateway: content where all is well, and each fault, made for real, named with what mends it.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { execa } from 'execa';
import { whyNoNetns } from '../../src/demo/netns.js';
import type { Finding } from '../../src/doctor/finding.js';
import { bridgeLan, whyNoBridgeFilter } from '../nft/gateway.js';
import { PolicyBed } from '../nft/policy-bed.js';

const binaries = fileURLToPath(new URL('../../src/bin/', import.meta.url));
const secret = 'policy test';

interface Settings {
  redir?: Record<string, string | number>;
  server?: Record<string, string | number>;
  gateway?: Record<string, string>;
}

describe('ss-redir --doctor', { skip: whyNoNetns() }, () => {
  const directory = mkdtempSync(join(tmpdir(), 'ss-redir-doctor-'));
  const file = join(directory, 'gateway.conf');
  let bed: PolicyBed;

  before(async () => {
    bed = await PolicyBed.create('ssr-doc');
  });
  beforeEach(async () => {
    configure({});
    await bed.startRedir('-T');
    await bed.nft.ok('up', '-c', file);
  });
  after(async () => {
    await bed.destroy();
    rmSync(directory, { recursive: true });
  });

  function configure({ redir, server, gateway }: Settings): void {
    const sections = [
      section('redir', { local_port: 1080, mode: 'tcp_and_udp', tcp_tproxy: true, ...redir }),
      section('server a', {
        server: '45.9.9.2',
        server_port: 8388,
        password: secret,
        method: 'aes-256-gcm',
        ...server,
      }),
      section('gateway', { ifnames: 'l0', ...gateway }),
    ];
    writeFileSync(file, sections.join(''), { mode: 0o600 });
  }

  async function examine(...prefix: string[]): Promise<{ status: number | undefined; findings: Finding[] }> {
    const words = [process.execPath, join(binaries, 'ss-redir.js'), '-c', file, '--doctor', '--json'];
    const [command, ...rest] = [...prefix, ...words];
    const { exitCode, stdout, stderr } = await bed.router.run(command!, rest, { reject: false });
    assert.equal(String(stderr), '');
    assert.ok(!String(stdout).includes(secret), 'no secret is printed');
    const { findings } = JSON.parse(String(stdout)) as { findings: Finding[] };
    return { status: exitCode, findings };
  }

  /** Finds exactly the wanted fault among those that are there, and returns what mends it. */
  async function finds(pattern: RegExp): Promise<string> {
    const { status, findings } = await examine();
    assert.equal(status, 1);
    const found = findings.find((each) => each.isOk === false && pattern.test(`${each.what}: ${each.found}`));
    assert.ok(found !== undefined, `${pattern}: ${faults(findings).join('\n')}`);
    return found.remedy ?? '';
  }

  const isContent = async () => assert.deepEqual(faults((await examine()).findings), []);
  const sh = (line: string) => bed.router.run('sh', ['-c', line]);

  it('is content with a good gateway, says so, and leaves nothing behind', async () => {
    const { status, findings } = await examine();
    assert.deepEqual(faults(findings), []);
    assert.equal(status, 0);
    const named = (what: RegExp) => findings.find((finding) => what.test(finding.what))?.found;
    assert.equal(named(/^server 45\.9\.9\.2:8388, TCP$/), 'answers');
    assert.equal(named(/^server 45\.9\.9\.2:8388, UDP$/), 'answers');
    assert.equal(named(/^a connection of a client/), 'answered through ss-redir');
    assert.equal(named(/^a datagram of a client/), 'answered through ss-redir');
    assert.doesNotMatch(await bed.router.ip('link'), /ssr-doctor[@:]/);
    const { stdout } = await bed.router.run(process.execPath, [
      join(binaries, 'ss-redir.js'),
      '-c',
      file,
      '--doctor',
    ]);
    assert.match(String(stdout), /^ok rules: loaded$[^]*\nnothing is wrong$/m);
  });

  for (const [key, bad, good] of [
    ['net.ipv4.ip_forward', 0, 1],
    ['net.ipv6.conf.all.forwarding', 0, 1],
    ['net.ipv4.conf.all.src_valid_mark', 1, 0],
    ['net.ipv4.conf.l0.src_valid_mark', 1, 0],
  ] as const) {
    it(`${key}=${bad}`, async () => {
      await bed.router.sysctl({ [key]: bad });
      const remedy = await finds(new RegExp(`^${key.replaceAll('.', '\\.')}: ${bad}$`));
      assert.equal(remedy, `sysctl -w ${key}=${good}`);
      await sh(remedy);
      await isContent();
    });
  }

  it('bridge-nf-call-iptables=1 and a bridge', { skip: whyNoBridgeFilter() }, async () => {
    const other = await PolicyBed.create('ssr-docbr');
    const own = bed;
    bed = other;
    try {
      await bridgeLan(other.router);
      configure({ gateway: { ifnames: 'br0' } });
      await other.startRedir('-T');
      await other.nft.ok('up', '-c', file);
      await other.router.sysctl({ 'net.bridge.bridge-nf-call-iptables': 1 });
      const remedy = await finds(/^net\.bridge\.bridge-nf-call-iptables: 1$/);
      await sh(remedy);
      await isContent();
    } finally {
      bed = own;
      await other.destroy();
    }
  });

  it('policy rule and route removed', async () => {
    await bed.router.ip('rule del priority 8388');
    const remedy = await finds(/^IPv4 policy routing: rule missing$/);
    assert.match(remedy, /^ss-nft up default/);
    await bed.nft.ok('up', '-c', file);
    await bed.router.ip('-6 route flush table 8388');
    await finds(/^IPv6 policy routing: route missing$/);
    await bed.nft.ok('up', '-c', file);
    await isContent();
  });

  it('rules flushed', async () => {
    await bed.router.run('nft', ['flush', 'ruleset']);
    assert.match(await finds(/^rules: table inet ss_redir_default is missing$/), /^ss-nft up default/);
  });

  it('the set of servers is of other addresses', async () => {
    await bed.router.run('nft', ['flush', 'set', 'inet', 'ss_redir_default', 'bypass4']);
    const remedy = await finds(/^set bypass4: lacks 45\.9\.9\.2$/);
    assert.equal(remedy, 'ss-nft refresh default');
    await bed.nft.ok('refresh', '-c', file);
    await isContent();
  });

  it('ss-redir stopped, and before it has ever started', async () => {
    await bed.stopRedir();
    assert.match(await finds(/^tcp port 1080: nobody listens$/), /^start ss-redir/);
    await bed.nft.ok('down', '--all');
    const { findings } = await examine();
    assert.deepEqual(
      faults(findings).map((text) => text.split(':')[0]),
      ['rules', 'tcp port 1080', 'udp port 1080'],
    );
  });

  it('ss-redir of another mode, or at another port', async () => {
    await bed.startRedir(); // REDIRECT
    assert.match(await finds(/^tcp port 1080: .*not transparent$/), /-T/);
    configure({ redir: { local_port: 1090 } });
    await finds(/^tcp port 1090: nobody listens$/);
  });

  it('ss-redir hanging: given to it, and not answered', async () => {
    const pid = Number((await sh("ss -Hlntp sport = :1080 | sed 's/.*pid=//; s/,.*//' | head -1")).stdout);
    process.kill(pid, 'SIGSTOP');
    try {
      await finds(/^a connection of a client.*given to ss-redir, /);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await delay(100);
    await isContent();
  });

  it('a server that does not run, one with another password, one with another method', async () => {
    configure({ server: { server_port: 8389 } });
    await finds(/^server 45\.9\.9\.2:8389, TCP: cannot be reached: ECONNREFUSED$/);
    configure({ server: { password: 'wrong' } });
    assert.match(await finds(/^server 45\.9\.9\.2:8388, TCP: connected, and no answer/), /password/);
    configure({ server: { method: 'chacha20-ietf-poly1305' } });
    await finds(/^server 45\.9\.9\.2:8388, UDP: no answer/);
  });

  it('a name that does not resolve', async () => {
    const folder = `/etc/netns/${bed.router.name}`;
    mkdirSync(folder, { recursive: true });
    try {
      writeFileSync(join(folder, 'resolv.conf'), 'nameserver 127.0.0.1\noptions timeout:1 attempts:1\n');
      configure({ server: { server: 'server.invalid' } });
      assert.match(await finds(/^address of server\.invalid: /), /resolv\.conf/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('numbers that others have, and settings that cannot be', async () => {
    await bed.router.ip('rule add fwmark 0x01000000/0x01000000 priority 100 lookup 100');
    try {
      assert.match(await finds(/^conflicts: mark bits 0x01000000 are used by/), /--to-proxy-mark/);
    } finally {
      await bed.router.ip('rule del priority 100');
    }
    configure({ gateway: { ifnames: 'l0 nothere0' } });
    await finds(/^LAN interfaces: nothere0 is not there$/);
    configure({ gateway: { ifnames: 'l0', route_table: '254' } });
    await finds(/^gateway: route_table 254 is a table of the system$/);
  });

  it('few descriptors, and a process without the capability', async () => {
    await bed.stopRedir();
    const words = [join(binaries, 'ss-redir.js'), '-c', file, '-b', '::'];
    const few = await bed.router.start('prlimit', ['--nofile=300:300', process.execPath, ...words], {
      listen: 1080,
    });
    assert.match(await finds(/^descriptors of process \d+: 300$/), /LimitNOFILE/);
    await few.stop('SIGKILL');
  });

  it('IPv6 switched off is no fault of itself', async () => {
    await bed.router.sysctl({ 'net.ipv6.conf.all.disable_ipv6': 1 });
    try {
      const { findings } = await examine();
      assert.match(findings.find(({ what }) => what === 'IPv6')!.found, /^off/);
      assert.ok(!faults(findings).some((text) => text.startsWith('IPv6')), faults(findings).join('\n'));
    } finally {
      await bed.router.sysctl({ 'net.ipv6.conf.all.disable_ipv6': 0 });
    }
  });

  it('killed in the middle it leaves nothing, and what one left is removed by the next', async () => {
    const words = ['-c', file, '--doctor'];
    const running = bed.router.spawn(process.execPath, [join(binaries, 'ss-redir.js'), ...words]);
    for (let i = 0; i < 500 && !/ssr-doctor[@:]/.test(await bed.router.ip('link')); i++) await delay(5);
    running.kill('SIGKILL');
    await running;
    for (let i = 0; i < 200 && /ssr-doctor[@:]/.test(await bed.router.ip('link')); i++) await delay(20);
    assert.doesNotMatch(await bed.router.ip('link'), /ssr-doctor[@:]/);
    await bed.router.ip('link add ssr-doctor type veth peer name ssr-left');
    await isContent();
    assert.doesNotMatch(await bed.router.ip('link'), /ssr-(?:doctor|client|left)[@:]/);
  });

  it('without root it says what it cannot look at', async () => {
    await execa('chmod', ['644', file]);
    await execa('chmod', ['755', directory]);
    const { findings } = await examine(
      'setpriv',
      '--reuid=65534',
      '--clear-groups',
      '--inh-caps=-all',
      '--bounding-set=-all',
    );
    const found = findings.find(({ what }) => what === 'kernel, rules and routing');
    assert.deepEqual([found?.isOk, found?.wanted], [undefined, 'root']);
  });
});

/** Of an INI file. */
function section(name: string, keys: object): string {
  const lines = Object.entries(keys).map(([key, value]) => `${key} = ${String(value)}\n`);
  return `[${name}]\n${lines.join('')}`;
}

/** What is wrong, as `what: found`. */
function faults(findings: readonly Finding[]): string[] {
  return findings.filter(({ isOk }) => isOk === false).map(({ what, found }) => `${what}: ${found}`);
}
