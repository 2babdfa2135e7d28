// The examples of the manual pages, in their order, on a booted system with everything installed. examples.test.ts boots it and
// runs this file there with the argument "run": a scenario is a page.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { repository, runScenarios, type Scenarios } from '../helpers/booted.js';
import { examplesOf, pageFiles, readPage, type Example } from './pages.js';

const startMs = 20_000;
/** All that the examples listen on. */
const ports = /:(?:1080|8388|8389)\b/;

const runs: Record<string, () => Promise<void>> = {};
// ss-redir(7) is the walk of test/setup.
for (const page of pageFiles.filter((file) => file !== 'ss-redir.7')) {
  const examples = examplesOf(readPage(page), page);
  if (!examples.some(({ kind }) => kind === 'run' || kind === 'daemon')) continue;
  runs[page] = async () => {
    for (const example of examples) await play(example, `${page}:${example.line}`);
  };
}

export const scenarios: Scenarios = runs;

if (process.argv[2] === 'run') {
  install();
  await runScenarios(scenarios);
}

function install(): void {
  let node = process.execPath;
  if (!['/usr/bin/node', '/usr/local/bin/node'].includes(node)) {
    copyFileSync(node, '/usr/local/bin/node');
    node = '/usr/local/bin/node';
  }
  execFileSync(node, [join(repository, 'dist/src/bin/ss-setup.js'), 'install'], { stdio: 'ignore' });
  // No network will come online here.
  for (const kind of ['systemd-networkd', 'ifupdown', 'NetworkManager'])
    spawnSync('systemctl', ['mask', '--quiet', `${kind}-wait-online.service`]);
  execFileSync('ip', ['link', 'add', 'br-lan', 'type', 'bridge']);
  for (const table of ['iptables', 'ip6tables'])
    spawnSync('sysctl', ['-qw', `net.bridge.bridge-nf-call-${table}=0`]);
  mkdirSync('/etc/dnsmasq.d', { recursive: true });
}

async function play(example: Example, where: string): Promise<void> {
  switch (example.kind) {
    case 'shown only':
      return;
    case 'file':
      mkdirSync(dirname(example.path), { recursive: true });
      writeFileSync(example.path, example.text, { mode: 0o640 });
      return;
    case 'run':
      run(example.text, example.exitCode, where);
      return;
    case 'daemon':
      await serve(example.text, where);
  }
}

function run(text: string, exitCode: number, where: string): void {
  const { status, stdout, stderr } = spawnSync('bash', ['-e', '-c', text], {
    encoding: 'utf8',
    timeout: startMs,
  });
  assert.equal(status, exitCode, `${where}: ${text}${stdout}${stderr}`);
}

/** It listens, and ends well when it is told to. */
async function serve(text: string, where: string): Promise<void> {
  const child = spawn('bash', ['-c', `exec ${text}`], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data: Buffer) => (said += data.toString()));
  const ended = once(child, 'exit') as Promise<[code: number | null]>;
  const deadline = Date.now() + startMs;
  while (
    !ports.test(spawnSync('ss', ['-Hltnp'], { encoding: 'utf8' }).stdout) ||
    !/listening at/.test(said)
  ) {
    assert.ok(Date.now() < deadline && child.exitCode === null, `${where}: ${text}${said}`);
    await delay(50);
  }
  child.kill('SIGTERM');
  const [code] = await ended;
  assert.equal(code, 0, `${where}: ${text}${said}`);
}
