// npm start, as a user has it: the whole demonstration, and every way it can end.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { clearLeftovers, Netns, whyNoNetns } from '../../src/demo/netns.js';

const program = fileURLToPath(new URL('../../src/demo/main.js', import.meta.url));
const roles = ['client', 'gateway', 'internet'];
/** Until it is where a test wants it, on a machine that has much else to do. */
const patienceMs = 120_000;

describe('npm start', { skip: whyNoNetns() }, () => {
  // One that a failed test has left up would keep this process, and its namespaces, for ever.
  afterEach(() => Demo.endAll());

  it('shows both modes, UDP and both editions over both families, verifies all and leaves nothing', async () => {
    const demo = new Demo('--mib', '16');
    assert.deepEqual(await demo.ended, [0, null], demo.output);
    assert.equal(demo.output.match(/16 MiB in .* SHA-256 matches/g)?.length, 12, demo.output);
    for (const row of [
      /REDIRECT +192\.168\.50\.2 -> http:\/\/93\.184\.216\.34 +45\.9\.9\.2 +3 +\d+ MB +0 +0 /,
      /REDIRECT +fd50::2 -> http:\/\/\[2606:2800:220:1::34\] +2a09:9::2 +3 +\d+ MB +0 +0 /,
      /TPROXY +192\.168\.50\.2 -> http:\/\/93\.184\.216\.34 +45\.9\.9\.2 +3 +\d+ MB +0 +0 /,
      /TPROXY +fd50::2 -> http:\/\/\[2606:2800:220:1::34\] +2a09:9::2 +3 +\d+ MB +0 +0 /,
      /TPROXY 2022 +192\.168\.50\.2 -> http:\/\/93\.184\.216\.34 +45\.9\.9\.2 +3 +\d+ MB +0 +0 /,
      /TPROXY 2022 +fd50::2 -> http:\/\/\[2606:2800:220:1::34\] +2a09:9::2 +3 +\d+ MB +0 +0 /,
      /TPROXY +192\.168\.50\.2 -> 93\.184\.216\.34 +45\.9\.9\.2 +2001 +5 MB +0 +0 +2000 of 2000\n/,
      /TPROXY +fd50::2 -> 2606:2800:220:1::34 +2a09:9::2 +2001 +5 MB +0 +0 +2000 of 2000\n/,
      /TPROXY 2022 +192\.168\.50\.2 -> 93\.184\.216\.34 +45\.9\.9\.2 +2001 +5 MB +0 +0 +2000 of 2000\n/,
      /TPROXY 2022 +fd50::2 -> 2606:2800:220:1::34 +2a09:9::2 +2001 +5 MB +0 +0 +2000 of 2000\n/,
    ]) {
      assert.match(demo.output, row);
    }
    demo.assertNothingLeft();
  });

  for (const [signal, status] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const) {
    it(`${signal} in the middle of a transfer ends it within two seconds and leaves nothing`, async () => {
      const demo = new Demo('--mib', '1024');
      await demo.waitForTransfer();
      const start = Date.now();
      demo.child.kill(signal);
      assert.deepEqual(await demo.ended, [status, null]);
      assert.ok(Date.now() - start < 2000, `${Date.now() - start} ms`);
      demo.assertNothingLeft();
    });
  }

  it('Ctrl-C in a terminal, which its programs get as well, ends it in order all the same', async () => {
    const demo = new DemoInTerminal('--mib', '1024');
    await demo.waitForTransfer();
    const start = Date.now();
    demo.pressCtrlC();
    assert.deepEqual(await demo.ended, [130, null], demo.output);
    assert.ok(Date.now() - start < 2000, `${Date.now() - start} ms`);
    assert.match(demo.output, /SIGINT: removing namespaces and processes/);
    demo.assertNothingLeft();
  });

  it('--hold keeps it up with commands that work, and Ctrl-C then is a clean end', async () => {
    const demo = new Demo('--mib', '1', '--hold');
    await demo.waitFor(/-internet ss -tulnp\n/);
    demo.remember();
    const commands = [...demo.output.matchAll(/^ {2}(ip netns exec .*)$/gm)].map((match) => match[1]!);
    const outputs = commands
      .filter((one) => !one.endsWith(' bash'))
      .map((command) => execFileSync('sh', ['-c', command], { encoding: 'utf8' }));
    for (const expected of [
      /^93\.184\.216\.34 greets 45\.9\.9\.2$/m,
      /^45\.9\.9\.2$/m,
      /^2606:2800:220:1::34 greets 2a09:9::2$/m,
      /^2a09:9::2$/m,
      /^\tchain capture/m,
      /counter to_proxy_udp \{\s+packets [1-9]/, // the query of a moment ago
      /lookup 8388/,
      /^local default dev lo/m,
      /^udp .*:1080\b/m,
      /^udp .*:8389\b/m,
    ]) {
      assert.ok(
        outputs.some((output) => expected.test(output)),
        `${expected} in: ${outputs.join('\n')}`,
      );
    }
    demo.child.kill('SIGINT');
    assert.deepEqual(await demo.ended, [0, null]);
    demo.assertNothingLeft();
  });

  it('the configuration with the password is readable by root only', async () => {
    const demo = new Demo('--mib', '1024');
    await demo.waitForTransfer();
    const folder = join(tmpdir(), demo.folders()[0]!);
    assert.equal(statSync(folder).mode & 0o777, 0o700);
    const files = readdirSync(folder).map((name) => join(folder, name));
    assert.equal(files.length, 2);
    for (const file of files) assert.equal(statSync(file).mode & 0o777, 0o600, file);
    const { password } = JSON.parse(readFileSync(files[0]!, 'utf8')) as { password: string };
    assert.equal(Buffer.from(password, 'base64').length, 32);
    demo.child.kill('SIGTERM');
    await demo.ended;
    assert.ok(!demo.output.includes(password));
    demo.assertNothingLeft();
  });

  it('what a kill -9 leaves is cleared by the next start', async () => {
    const killed = new Demo('--mib', '1024');
    await killed.waitForTransfer();
    killed.child.kill('SIGKILL');
    await killed.ended;
    assert.ok(
      existsSync(`/run/netns/${killed.name}-gateway`),
      'kill -9 left nothing: this test shows nothing',
    );
    assert.equal(killed.folders().length, 1);

    const next = new Demo('--mib', '1');
    assert.deepEqual(await next.ended, [0, null], next.output);
    killed.assertNothingLeft();
    next.assertNothingLeft();
  });

  it('Ctrl-C among the datagrams leaves nothing', async () => {
    const demo = new Demo('--mib', '1');
    await demo.waitFor(/name server .* was asked by/); // the burst comes next
    demo.remember();
    demo.child.kill('SIGINT');
    assert.deepEqual(await demo.ended, [130, null]);
    demo.assertNothingLeft();
  });

  it('when ss-redir dies under it, it says so, shows the last log lines and leaves nothing', async () => {
    const demo = new Demo('--mib', '1024');
    await demo.waitForTransfer();
    for (const pid of new Netns(`${demo.name}-gateway`).pids()) process.kill(pid, 'SIGKILL');
    assert.deepEqual(await demo.ended, [1, null]);
    assert.match(demo.output, /npm start: download http:.* status 1/);
    demo.assertNothingLeft();
  });

  it('an option it does not know is refused with the usage', async () => {
    const demo = new Demo('--hodl');
    assert.deepEqual(await demo.ended, [1, null]);
    assert.match(demo.output, /Unknown option '--hodl'[^]*usage: npm start/);
  });
});

class Demo {
  static readonly #running = new Set<Demo>();

  static async endAll(): Promise<void> {
    for (const { child, ended } of Demo.#running) {
      child.kill('SIGTERM');
      await ended;
    }
  }

  readonly child;
  readonly ended;
  output = '';
  #inside: number[] = [];

  constructor(...args: string[]) {
    clearLeftovers('ss-redir-demo');
    const { ownGroup: detached } = this;
    this.child = spawn(process.execPath, [program, ...args], { stdio: ['ignore', 'pipe', 'pipe'], detached });
    this.child.stdout.on('data', (chunk) => (this.output += chunk));
    this.child.stderr.on('data', (chunk) => (this.output += chunk));
    this.ended = once(this.child, 'close');
    Demo.#running.add(this);
    this.child.on('close', () => Demo.#running.delete(this));
  }

  /** Whether it leads a process group, as it does in a terminal. */
  protected get ownGroup(): boolean {
    return false;
  }

  get name(): string {
    return `ss-redir-demo-${this.child.pid}`;
  }

  async waitFor(pattern: RegExp): Promise<void> {
    const deadline = Date.now() + patienceMs;
    while (!pattern.test(this.output)) {
      if (this.child.exitCode !== null || Date.now() > deadline)
        throw new Error(`no ${pattern} in: ${this.output}`);
      await delay(10);
    }
  }

  /** The client's transfer is under way: its program runs, and so do all the others. */
  async waitForTransfer(): Promise<void> {
    const client = new Netns(`${this.name}-client`);
    const deadline = Date.now() + patienceMs;
    while (Date.now() < deadline) {
      const running = existsSync(`/run/netns/${client.name}`) ? client.pids() : [];
      if (running.some((pid) => commandLine(pid).includes('download'))) break;
      assert.equal(this.child.exitCode, null, this.output);
      await delay(20);
    }
    await delay(300);
    this.remember();
    assert.ok(
      this.#inside.length >= 4,
      `${this.#inside.length} processes inside, expected 4: ${this.output}`,
    );
  }

  /** Notes the processes inside, to ask for them when the namespaces have gone. */
  remember(): void {
    this.#inside = roles.flatMap((role) => new Netns(`${this.name}-${role}`).pids());
  }

  folders(): string[] {
    return readdirSync(tmpdir()).filter((name) => name.startsWith(`${this.name}-`));
  }

  assertNothingLeft(): void {
    for (const role of roles)
      assert.ok(!existsSync(`/run/netns/${this.name}-${role}`), `${this.name}-${role}`);
    assert.deepEqual(this.folders(), []);
    assert.deepEqual(this.#inside.map(commandLine).filter(Boolean), []);
  }
}

class DemoInTerminal extends Demo {
  protected override get ownGroup(): boolean {
    return true;
  }

  /** A terminal sends SIGINT to each process of the group. */
  pressCtrlC(): void {
    process.kill(-this.child.pid!, 'SIGINT');
  }
}

/** Empty when the process is gone, or a zombie. */
function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return '';
  }
}
