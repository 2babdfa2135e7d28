// ss-nft's command line: commands, ss-nat's bare flags, configuration files, and exit status.
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, afterEach, describe, it } from 'node:test';
import { execa } from 'execa';
import { whyNoNetns, Netns } from '../../src/demo/netns.js';
import { parseNftCommandLine } from '../../src/cli/nft-parse.js';
import { UsageError } from '../../src/errors.js';
import { readGatewaySettings, type GatewaySettings } from '../../src/nft/settings.js';
import { findCommand } from '../helpers/packages.js';
import { NftCommand, plainArgs } from './command.js';

const nat = ['-s', '45.9.9.2', '-l', '1080'];

function settingsOf(...argv: string[]): GatewaySettings {
  return readGatewaySettings(parseNftCommandLine(argv).settings);
}

const hosts = (prefixes: readonly { from: bigint; length: number }[]) =>
  prefixes.map(({ from, length }) => `${from.toString(16)}/${length}`);

describe('a line of bare flags means what it means to ss-nat', () => {
  it('and is up; -f is down', () => {
    assert.equal(parseNftCommandLine(nat).command, 'up');
    assert.equal(parseNftCommandLine(['-f']).command, 'down');
    assert.equal(parseNftCommandLine([...nat, '-f']).command, 'down');
  });

  it('TCP by REDIRECT, of the LAN at eth0, is the default', () => {
    const { tcp, udp, localPort, servers, interfaces, localDefault } = settingsOf(...nat);
    assert.deepEqual(
      { tcp, udp, localPort, servers, interfaces, localDefault },
      {
        tcp: 'redirect',
        udp: false,
        localPort: 1080,
        servers: ['45.9.9.2'],
        interfaces: ['eth0'],
        localDefault: 'bypass',
      },
    );
  });

  it('-I names the interface, -o takes the router along, -u UDP', () => {
    const { udp, interfaces, localDefault, udpLocalPort } = settingsOf(...nat, '-I', 'br-lan', '-ou');
    assert.deepEqual([udp, interfaces, localDefault, udpLocalPort], [true, ['br-lan'], 'checkdst', 1080]);
  });

  it('-U takes UDP to the server of -S and the port of -L, and is refused without', () => {
    const { tcp, udp, servers, localPort, udpLocalPort } = settingsOf(
      ...nat,
      '-U',
      '-S',
      '45.9.9.3',
      '-L',
      '1081',
    );
    assert.deepEqual(
      [tcp, udp, servers, localPort, udpLocalPort],
      ['redirect', true, ['45.9.9.2', '45.9.9.3'], 1080, 1081],
    );
    assert.throws(() => settingsOf(...nat, '-U', '-L', '1081'), /option -U needs -S HOST/);
    assert.throws(() => settingsOf(...nat, '-U', '-S', '45.9.9.3'), /option -U needs -L PORT/);
  });

  it('-a has a letter for all but these, or these alone', () => {
    const black = settingsOf(...nat, '-a', 'b192.168.1.9 192.168.1.10');
    assert.deepEqual(hosts(black.srcBypass.prefixes), ['c0a80109/32', 'c0a8010a/32']);
    assert.equal(black.srcDefault, 'checkdst');
    const white = settingsOf(...nat, '-a', 'w192.168.1.9');
    assert.deepEqual(hosts(white.srcCheckdst.prefixes), ['c0a80109/32']);
    assert.equal(white.srcDefault, 'bypass');
    assert.throws(
      () => settingsOf(...nat, '-a', '192.168.1.9'),
      /option -a: expected b or w and then clients/,
    );
  });

  it('-b, -w and -i list destinations, several in one argument', () => {
    const { dstBypass, dstForward, dstBypassFiles } = settingsOf(
      ...nat,
      '-b',
      '1.0.0.0/8 2.2.2.2',
      '-w',
      '1.1.1.1',
      '-i',
      '/x',
    );
    assert.deepEqual(
      [hosts(dstBypass), hosts(dstForward), dstBypassFiles],
      [['1000000/8', '2020202/32'], ['1010101/32'], ['/x']],
    );
  });

  it('-e is translated', { skip: !findCommand('iptables-translate') && 'needs iptables-translate' }, () => {
    const { tcpExtra, udpExtra } = settingsOf(...nat, '-u', '-e', '-m multiport --dports 22,80');
    assert.deepEqual([tcpExtra, udpExtra], ['tcp dport { 22, 80 }', 'udp dport { 22, 80 }']);
    assert.equal(settingsOf(...nat, '-e', '! -d 10.0.0.0/8').tcpExtra, 'ip daddr != 10.0.0.0/8');
    assert.throws(
      () => settingsOf(...nat, '-e', '-m string --algo bm --string x'),
      /option -e: .* has no translation for tcp.*use --match-tcp MATCH/,
    );
  });
});

describe('the command line is refused with what was expected', () => {
  for (const [argv, message] of [
    [['uq'], /unknown command "uq" \(did you mean up\?\)/],
    [['frobnicate'], /unknown command "frobnicate" \(one of up, down,/],
    [['up', 'a', 'b'], /argument "b" is one too many/],
    [['up', 'dns_x'], /instance "dns_x": expected/],
    [['up', '../x'], /instance "\.\.\/x": expected/],
    [['up', '-f'], /option -f means down, and the command is "up"/],
    [['up', '--kil-switch'], /unknown option --kil-switch \(did you mean --kill-switch\?\)/],
    [['up', '-k', 'x'], /option -k is not for ss-nft but for ss-redir, ss-server/],
    [['up', '--fail'], /option --fail needs an argument: --fail closed\|open/],
  ] as const) {
    it(argv.join(' '), () =>
      assert.throws(
        () => parseNftCommandLine(argv),
        (error: Error) => error instanceof UsageError && message.test(error.message),
      ),
    );
  }
});

describe('the command', { skip: whyNoNetns() }, () => {
  const directory = mkdtempSync(join(tmpdir(), 'ss-redir-nat-'));
  const netns = new Netns(`ssr-nat-${process.pid}`);
  const nft = new NftCommand(netns);

  before(async () => {
    await execa('ip', ['netns', 'add', netns.name]);
    await netns.ip('link set lo up');
  });
  beforeEach(() => nft.ok('down', '--all'));
  afterEach(() => nft.ok('down', '--all'));
  after(async () => {
    nft.remove();
    rmSync(directory, { recursive: true, force: true });
    await execa('ip', ['netns', 'delete', netns.name]);
  });

  function config(name: string, content: string): string {
    const path = join(directory, name);
    writeFileSync(path, content);
    chmodSync(path, 0o600);
    return path;
  }

  it('takes servers, ports and modes from the configuration of ss-redir, and options win', async () => {
    const server = ['[2a09:9::2]', '45.9.9.2'];
    const json = config(
      'lan.json',
      JSON.stringify({
        server,
        server_port: 8388,
        password: '"server": "1.1.1.1"',
        method: 'aes-256-gcm',
        local_port: 1080,
        mode: 'tcp_and_udp',
        tcp_tproxy: true,
        gateway: { ifnames: ['br-lan'], tcp_ports: '22', reject_quic: true },
      }),
    );
    const text = await nft.ok('render', '-c', json);
    assert.match(text, /tcp=tproxy:1080 udp=tproxy:1080/);
    assert.match(text, /set bypass4 \{[^}]*elements = \{\s*45\.9\.9\.2\s*\}/);
    assert.match(text, /set bypass6 \{[^}]*elements = \{\s*2a09:9::2\s*\}/);
    assert.match(text, /elements = \{ 22 \}/);
    assert.doesNotMatch(text, /1\.1\.1\.1/);
    assert.match(
      await nft.ok('render', '-c', json, '--tcp-ports', '80', '-I', 'wg0'),
      /"wg0"[^]*elements = \{ 80 \}|elements = \{ 80 \}[^]*"wg0"/,
    );

    const ini = config(
      'lan.conf',
      `[redir]\nlocal_port = 1081\n[server a]\naddress = 45.9.9.2\nport = 1\npassword = x\n[gateway]\nifnames = br-lan\nkill_switch = true\n`,
    );
    await nft.ok('up', '-c', ini);
    assert.match(String((await netns.run('nft', ['list', 'tables'])).stdout), /ss_redir_kill_default/);
    const { status, stderr } = await nft.run([
      'check',
      '-c',
      config(
        'bad.conf',
        `[redir]\nlocal_port = 1081\n[server a]\naddress = a\nport = 1\npassword = x\n[gateway]\nifnames = br-lan\nkil_switch = true\n`,
      ),
    ]);
    assert.equal(status, 1);
    assert.match(stderr, /bad\.conf:9.*"kil_switch".*did you mean "kill_switch"/);
  });

  it('exits with 2 for usage, 3 for rules that are missing, 1 for a failure', async () => {
    assert.equal((await nft.run(['up', '--fail'])).status, 2);
    assert.equal((await nft.run(['up', '-l', '1080'])).status, 2);
    assert.equal((await nft.run(['status'])).status, 3);
    const missing = await nft.run(['up', ...plainArgs, '-i', join(directory, 'none')]);
    assert.deepEqual(
      [missing.status, missing.stderr.trim()],
      [1, `ss-nft: ${join(directory, 'none')}: cannot be read: ENOENT`],
    );
    const line = nft.file('list', '1.0.0.0/8\nnonsense\n');
    assert.match(
      (await nft.run(['up', ...plainArgs, '-i', line])).stderr,
      /list:2: expected .* got "nonsense"/,
    );
    assert.equal(await netns.run('nft', ['list', 'tables']).then(({ stdout }) => stdout), '');
  });

  it('a server name that does not resolve is told, and stops nothing', async () => {
    const { status, stderr } = await nft.run([
      'up',
      '-s',
      'server.invalid',
      '-s',
      '45.9.9.2',
      '-l',
      '1080',
      '-I',
      'l0',
    ]);
    assert.equal(status, 0, stderr);
    assert.match(stderr, /server\.invalid.*not in the bypass set/);
  });

  it('status as JSON has all that the screen has, and status --all all instances', async () => {
    await nft.ok('up', 'a', ...plainArgs, '-T', '-u');
    await nft.ok('up', 'b', '-s', '45.9.9.2', '-l', '1081', '-I', 'l1', '--kill-switch');
    const all = JSON.parse((await nft.run(['status', '--all', '--json'])).stdout) as Record<
      string,
      unknown
    >[];
    assert.deepEqual(
      all.map(({ instance, rules, fail, killSwitch, interfaces }) => ({
        instance,
        rules,
        fail,
        killSwitch,
        interfaces,
      })),
      [
        { instance: 'a', rules: 'loaded', fail: 'closed', killSwitch: false, interfaces: ['l0'] },
        { instance: 'b', rules: 'loaded', fail: 'closed', killSwitch: true, interfaces: ['l1'] },
      ],
    );
    const [a] = all as {
      chains: { chain: string; rules: { comment: string }[] }[];
      listeners: unknown[];
      problems: string[];
    }[];
    assert.ok(a!.chains.some(({ chain }) => chain === 'forward'));
    assert.ok(a!.chains.every(({ rules }) => rules.every(({ comment }) => comment !== '')));
    assert.equal(a!.listeners.length, 2);
    assert.ok(a!.problems.some((problem) => /nobody listens on tcp port 1080: start ss-redir/.test(problem)));
    const screen = (await nft.run(['status', 'a'])).stdout;
    assert.ok(screen.split('\n').length < 30, screen);
  });

  it('status names src_valid_mark, and bridge-nf-call of a bridged LAN, with the command that mends it', async () => {
    await netns.ip('link add br0 type bridge');
    const tproxy = ['up', '-s', '45.9.9.2', '-l', '1080', '-I', 'br0', '-T'];
    await nft.ok(...tproxy);
    await netns.sysctl({ 'net.ipv4.conf.all.src_valid_mark': 1 });
    assert.match(
      (await nft.run(tproxy)).stderr,
      /^ss-nft: net\.ipv4\.conf\.all\.src_valid_mark=1: .*sysctl -w/m,
    );
    const bad = (await nft.run(['status'])).stdout;
    assert.match(
      bad,
      /! net\.ipv4\.conf\.all\.src_valid_mark=1: .*\(sysctl -w net\.ipv4\.conf\.all\.src_valid_mark=0\)/,
    );
    await netns.sysctl({ 'net.ipv4.conf.all.src_valid_mark': 0, 'net.ipv4.conf.br0.src_valid_mark': 1 });
    assert.match((await nft.run(['status'])).stdout, /! net\.ipv4\.conf\.br0\.src_valid_mark=1/);
    await nft.ok('up', '-s', '45.9.9.2', '-l', '1080', '-I', 'br0'); // REDIRECT: neither matters
    assert.doesNotMatch((await nft.run(['status'])).stdout, /src_valid_mark|bridge-nf/);
    await netns.ip('link del br0');
  });
});
