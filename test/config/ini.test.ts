/** The INI form: what a line may be, and that it means what the same in JSON means. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { stringify } from 'ini';
import type { Config } from '../../src/config/config.js';
import { masterKeyFromPassword } from '../../src/crypto/keys.js';
import { ConfigFolder, everything, refusal, secret } from '../helpers/config-file.js';

const folder = new ConfigFolder();

const top = 'local_port = 1080\n';
const server = '[server paris]\naddress = 192.0.2.1\nport = 8388\n';
const good = `${top}${server}password = ${secret}\n`;

function load(content: string, args: readonly string[] = []): Config {
  return folder.load('c.conf', content, 'ss-redir', args);
}

function refused(content: string): string {
  const message = refusal(() => load(content));
  const file = `${folder.path}/c.conf`;
  assert.ok(message.startsWith(file), message);
  return message.slice(file.length);
}

// The same in both formats

const same: [what: string, ini: string, json: Record<string, unknown>][] = [
  [
    'flat keys alone',
    `[redir]\nserver = 192.0.2.1\nserver_port = 8388\nlocal_port = 1080\npassword = ${secret}\n`,
    { server: '192.0.2.1', server_port: 8388, local_port: 1080, password: secret, local_address: '::' },
  ],
  [
    'keys before the first section, which are those of [redir]',
    `server = 192.0.2.1\nserver_port = 8388\nlocal_port = 1080\npassword = ${secret}\n`,
    { server: '192.0.2.1', server_port: 8388, local_port: 1080, password: secret, local_address: '::' },
  ],
  [
    'a list of servers that have all in common',
    `[redir]\nserver = a.example, [::1]:9001 192.0.2.7\nserver_port = 8388\nlocal_port = 1080\npassword = x`,
    {
      server: ['a.example', '[::1]:9001', '192.0.2.7'],
      server_port: 8388,
      local_port: 1080,
      password: 'x',
      local_address: '::',
    },
  ],
  [
    'every key',
    [
      '[redir]',
      'local_address = 127.0.0.1',
      'local_port = 1080',
      'timeout = 60',
      'idle_timeout = 5',
      'nameserver = 8.8.8.8, [::1]:53',
      'dscp = 1081:EF, 1082:0x0a',
      'mode = tcp_and_udp',
      'udp_timeout = 90',
      'udp_max_associations = 500',
      'mtu = 1400',
      'nofile = 4096',
      'workers = 2',
      'max_connections = 100',
      'max_dns_queries = 7',
      'outbound_fwmark = 0xff',
      ...['tcp_tproxy', 'fast_open', 'reuse_port', 'no_delay', 'mptcp', 'ipv6_first', 'use_syslog'].map(
        (key) => `${key} = true`,
      ),
      'verbose = false',
      'user = nobody',
      'tcp_incoming_sndbuf = 20000',
      'tcp_incoming_rcvbuf = 20001',
      'tcp_outgoing_sndbuf = 20002',
      'tcp_outgoing_rcvbuf = 20003',
      server,
      `password = ${secret}`,
    ].join('\n'),
    {
      local_address: '127.0.0.1',
      local_port: 1080,
      timeout: 60,
      idle_timeout: 5,
      nameserver: ['8.8.8.8', '[::1]:53'],
      dscp: { 1081: 'EF', 1082: '0x0a' },
      mode: 'tcp_and_udp',
      udp_timeout: 90,
      udp_max_associations: 500,
      mtu: 1400,
      nofile: 4096,
      workers: 2,
      max_connections: 100,
      max_dns_queries: 7,
      outbound_fwmark: 255,
      tcp_tproxy: true,
      fast_open: true,
      reuse_port: true,
      no_delay: true,
      mptcp: true,
      ipv6_first: true,
      use_syslog: true,
      verbose: false,
      user: 'nobody',
      tcp_incoming_sndbuf: 20_000,
      tcp_incoming_rcvbuf: 20_001,
      tcp_outgoing_sndbuf: 20_002,
      tcp_outgoing_rcvbuf: 20_003,
      servers: [{ name: 'paris', address: '192.0.2.1', port: 8388, password: secret }],
    },
  ],
  [
    'servers, gateway and log',
    [
      top,
      '[server paris]',
      'server = 192.0.2.1',
      'server_port = 8388',
      'method = aes-256-gcm',
      `password = ${secret}`,
      '[server]',
      'address = [2001:db8::1]:8389',
      'key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="',
      'mode = tcp_only',
      '[server old]',
      'disabled = true',
      'method = table',
      '[gateway]',
      'ifnames = br-lan',
      'kill_switch = true',
      'dst_ips_bypass_file = /etc/ss-redir/direct.txt',
      '[log]',
      'level = debug',
      'syslog = true',
    ].join('\n'),
    {
      local_port: 1080,
      local_address: '::',
      servers: [
        { name: 'paris', server: '192.0.2.1', server_port: 8388, method: 'aes-256-gcm', password: secret },
        {
          address: '[2001:db8::1]:8389',
          key: 'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=',
          mode: 'tcp_only',
        },
        { name: 'old', disabled: true, method: 'table' },
      ],
      gateway: {
        ifnames: 'br-lan',
        kill_switch: true,
        dst_ips_bypass_file: '/etc/ss-redir/direct.txt',
      },
      log: { level: 'debug', syslog: true },
    },
  ],
];

for (const [what, ini, json] of same) {
  test(`INI and JSON that mean the same give the same Config: ${what}`, () => {
    const fromJson = folder.load('c.json', JSON.stringify(json));
    assert.deepEqual(everything(load(ini)), everything(fromJson));
    assert.deepEqual(fromJson.warnings, []);
  });
}

test('INI and JSON that mean the same are the same ss-server, users included', () => {
  const keys = [1, 2, 3].map((fill) => Buffer.alloc(16, fill).toString('base64'));
  const method = '2022-blake3-aes-128-gcm';
  const ini = [
    'mode = tcp_and_udp',
    '[server]',
    'address = ::',
    'port = 8388',
    `method = ${method}`,
    `password = ${keys[0]}`,
    '[user anna]',
    `password = ${keys[1]}`,
    '[user ben]',
    `password = ${keys[2]}`,
  ].join('\n');
  const json = {
    server: '::',
    server_port: 8388,
    method,
    password: keys[0],
    mode: 'tcp_and_udp',
    users: [
      { name: 'anna', password: keys[1] },
      { name: 'ben', password: keys[2] },
    ],
  };
  const fromIni = folder.load('c.conf', ini, 'ss-server');
  assert.deepEqual(everything(fromIni), everything(folder.load('c.json', JSON.stringify(json), 'ss-server')));
  assert.deepEqual(
    fromIni.credentials.users.map(({ name }) => name),
    ['anna', 'ben'],
  );
});

test('what is left out is the same in both, but for where ss-redir listens: INI is for gateways', () => {
  const json = JSON.stringify({
    local_port: 1080,
    servers: [{ name: 'paris', address: '192.0.2.1', port: 8388, password: secret }],
  });
  const [ini, other] = [load(good), folder.load('c.json', json)];
  assert.deepEqual([ini.localAddress, other.localAddress], ['::', '127.0.0.1']);
  const aside = { localAddress: '', warnings: [] };
  assert.deepEqual(Object.assign(everything(ini), aside), Object.assign(everything(other), aside));
});

test('the example of the README is a configuration as it stands', () => {
  const readme = readFileSync(new URL('../../../README.md', import.meta.url), 'utf8');
  const example = /```ini\n(?<ini>.*?)```/s.exec(readme)!.groups!['ini']!;
  const { servers, verbose, warnings } = load(example);
  assert.deepEqual(
    servers.map(({ name, port, tcp, udp }) => [name, port, tcp, udp]),
    [
      ['frankfurt', 8388, true, true],
      ['paris', 8389, true, false],
    ],
  );
  assert.deepEqual(servers[0]!.credentials.key, masterKeyFromPassword('change me', 32));
  assert.deepEqual([verbose, warnings], [true, []]);
});

test('the format is told by the content, whatever the name of the file', () => {
  const json = JSON.stringify({ local_port: 1080, server: '192.0.2.1', server_port: 1, password: secret });
  assert.equal(folder.load('c.conf', json).servers.length, 1);
  assert.equal(folder.load('c.json', good).servers[0]?.name, 'paris');
  assert.equal(folder.load('c.json', `# note\n; note\n\n  ${good}`).servers.length, 1);
  assert.match(refused(`# note\n${json}`), /^:1:1: a comment begins with \/\/ /);
});

// Values

function passwordOf(line: string): Uint8Array {
  return load(`${top}${server}${line}\n`).credentials.key;
}

for (const [line, expected] of [
  [`password = ${secret}`, secret],
  [`password=${secret}`, secret],
  ['  password   =   with blanks inside   ', 'with blanks inside'],
  ['password = a=b==', 'a=b=='],
  ['password = =x', '=x'],
  ['password = [x]', '[x]'],
  [String.raw`password = a\#b\;c`, 'a#b;c'],
  [String.raw`password = a\b`, String.raw`a\b`],
  [String.raw`password = a\\b`, String.raw`a\b`],
  ['password = it\'s "quoted" inside', 'it\'s "quoted" inside'],
  ['password = é😀', 'é😀'],
  ['password = true', 'true'],
  ['password = null', 'null'],
  ['password = 007', '007'],
  ['password = 12345678901234567890', '12345678901234567890'],
  ['password = 1e5', '1e5'],
  ['password =', ''],
  ['password = ""', ''],
  ['password = " x "', ' x '],
  ['password = "a#b;c=d"', 'a#b;c=d'],
  ['password = "a#b" # a comment', 'a#b'],
  ['password = "a"; a comment', 'a'],
  [String.raw`password = "\u00e9\"\\\/\ud83d\ude00"`, 'é"\\/😀'],
  ['password = "true"', 'true'],
  ["password = '12345678'", '12345678'],
  ["password = '1.50'", '1.50'],
  ["password = 'true'", 'true'],
  ['password = \'{"a":1}\'', '{"a":1}'],
  [String.raw`password = 'a\b\\c"d#e;f'`, String.raw`a\b\\c"d#e;f`],
  ["password = '' # empty", ''],
] as const) {
  test(`the password of a line is the text that was written: ${line}`, () => {
    assert.deepEqual(passwordOf(line), masterKeyFromPassword(expected, 32));
  });
}

for (const [line, message] of [
  [`password = ${secret}#x`, /"#" may belong to the value or begin a comment: put the value in quotes$/],
  [`password = ${secret};x`, /";" may belong to the value or begin a comment/],
  [`password = ${secret} # a comment, perhaps`, /"#" may belong to the value or begin a comment/],
  [`password = #${secret}`, /"#" may belong to the value/],
  [String.raw`password = ${secret}\\#x`, /"#" may belong to the value/],
  [`password = "${secret}`, /this text is not closed with " on its line$/],
  [`password = "`, /not closed with "/],
  [String.raw`password = "${secret}\"`, /not closed with "/],
  [`password = '${secret}`, /not closed with '/],
  [`password = '`, /not closed with '/],
  [`password = "a" ${secret}`, /nothing but a comment may follow the closing quote/],
  [`password = "a" "${secret}"`, /nothing but a comment may follow/],
  [`password = 'a'${secret}`, /nothing but a comment may follow/],
  [String.raw`password = "${secret}\q"`, /a backslash that JSON does not know/],
  [`password = "${secret}\t"`, /a control character/],
  [String.raw`password = "${secret}\ud800"`, /expected text without lone surrogates/],
  [String.raw`password = "${secret}\u0000"`, /expected text without a NUL/],
] as const) {
  test(`a password that might be cut or misread is refused, and not shown: ${line}`, () => {
    const text = refused(`${top}${server}${line}`);
    assert.match(text, /^:5: \[server paris\]: key "password": /);
    assert.match(text, message);
  });
}

test('other values may have a comment behind a blank, and are refused with one that is not told from the value', () => {
  assert.equal(load(`timeout = 60 # seconds\n${good}`).timeoutSeconds, 60);
  assert.equal(load(`timeout = 60\t; seconds\n${good}`).timeoutSeconds, 60);
  assert.equal(load(`mode = "udp_only" ; a comment\n${good}`).tcp, false);
  assert.match(refused(`timeout = 60#seconds\n${good}`), /^:1: key "timeout": "#" may belong to the value/);
});

test('what the package ini writes is read as it was meant', () => {
  const passwords = [
    secret,
    'a#b;c',
    'a=b',
    ' x ',
    '"quoted"',
    "it's",
    '[x]',
    'true',
    '12',
    'é😀',
    'a"b',
    ';',
    '#',
  ];
  for (const password of passwords) {
    const text = stringify({ redir: { server: '192.0.2.1', server_port: 8388, local_port: 1080, password } });
    assert.deepEqual(load(text).credentials.key, masterKeyFromPassword(password, 32), text);
  }
});

test('true and false are without quotes where a switch is, and nothing else is', () => {
  assert.equal(load(`fast_open = true\n${good}`).fastOpen, true);
  assert.equal(load(`fast_open = false\n${good}`).fastOpen, false);
  for (const [written, got] of [
    ['yes', '"yes"'],
    ['1', '"1"'],
    ['True', '"True"'],
    ['"true"', '"true"'],
    ['', '""'],
  ]) {
    assert.equal(
      refused(`[redir]\nfast_open = ${written}\n${good}`),
      `:2: [redir]: key "fast_open": expected true or false, got ${got}`,
    );
  }
});

test('every kind of line end, white space and a byte order mark are read', () => {
  for (const end of ['\r\n', '\r', '\n']) {
    assert.equal(load(`\ufeff${good.replaceAll('\n', end)}`).servers.length, 1);
  }
  assert.equal(load(`  [redir]  # here\n\t${good.replaceAll('\n', '\n\t')}`).localPort, 1080);
});

// What is refused

for (const [what, content, message] of [
  [
    'a line that is nothing',
    `${good}\n${secret}\n`,
    ':7: expected a [section], "key = value" or a # comment',
  ],
  [
    'half of a base64 key',
    `${good}AAAA${secret}=\n`,
    ':6: expected a key of small letters, digits and _ before the =',
  ],
  [
    'a key in capitals',
    `${good}Timeout = 1\n`,
    ':6: expected a key of small letters, digits and _ before the =',
  ],
  ['a line without a key', `= ${secret}\n`, ':1: expected a key of small letters, digits and _ before the ='],
  ['an open section', '[server paris\n', ':1: expected a section like [redir] or [server NAME]'],
  ['text behind a section', `[redir] ${secret}\n`, ':1: expected a section like [redir] or [server NAME]'],
  [
    'another section',
    `[${secret}]\n`,
    ':1: expected [redir], [server NAME], [gateway], [log] or [user NAME], got another section',
  ],
  [
    'a misspelt section',
    '[servr paris]\n',
    ':1: expected [redir], [server NAME], [gateway], [log] or [user NAME], got another section (did you mean [server]?)',
  ],
  ['a name where none belongs', '[gateway lan]\n', ':1: expected [gateway] without a name'],
  ['a section twice', `${good}[redir]\n[log]\n[redir]\n`, ':8: section [redir] is there already, in line 6'],
  [
    'two servers of one name',
    `${good}[server "paris"]\n`,
    ':6: section [server "paris"] is there already, in line 2: give each a name of its own',
  ],
  [
    'two servers without a name',
    '[server]\n[server]\n',
    ':2: section [server] is there already, in line 1: give each a name of its own',
  ],
  ['a key twice', `${good}port = 1\n`, ':6: [server paris]: key "port" is there already, in line 4'],
  ['a key twice at the top', 'timeout = 1\ntimeout = 2\n', ':2: key "timeout" is there already, in line 1'],
  [
    'a key at the top and in [redir]',
    'timeout = 1\n[redir]\ntimeout = 2\n',
    ':3: [redir]: key "timeout": is there already, in line 1',
  ],
  [
    'nothing',
    ' \n\n',
    ':1:1: the file is empty, expected a section like [redir], or a JSON object in braces { }',
  ],
] as const) {
  test(`refused with file and line, and without repeating the line: ${what}`, () => {
    assert.equal(refused(content), message);
  });
}

test('a wrong value is reported with file, line, section, key, expected and got', () => {
  assert.equal(
    refused(good.replace('8388', 'eighty')),
    ':4: [server paris]: key "port": expected a port from 1 to 65535, got "eighty"',
  );
  assert.equal(
    refused(`[log]\nlevel = loud\n${server}password = x\n[redir]\nlocal_port = 1`),
    ':2: [log]: key "level": expected "info" or "debug", got "loud"',
  );
});

test('dscp in a line is refused with the item that is wrong', () => {
  for (const [written, item] of [
    ['1081', '1081'],
    ['1081:EF, x:EF', 'x'],
    ['1081:EX', '1081'],
  ]) {
    assert.match(
      refused(`dscp = ${written}\n${good}`),
      new RegExp(`^:1: key "dscp": expected "${item}" to be a port and its value EF`),
    );
  }
});

test('unknown keys warn with the key that was probably meant, in every section', () => {
  const { warnings } = load(`local_prot = 1\n${good}pasword = x\n_note = x\n[log]\nlevl = info\n`);
  assert.deepEqual(
    warnings.map((line) => line.slice(folder.path.length + '/c.conf'.length)),
    [
      ':1: key "local_prot" is unknown and ignored, did you mean "local_port"?',
      ':7: [server paris]: key "pasword" is unknown and ignored, did you mean "password"?',
      ':10: [log]: key "levl" is unknown and ignored, did you mean "level"?',
    ],
  );
});

test('one megabyte of lines is read in time', () => {
  const lines = Array.from({ length: 30_000 }, (_, i) => `_k${i} = "${'x'.repeat(15)}" # c`).join('\n');
  const started = performance.now();
  assert.equal(load(`${lines}\n${good}`).servers.length, 1);
  assert.ok(performance.now() - started < 5000);
});
