import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, fstatSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { mock, test } from 'node:test';
import { LineQueue, Logger } from '../src/log.js';

const logModule = new URL('../src/log.js', import.meta.url).href;

/** A program that logs, as a child process. */
function script(body: string): string[] {
  const source = `import { openLog } from ${JSON.stringify(logModule)};
    const log = openLog({ ident: 'ss-redir', verbose: true });
    ${body}`;
  return ['--input-type=module', '--eval', source];
}

const stamp = String.raw`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`;

test('lines that go to a pipe have the shape of shadowsocks-libev, in local time, and all go to standard error', () => {
  const { stdout, stderr } = spawnSync(
    process.execPath,
    script(`log.info('ready'); log.error('no'); log.warn('hm'); log.debug('one connection')`),
    { encoding: 'utf8', env: { TZ: 'Asia/Tokyo' } },
  );
  const tokyo = new Date(Date.now() + 9 * 3600_000).toISOString();
  assert.equal(stdout, '');
  assert.match(
    stderr,
    new RegExp(
      `^ ${stamp} INFO: ready\n ${stamp} ERROR: no\n ${stamp} WARN: hm\n ${stamp} INFO: one connection\n$`,
    ),
  );
  assert.ok(stderr.startsWith(` ${tokyo.slice(0, 10)} ${tokyo.slice(11, 13)}:`), stderr);
});

test('on a terminal the time and level are coloured as by shadowsocks-libev', (t) => {
  const command = [process.execPath, ...script(`log.info('ready'); log.error('no')`)]
    .map(shellQuote)
    .join(' ');
  const run = spawnSync('script', ['-qec', command, '/dev/null'], {
    encoding: 'utf8',
    env: { PATH: process.env['PATH'] },
  });
  if (run.error !== undefined) return t.skip('script(1) is not installed');
  const esc = String.raw`\u001b`;
  assert.match(run.stdout, new RegExp(`${esc}\\[01;32m ${stamp} INFO: ${esc}\\[0mready\r\n`));
  assert.match(run.stdout, new RegExp(`${esc}\\[01;35m ${stamp} ERROR: ${esc}\\[0mno\r\n`));
});

function shellQuote(word: string): string {
  return `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

test('under systemd lines have a priority and no time, but only when JOURNAL_STREAM is this very stream', () => {
  const directory = mkdtempSync(join(tmpdir(), 'log-'));
  const file = join(directory, 'stderr');
  const run = (journalStream: (fd: number) => string): string => {
    const fd = openSync(file, 'w');
    try {
      spawnSync(
        process.execPath,
        script(`log.error('no'); log.warn('hm'); log.info('ready'); log.debug('one')`),
        {
          stdio: ['ignore', 'ignore', fd],
          env: { JOURNAL_STREAM: journalStream(fd) },
        },
      );
      return readFileSync(file, 'utf8');
    } finally {
      closeSync(fd);
    }
  };
  try {
    const own = run((fd) => `${fstatSync(fd).dev}:${fstatSync(fd).ino}`);
    assert.equal(own, '<3>no\n<4>hm\n<6>ready\n<7>one\n');
    assert.match(
      run(() => '1:2'),
      new RegExp(`^ ${stamp} ERROR: no\n`),
    );
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test('line ends, escapes and separators in a text cannot begin a line or move the cursor', () => {
  const lines: string[] = [];
  const logger = new Logger((_level, text) => lines.push(text));
  logger.info('evil.example\n 2026-01-01 00:00:00 INFO: forged\r\u001b[2J\u0000\u0085\u2028\u202e');
  assert.deepEqual(lines, [
    String.raw`evil.example\n 2026-01-01 00:00:00 INFO: forged\r\x1b[2J\x00\x85\u2028\u202e`,
  ]);
});

test('debug lines come with verbose only, and a very long text is cut', () => {
  const lines: string[] = [];
  const quiet = new Logger((_level, text) => lines.push(text));
  quiet.debug('quiet');
  quiet.limited('key', 'quiet', 'debug');
  assert.equal(lines.length, 0);
  new Logger((_level, text) => lines.push(text), { verbose: true }).debug('x'.repeat(100_000));
  assert.equal(lines[0]?.length, 2001);
});

test('a repeated line is written five times a minute, and then how often it was left out', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const now = mock.method(performance, 'now', () => 1000);
  try {
    const lines: string[] = [];
    const logger = new Logger((level, text) => lines.push(`${level} ${text}`));
    for (let i = 1; i <= 100; i++) logger.limited('accept', `line ${i}`);
    logger.limited('other', 'another key');
    assert.deepEqual(lines, [1, 2, 3, 4, 5].map((i) => `error line ${i}`).concat('error another key'));
    t.mock.timers.tick(60_000);
    assert.deepEqual(lines.slice(6), ['error line 6 (and 94 more lines like this one)']);
    now.mock.mockImplementation(() => 61_001);
    logger.limited('accept', 'again');
    assert.equal(lines.at(-1), 'error again');
  } finally {
    now.mock.restore();
  }
});

test('the memory for repeated lines has an end, however many keys there are', () => {
  const logger = new Logger(() => {});
  for (let i = 0; i < 10_000; i++) logger.limited(`client ${i}`, 'text');
  const { repeated } = logger as unknown as { repeated: Map<string, unknown> };
  assert.ok(repeated.size <= 256, `${repeated.size} keys`);
});

test('a queue holds 1,000 lines, counts the rest and says so when it flows again', () => {
  let open = false;
  let written = '';
  const queue = new LineQueue(
    (bytes) => {
      if (!open) return 0;
      written += Buffer.from(bytes).toString();
      return bytes.length;
    },
    (count) => `${count} log lines dropped\n`,
  );
  for (let i = 1; i <= 1234; i++) queue.add(`line ${i}\n`);
  open = true;
  queue.flush();
  queue.add('later\n');
  queue.flush();
  const lines = written.trimEnd().split('\n');
  assert.equal(lines.length, 1002);
  assert.deepEqual(lines.slice(0, 2), ['line 1', 'line 2']);
  assert.deepEqual(lines.slice(-3), ['line 1000', '234 log lines dropped', 'later']);
});

test('a line that is taken in pieces arrives whole and in order', () => {
  let written = '';
  let turn = 0;
  const queue = new LineQueue(
    (bytes) => {
      if (turn++ % 3 === 0) return 0;
      const piece = bytes.subarray(0, 7);
      written += Buffer.from(piece).toString('latin1');
      return piece.length;
    },
    () => '',
  );
  const lines = ['the first line\n', 'second, which is longer\n', 'z\n'];
  for (const line of lines) queue.add(line);
  for (let i = 0; i < 10; i++) queue.flush();
  assert.equal(written, lines.join(''));
});

test('nothing is kept for a reader that has gone', () => {
  let calls = 0;
  const queue = new LineQueue(
    () => {
      calls++;
      return -1;
    },
    () => '',
  );
  queue.add('one\n');
  queue.add('two\n');
  queue.flush();
  assert.equal(calls, 2);
});

interface Stuck {
  readonly stdio: number | 'pipe';
  /** Begins to read; everything that was and is written. */
  read(child: ChildProcess): Readable;
  close(): void;
}

/** A real pipe, with a name so that this process can hold both ends. */
function stuckPipe(): Stuck {
  const directory = mkdtempSync(join(tmpdir(), 'log-'));
  const path = join(directory, 'pipe');
  execFileSync('mkfifo', [path]);
  const reading = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const writing = openSync(path, constants.O_WRONLY);
  return {
    stdio: writing,
    read: () => {
      closeSync(writing);
      return new Socket({ fd: reading, readable: true, writable: false });
    },
    close: () => rmSync(directory, { recursive: true }),
  };
}

/** Node's own kind: one end of a pair of sockets. Its stream reads a little by itself, then stops. */
function stuckSocket(): Stuck {
  return { stdio: 'pipe', read: (child) => child.stderr!, close: () => {} };
}

const manyLines = `for (let i = 1; i <= 10_000; i++) log.info('line ' + i + ' ' + 'x'.repeat(100));`;

for (const [name, open] of [
  ['pipe', stuckPipe],
  ['socket', stuckSocket],
] as const) {
  test(`a ${name} that nobody reads stops neither timers nor exit`, async () => {
    const stuck = open();
    const body = `${manyLines}
      setTimeout(() => { process.stdout.write('timer'); log.error('last words'); }, 50);`;
    const child = spawn(process.execPath, script(body), { stdio: ['ignore', 'pipe', stuck.stdio] });
    try {
      const timeout = AbortSignal.timeout(10_000);
      const exited = once(child, 'exit', { signal: timeout });
      const [said] = (await once(child.stdout!, 'data', { signal: timeout })) as [Buffer];
      const saidMs = Date.now();
      assert.equal(said.toString(), 'timer');
      assert.deepEqual(await exited, [0, null]);
      assert.ok(Date.now() - saidMs < 1000, `exit took ${Date.now() - saidMs} ms`);
    } finally {
      child.kill('SIGKILL');
      child.stderr?.destroy();
      stuck.close();
    }
  });

  test(`when a ${name} is read again, the queued lines come, and the number of dropped ones`, async () => {
    const stuck = open();
    const body = `${manyLines}
      process.stdout.write('written');
      process.stdin.once('data', () => { log.info('after'); process.exit(); });`;
    const child = spawn(process.execPath, script(body), { stdio: ['pipe', 'pipe', stuck.stdio] });
    try {
      const timeout = AbortSignal.timeout(10_000);
      await once(child.stdout!, 'data', { signal: timeout });
      const reader = stuck.read(child);
      let text = '';
      for await (const piece of reader.setEncoding('utf8').iterator()) {
        timeout.throwIfAborted();
        text += piece;
        if (text.includes('dropped') && child.stdin!.writable) child.stdin!.end('go on');
      }
      const lines = text.trimEnd().split('\n');
      const dropped = Number(
        / WARN: (?<count>\d+) log lines dropped$/.exec(lines.at(-2)!)?.groups?.['count'],
      );
      assert.equal(lines.length - 2 + dropped, 10_000);
      assert.match(lines[0]!, / INFO: line 1 x/);
      assert.match(lines.at(-3)!, new RegExp(` line ${lines.length - 2} x+$`)); // none is missing in between
      assert.ok(lines.length > 1000, `${lines.length} lines`);
      assert.match(lines.at(-1)!, / INFO: after$/);
    } finally {
      child.kill('SIGKILL');
      stuck.close();
    }
  });
}

test('descriptor 2 itself keeps its flags, so that the shell behind it still writes and waits as before', () => {
  const stuck = stuckPipe();
  try {
    // Node may have set O_NONBLOCK there for its process.stderr, which it undoes at exit: only a difference is ours.
    const source = `import { readFileSync } from 'node:fs';
      import { openLog } from ${JSON.stringify(logModule)};
      const flags = () => /flags:.*/.exec(readFileSync('/proc/self/fdinfo/2', 'utf8'))[0];
      const before = flags();
      const log = openLog({ ident: 'ss-redir' });
      ${manyLines}
      process.stdout.write(before === flags() ? 'the same' : before + flags());`;
    const { stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', source], {
      stdio: ['ignore', 'pipe', stuck.stdio],
      encoding: 'utf8',
    });
    assert.equal(stdout, 'the same');
  } finally {
    stuck.close();
  }
});

test('a closed standard error is no error', () => {
  const { status, stdout } = spawnSync(
    'sh',
    ['-c', '"$@" 2>&-', 'sh', process.execPath, ...script(`log.error('no'); process.stdout.write('ran');`)],
    { encoding: 'utf8' },
  );
  assert.equal(stdout, 'ran');
  assert.equal(status, 0);
});

test('with use_syslog nothing goes to standard error, and a percent sign is only a percent sign', () => {
  const body = `const { openLog: open } = await import(${JSON.stringify(logModule)});
    const syslog = open({ ident: 'ss-redir', useSyslog: true });
    syslog.error('100%s %n %d'); process.stdout.write('ran');`;
  const { status, stdout, stderr } = spawnSync(process.execPath, script(body), { encoding: 'utf8' });
  assert.deepEqual({ status, stdout, stderr }, { status: 0, stdout: 'ran', stderr: '' });
});
