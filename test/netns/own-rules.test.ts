// ss-redir --rules: rules that come with the start, outlive a crash, are taken over by the next start and go with a clean stop.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { whyNoNetns } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { PolicyBed, direct, other4, proxied, refused, target4 } from '../nft/policy-bed.js';

const program = fileURLToPath(new URL('../../src/bin/ss-redir.js', import.meta.url));
const startMs = 20_000;

describe('ss-redir --rules', { skip: whyNoNetns() }, () => {
  const instance = `own-${process.pid}`;
  const directory = mkdtempSync(join(tmpdir(), 'ss-redir-own-rules-'));
  let bed: PolicyBed;
  let redir: Service | undefined;
  let nothing: string;

  before(async () => {
    bed = await PolicyBed.create('ssr-own');
    nothing = await state();
  });
  afterEach(async () => {
    await redir?.stop('SIGKILL');
    redir = undefined;
    await bed.nft.ok('down', instance, '--kill-switch');
    assert.equal(await state(), nothing);
  });
  after(async () => {
    await bed.destroy();
    rmSync(directory, { recursive: true });
  });

  /** As they leave nothing: rules, policy routing, processes. */
  async function state(): Promise<string> {
    const rules = await bed.router.run('nft', ['list', 'ruleset']);
    const parts = [String(rules.stdout), await bed.router.ip('rule'), await bed.router.ip('-6 rule')];
    return parts.join('\n');
  }

  function configuration(gateway = 'ifnames = l0'): string {
    const file = join(directory, 'gateway.conf');
    const server =
      '[server a]\nserver = 45.9.9.2\nserver_port = 8388\npassword = policy test\nmethod = aes-256-gcm';
    const text = `[redir]\nlocal_port = 1080\nmode = tcp_and_udp\ntcp_tproxy = true\n${server}\n[gateway]\n${gateway}\n`;
    writeFileSync(file, text, { mode: 0o600 });
    return file;
  }

  // `--instance` would look in /etc: with -c it only names the rules.
  async function start(...args: string[]): Promise<Service> {
    const words = [program, '-c', configuration(), '--instance', instance, '--rules', ...args];
    redir = await bed.router.start(process.execPath, words);
    await redir.waitForOutput(/listening at \[::\]:1080/, startMs);
    return redir;
  }

  const tcp = () => bed.tcp(bed.client, target4);
  const udp = () => bed.udp(bed.client, target4);
  const holders = async () => {
    const { stdout } = await bed.router.run('pgrep', ['-f', `hold ${instance} `], { reject: false });
    return String(stdout).split('\n').filter(Boolean).map(Number);
  };

  it('rules are in force when it serves, and a clean stop takes them away', async () => {
    await start();
    assert.deepEqual([await tcp(), await udp()], [proxied(target4), proxied(target4)]);
    assert.equal((await redir!.stop('SIGTERM', startMs)).code, 0);
    assert.deepEqual([await tcp(), await udp()], [direct, direct]);
    assert.deepEqual(await holders(), []);
    assert.equal(await state(), nothing);
  });

  it('a crash leaves them in force, nothing goes in clear, and the next start takes them over', async () => {
    await start();
    const [holder] = await holders();
    await redir!.stop('SIGKILL');
    assert.deepEqual([await tcp(), await udp()], [refused, refused]);
    await start();
    await redir!.waitForOutput(new RegExp(`taken over from process ${holder}`), startMs);
    assert.deepEqual(await holders(), [holder]);
    assert.deepEqual([await tcp(), await udp()], [proxied(target4), proxied(target4)]);
    assert.equal((await redir!.stop('SIGTERM', startMs)).code, 0);
    assert.equal(await state(), nothing);
  });

  it('after a crash ss-nft down ends them too', async () => {
    await start();
    await redir!.stop('SIGKILL');
    await bed.nft.ok('down', instance);
    assert.deepEqual([await tcp(), await holders()], [direct, []]);
    assert.equal(await state(), nothing);
  });

  it('with --fail open they end with it, however that is', async () => {
    await start('--fail', 'open');
    assert.equal(await tcp(), proxied(target4));
    await redir!.stop('SIGKILL');
    for (let i = 0; i < 200 && (await holders()).length > 0; i++) await delay(20);
    assert.equal(await tcp(), direct);
    assert.equal(await state(), nothing);
  });

  it('with -a the stop takes them away as well, though it may touch no rule by then', async () => {
    await start('-a', 'nobody');
    assert.equal(await udp(), proxied(target4));
    assert.equal((await redir!.stop('SIGTERM', startMs)).code, 0);
    assert.equal(await state(), nothing);
  });

  it('a holder that is killed is started again', async () => {
    await start();
    const [holder] = await holders();
    process.kill(holder!, 'SIGKILL');
    await redir!.waitForOutput(/the holder of the rules has ended/, startMs);
    let found = '';
    const deadline = Date.now() + startMs;
    while (found !== proxied(target4) && Date.now() < deadline) found = await tcp();
    assert.equal(found, proxied(target4));
    assert.notDeepEqual(await holders(), [holder]);
  });

  for (const [what, gateway, message] of [
    ['no interface', 'dst_default = forward', /no LAN interface given/],
    ['a match that nft does not know', 'ifnames = l0\nnft_tcp_extra = ip ttl bogus', /nft: .*bogus/],
    ['a table of the system', 'ifnames = l0\nroute_table = 254', /route_table 254 is a table of the system/],
  ] as const) {
    it(`${what}: the start is refused, and nothing is left`, async () => {
      const words = [program, '-c', configuration(gateway), '--instance', instance, '--rules'];
      const { exitCode, stderr } = await bed.router.run(process.execPath, words, { reject: false });
      assert.equal(exitCode, 1);
      assert.match(String(stderr), message);
      assert.deepEqual(await holders(), []);
      assert.equal(await state(), nothing);
    });
  }

  it('where the start is refused later, the rules that it brought go', async () => {
    await bed.startRedir('-T'); // has the port
    const words = [program, '-c', configuration(), '--instance', instance, '--rules'];
    const { exitCode, stderr } = await bed.router.run(process.execPath, words, { reject: false });
    await bed.stopRedir();
    assert.equal(exitCode, 1, String(stderr));
    assert.deepEqual(await holders(), []);
    assert.equal(await state(), nothing);
  });

  it('a reload replaces the rules; port and mode are those that it serves with until a restart', async () => {
    await start();
    const file = configuration(`ifnames = l0\ndst_ips_bypass = ${other4}`);
    writeFileSync(file, readFileSync(file, 'utf8').replace('local_port = 1080', 'local_port = 1090'), {
      mode: 0o600,
    });
    redir!.kill('SIGHUP');
    await redir!.waitForOutput(/ reloaded: /, startMs);
    assert.match(redir!.output, /a restart is needed for: local_port/);
    assert.equal(await bed.tcp(bed.client, other4), direct);
    assert.deepEqual([await tcp(), await udp()], [proxied(target4), proxied(target4)]);
    configuration('ifnames = l0\nnft_tcp_extra = ip ttl bogus');
    redir!.kill('SIGHUP');
    await redir!.waitForOutput(/not reloaded, nothing is changed: nft: /, startMs);
    assert.deepEqual([await tcp(), await bed.tcp(bed.client, other4)], [proxied(target4), direct]);
  });

  it('--fail without --rules is refused', async () => {
    const words = [program, '-c', configuration(), '--fail', 'open', '--check'];
    const { exitCode, stderr } = await bed.router.run(process.execPath, words, { reject: false });
    assert.deepEqual(
      [exitCode, /option --fail: is for the rules that --rules makes/.test(String(stderr))],
      [1, true],
    );
  });
});
