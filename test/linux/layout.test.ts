// The sizes and offsets that linux/ writes by hand, against the C compiler of this machine and against what koffi lays out.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as sockopt from '../../src/linux/sockopt.js';

type Layout = Record<string, number>;

const expected: Layout = {
  'sizeof(struct epoll_event)': process.arch === 'x64' ? 12 : 16,
  'offsetof(struct epoll_event, data)': process.arch === 'x64' ? 4 : 8,
  'sizeof(struct sockaddr_in)': 16,
  'offsetof(struct sockaddr_in, sin_port)': 2,
  'offsetof(struct sockaddr_in, sin_addr)': 4,
  'sizeof(struct sockaddr_in6)': 28,
  'offsetof(struct sockaddr_in6, sin6_port)': 2,
  'offsetof(struct sockaddr_in6, sin6_addr)': 8,
  'offsetof(struct sockaddr_in6, sin6_scope_id)': 24,
  'sizeof(struct iovec)': process.arch === 'arm' ? 8 : 16,
  'offsetof(struct iovec, iov_len)': process.arch === 'arm' ? 4 : 8,
  'sizeof(struct linger)': 8,
  'sizeof(socklen_t)': 4,
  'sizeof(ssize_t)': process.arch === 'arm' ? 4 : 8,
};

const compiler = ['cc', 'gcc', 'clang'].find((name) => spawnSync(name, ['--version']).status === 0);
const without = compiler === undefined && 'needs a C compiler';

const headers = [
  'stdio.h',
  'stddef.h',
  'sys/epoll.h',
  'sys/eventfd.h',
  'sys/socket.h',
  'sys/uio.h',
  'netinet/in.h',
  'netinet/tcp.h',
  'net/if.h',
  'linux/netfilter_ipv4.h',
  'fcntl.h',
  'sys/resource.h',
  'sys/mman.h',
  'netinet/udp.h',
  'linux/capability.h',
  'sys/prctl.h',
  'sys/file.h',
  'poll.h',
  'linux/sock_diag.h',
];

/** What the C compiler makes of these expressions. */
function compiled(expressions: readonly string[]): Layout {
  const folder = mkdtempSync(join(tmpdir(), 'ss-redir-layout-'));
  try {
    const source = join(folder, 'layout.c');
    const program = join(folder, 'layout');
    const lines = expressions.map((expression) => `printf("%lld\\n", (long long)(${expression}));`);
    const includes = headers.map((header) => `#include <${header}>`);
    writeFileSync(
      source,
      `#define _GNU_SOURCE\n${includes.join('\n')}\nint main(void) {\n${lines.join('\n')}\nreturn 0;\n}\n`,
    );
    const build = spawnSync(compiler!, ['-o', program, source], { encoding: 'utf8' });
    assert.equal(build.status, 0, build.stderr);
    const values = spawnSync(program, { encoding: 'utf8' }).stdout.trim().split('\n');
    return Object.fromEntries(expressions.map((expression, i) => [expression, Number(values[i])]));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

test('sizes and offsets are those of the C compiler', { skip: without }, () => {
  assert.deepEqual(compiled(Object.keys(expected)), expected);
});

test('sizes and offsets are those that koffi lays out for this architecture', () => {
  const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
  const event = { events: 'uint32_t', data: 'uint64_t' };
  const layout = process.arch === 'x64' ? koffi.pack(event) : koffi.struct(event);
  assert.equal(koffi.sizeof(layout), expected['sizeof(struct epoll_event)']);
  assert.equal(koffi.offsetof(layout, 'data'), expected['offsetof(struct epoll_event, data)']);
  const iovec = koffi.struct({ base: 'void *', length: 'size_t' });
  assert.equal(koffi.sizeof(iovec), expected['sizeof(struct iovec)']);
});

/** Every `NAME = number` of the sources with a header in the comment behind it, or above in the file. */
function constants(file: string): [string, number][] {
  const text = readFileSync(fileURLToPath(new URL(`../../../src/linux/${file}`, import.meta.url)), 'utf8');
  return [...text.matchAll(/^(?:export )?const ([A-Z][A-Z0-9_]+) = ([^;]+);/gm)].map(([, name, value]) => [
    name!,
    Number(new Function(`return ${value}`)()),
  ]);
}

test('every constant has the value of the C headers', { skip: without }, () => {
  const files = [
    'sockopt',
    'socket',
    'epoll',
    'sockaddr',
    'rlimit',
    'capabilities',
    'process',
    'unix-datagram',
    'pipe',
    'passed-socket',
  ].map((name) => `${name}.ts`);
  const found = files.flatMap(constants);
  const known = found.filter(([name]) => !['IPPROTO_MPTCP', 'IP6T_SO_ORIGINAL_DST'].includes(name));
  assert.ok(known.length > 35, `only ${known.length} constants found`);
  assert.deepEqual(compiled(known.map(([name]) => name)), Object.fromEntries(known));
});

test('SO_ORIGINAL_DST is 80 for both families', () => {
  assert.deepEqual([sockopt.SO_ORIGINAL_DST, sockopt.IP6T_SO_ORIGINAL_DST], [80, 80]);
});
