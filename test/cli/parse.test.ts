import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { helpText } from '../../src/cli/help.js';
import { loadConfig } from '../../src/cli/load-config.js';
import { gatewayKeys } from '../../src/nft/settings.js';
import { options, optionsOf } from '../../src/cli/options.js';
import type { Option } from '../../src/cli/options.js';
import { parseCommandLine } from '../../src/cli/parse.js';
import type { Command, Config } from '../../src/config/config.js';
import { knownKeys, refuseLaterKeys } from '../../src/config/schema.js';
import { Setting } from '../../src/config/setting.js';
import { masterKeyFromPassword } from '../../src/crypto/keys.js';
import { UsageError } from '../../src/errors.js';

const secret = 'correct-horse-42';
const redir = ['-s', '192.0.2.1', '-p', '8388', '-l', '1080', '-k', secret, '-b', '::'];

function load(...argv: string[]): Config {
  return loadConfig('ss-redir', [...redir, ...argv], {});
}

function refusal(command: Command, argv: readonly string[]): string {
  let caught: unknown;
  try {
    loadConfig(command, argv, {});
  } catch (error) {
    caught = error;
  }
  assert.ok(caught instanceof UsageError, inspect(caught));
  assert.ok(!/[\r\n]/.test(caught.message), 'more than one line');
  assert.ok(!inspect(caught, { showHidden: true }).includes(secret), 'the secret is in the error');
  return caught.message;
}

function addresses({ servers }: Config): unknown[] {
  return servers.map(({ host, port }) => ({ host, port }));
}

function words(text: string): string[] {
  return text.split(' ');
}

test('the command line alone is enough, and everything of it arrives', () => {
  const { warnings, ...config } = load(
    ...words('-T -6 -v -t 60 -n 4096 -m aes-128-gcm --fast-open --reuse-port --no-delay --mptcp --workers 2'),
    ...words('--idle-timeout=5 --outbound-fwmark 0x10 --max-connections 9 --max-dns-queries 8'),
    ...words('-u --udp-timeout 77 --udp-max-associations 6 --mtu 1400 -a nobody'),
    ...words('--tcp-incoming-sndbuf 20001 --tcp-incoming-rcvbuf 20002'),
    ...words('--tcp-outgoing-sndbuf 20003 --tcp-outgoing-rcvbuf 20004'),
  );
  assert.deepEqual(config, {
    command: 'ss-redir',
    servers: [{ host: '192.0.2.1', port: 8388, method: 'aes-128-gcm', tcp: true, udp: true }],
    localAddress: '::',
    localPort: 1080,
    makesRules: false,
    dscp: [],
    nameservers: [],
    method: 'aes-128-gcm',
    timeoutSeconds: 60,
    idleTimeoutSeconds: 5,
    workers: 2,
    maxConnections: 9,
    maxDnsQueries: 8,
    outboundFwmark: 16,
    nofile: 4096,
    tcp: true,
    udp: true,
    udpTimeoutSeconds: 77,
    udpMaxAssociations: 6,
    mtu: 1400,
    user: 'nobody',
    tcpTproxy: true,
    fastOpen: true,
    reusePort: true,
    noDelay: true,
    mptcp: true,
    ipv6First: true,
    verbose: true,
    useSyslog: false,
    tcpIncomingSndbuf: 20_001,
    tcpIncomingRcvbuf: 20_002,
    tcpOutgoingSndbuf: 20_003,
    tcpOutgoingRcvbuf: 20_004,
  });
  assert.equal(warnings.length, 1); // the password in the process list
});

test('ss-server has options of its own', () => {
  const argv = [
    '-p',
    '8388',
    '-k',
    secret,
    '-i',
    'eth0',
    '-d',
    '8.8.8.8,[::1]:53',
    '-b',
    '192.0.2.9',
    '-s',
    '0.0.0.0',
  ];
  const config = loadConfig('ss-server', argv, {});
  assert.deepEqual(
    [config.interface, config.nameservers, config.bindAddress4, addresses(config), config.timeoutSeconds],
    ['eth0', ['8.8.8.8', '[::1]:53'], '192.0.2.9', [{ host: '0.0.0.0', port: 8388 }], 60],
  );
});

test('-s adds a server each time; of other options the last one counts', () => {
  const config = load('-s', '[::1]:1', '-t', '5', '-t', '7');
  assert.deepEqual(addresses(config), [
    { host: '192.0.2.1', port: 8388 },
    { host: '::1', port: 1 },
  ]);
  assert.equal(config.timeoutSeconds, 7);
});

for (const [spelling, argv] of [
  ['-p 8389', ['-p', '8389']],
  ['-p8389', ['-p8389']],
  ['-vp 8389', ['-vp', '8389']],
  ['-v6p8389', ['-v6p8389']],
  ['--server-port 8389', ['--server-port', '8389']],
  ['--server-port=8389', ['--server-port=8389']],
] as const) {
  test(`options are spelt as getopt_long takes them: ${spelling}`, () => {
    assert.deepEqual(addresses(load(...argv)), [{ host: '192.0.2.1', port: 8389 }]);
  });
}

for (const password of ['-x', '--server', '--', '-', '', ' ', 'a=b', '=x', '-k']) {
  test(`the argument of -k is taken as it is: ${JSON.stringify(password)}`, () => {
    const key = masterKeyFromPassword(password, 32);
    assert.deepEqual(load('-k', password).credentials.key, key);
    assert.deepEqual(load('--password', password).credentials.key, key);
    assert.deepEqual(load(`--password=${password}`).credentials.key, key);
  });
}

for (const [argv, message] of [
  [['--pasword', secret], 'unknown option --pasword (did you mean --password?)'],
  [[`--pasword=${secret}`], 'unknown option --pasword (did you mean --password?)'],
  [['--fast'], 'unknown option --fast (did you mean --fast-open?)'],
  [['--quux'], 'unknown option --quux (see ss-redir --help)'],
  [['--evil\n2026 INFO: forged'], String.raw`unknown option --evil\n2026 INFO: forged (see ss-redir --help)`],
  [['-z'], 'unknown option -z (see ss-redir --help)'],
  [['-vz', secret], 'unknown option -z (see ss-redir --help)'],
  [['--__proto__'], 'unknown option --__proto__ (see ss-redir --help)'],
  [['-i', 'eth0'], 'option -i is not for ss-redir but for ss-server'],
  [['--acl', 'x'], 'option --acl is not for ss-redir but for ss-server'],
  [['-k'], 'option -k needs an argument: -k PASSWORD'],
  [['--key'], 'option --key needs an argument: --key BASE64'],
  [['-c'], 'option -c needs an argument: -c FILE'],
  [['--fast-open=true'], 'option --fast-open takes no argument'],
  [[secret], 'argument 1 belongs to no option (a configuration file is given with -c FILE)'],
  [['-v', '--', secret], 'argument 3 belongs to no option'],
  [['-k', 'half', secret], 'argument 3 belongs to no option'],
  [['-A'], 'option -A: one-time authentication is gone: the AEAD methods authenticate by themselves'],
] as const) {
  test(`refused in one line that repeats no value: ${inspect(argv)}`, () => {
    assert.equal(refusal('ss-redir', argv), message);
  });
}

for (const [argv, message] of [
  [['-t', '0'], /^option -t: expected a whole number of seconds, at least 1, got "0"$/],
  [['-t', '-5'], /^option -t: .* got "-5"$/],
  [['--timeout', '1.5'], /^option --timeout: .* got "1\.5"$/],
  [['-m', 'rc4-md5'], /^option -m: .*retired/],
  [['-b', 'eth0'], /^option -b: expected an IP address, got "eth0"$/],
  [['-n', 'many'], /^option -n: expected a number of descriptors, got "many"$/],
  [['--workers', '0'], /^option --workers: expected a number from 1 to 256, or "auto", got "0"$/],
  [['--outbound-fwmark', '0x1/0x1'], /^option --outbound-fwmark: .*without a mask/],
  [['--outbound-fwmark', '0x1g'], /^option --outbound-fwmark: expected a 32-bit number/],
  [['--max-connections', '-1'], /^option --max-connections: expected/],
  [['--max-dns-queries', 'x'], /^option --max-dns-queries: expected/],
  [['--tcp-incoming-sndbuf', '1k'], /^option --tcp-incoming-sndbuf: expected a number of bytes/],
  [['--key', secret], /^option --key: expected base64 of a 32-byte key, got/],
  [['--key', ''], /^option --key: .*got one of 0 bytes/],
] as const) {
  test(`a wrong value is refused with the option as it was typed: ${argv.join(' ')}`, () => {
    assert.match(refusal('ss-redir', [...redir, ...argv]), message);
  });
}

test('an interface name is one that Linux can have', () => {
  for (const name of ['', 'a b', 'eth0/1', 'sixteen-letters-']) {
    assert.match(
      refusal('ss-server', ['-p', '1', '-k', secret, '-i', name]),
      /^option -i: expected the name of a network/,
    );
  }
});

const complete: Readonly<Record<Command, readonly string[]>> = {
  'ss-redir': redir,
  'ss-server': ['-p', '1', '-k', secret],
};

for (const command of ['ss-redir', 'ss-server'] as const) {
  for (const option of optionsOf(command)) {
    const { later, argument } = option;
    if (later === undefined) continue;
    test(`${command} ${names(option).join(', ')}: refused by name, since this version does not have it`, () => {
      for (const name of names(option)) {
        const argv = argument === undefined ? [name] : [name, secret];
        const message = refusal(command, [...complete[command], ...argv]);
        assert.equal(message, `option ${name}: ${later} is not in this version yet`);
      }
    });
  }
}

test('the key of an option that is refused is refused in a file with the same words', () => {
  const keys = options.filter(
    ({ later, key }) => later !== undefined && key !== undefined && key !== 'plugin_opts',
  );
  assert.ok(keys.length >= 4);
  for (const { key, later, commands } of keys) {
    const settings = new Map([[key!, Setting.fromFile('x.json:1:1', key!, secret, '')]]);
    const expected = { message: `x.json:1:1: key "${key}": ${later} is not in this version yet` };
    for (const command of commands) {
      if (command === 'ss-redir' || command === 'ss-server')
        assert.throws(() => refuseLaterKeys(command, settings), expected);
    }
  }
});

test('every key of the option table is a key of the file', () => {
  for (const { key, commands } of options) {
    const keys = commands.includes('ss-nft') ? gatewayKeys : knownKeys;
    assert.ok(key === undefined || keys.includes(key), key);
  }
});

function names({ short, long }: Option): string[] {
  return short === undefined ? [`--${long}`] : [`-${short}`, `--${long}`];
}

function known(command: Command): string[] {
  return optionsOf(command).flatMap(({ short = '', long }) => [short, long]);
}

test('every option letter and name of shadowsocks-libev is known', () => {
  const long = words(
    'fast-open reuse-port no-delay mtu mptcp plugin plugin-opts password key help ' +
      'tcp-incoming-sndbuf tcp-incoming-rcvbuf tcp-outgoing-sndbuf tcp-outgoing-rcvbuf',
  );
  for (const letter of [...'splktmcbanfhuUTv6A', ...long]) {
    assert.ok(known('ss-redir').includes(letter), `ss-redir ${letter}`);
  }
  for (const letter of [...'spktmbcidanfhuUv6A', ...long, 'acl', 'manager-address', 'nftables-sets']) {
    assert.ok(known('ss-server').includes(letter), `ss-server ${letter}`);
  }
});

test('which of them take an argument is as in shadowsocks-libev', () => {
  const withArgument = options.flatMap(({ short, argument, commands }) =>
    argument === undefined || commands.includes('ss-nft') ? [] : (short ?? []),
  );
  assert.deepEqual(new Set(withArgument), new Set('splktmcbanfid'));
});

test('no letter or name stands for two options of one command', () => {
  for (const command of ['ss-redir', 'ss-server', 'ss-nft'] as const) {
    const all = optionsOf(command).flatMap(names);
    assert.equal(new Set(all).size, all.length);
  }
});

for (const command of ['ss-redir', 'ss-server'] as const) {
  test(`the help of ${command} lists every option with its argument, default and what is not there yet`, () => {
    const text = helpText(command, '1.2.3');
    assert.match(text, new RegExp(`^\n${command} 1\\.2\\.3\n`));
    for (const option of optionsOf(command)) {
      const spelling =
        names(option).join(', ') + (option.argument === undefined ? '' : ` ${option.argument}`);
      const at = text.split('\n').findIndex((line) => line.trim() === spelling);
      assert.ok(at > 0, spelling);
      const described = text.split('\n')[at + 1]!;
      assert.ok(described.includes(option.help), spelling);
      assert.ok(described.includes(option.fallback ?? ''), spelling);
      assert.ok(described.includes(option.later ?? ''), spelling);
    }
    assert.ok(
      text.split('\n').every((line) => line.length <= 120),
      'a line is too long',
    );
  });
}

function fallback(long: string): string | undefined {
  return optionsOf('ss-redir').find((option) => option.long === long)?.fallback;
}

test('the defaults in the help are the defaults in force', () => {
  const config = load();
  assert.equal(fallback('timeout'), String(config.timeoutSeconds));
  assert.equal(fallback('method'), config.method);
  assert.equal(fallback('workers'), String(config.workers));
  assert.equal(fallback('max-connections'), String(config.maxConnections));
  assert.equal(fallback('max-dns-queries'), String(config.maxDnsQueries));
  assert.equal(Number(fallback('outbound-fwmark')), config.outboundFwmark);
});

test('help and version go before everything else on the line, right or wrong', () => {
  for (const argv of [['-h'], ['--help'], ['--quux', '-h'], ['-p', '0', 'stray', '--help'], ['-vh']]) {
    assert.equal(parseCommandLine('ss-redir', argv).help, true);
  }
  assert.equal(parseCommandLine('ss-redir', ['-k', '-h']).help, false); // the password is "-h"
  assert.equal(parseCommandLine('ss-redir', ['-V']).version, true);
  assert.equal(parseCommandLine('ss-redir', ['-v']).version, false);
});

test('-c and --check are told to the command', () => {
  const { configFile, check } = parseCommandLine('ss-redir', ['--check', '-c', '/a', '--config', '/b']);
  assert.deepEqual([configFile, check], ['/b', true]);
});

test('a parsed command line does not show its password when it is printed', () => {
  const commandLine = parseCommandLine('ss-redir', redir);
  assert.ok(!inspect(commandLine, { showHidden: true, depth: 9 }).includes(secret));
  assert.equal(commandLine.settings.get('password')?.value, secret);
});
