// ss-nft hold: rules that nobody else can flush or change, that go with their holder and with nothing left, and its socket.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { whyNoNetns } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { holderSocketOf } from '../../src/nft/holder-protocol.js';
import { PolicyBed, direct, other4, proxied, refused, target4 } from './policy-bed.js';

const program = fileURLToPath(new URL('../../src/bin/ss-nft.js', import.meta.url));
const startMs = 20_000;

describe('ss-nft hold', { skip: whyNoNetns() }, () => {
  // The socket's directory is not of the namespace: a name that no other test has.
  // As long as it may be: what nft says of an owned table depends on it.
  const instance = `hold-${process.pid}-`.padEnd(64, 'x');
  const table = `ss_redir_${instance}`;
  const socket = holderSocketOf(instance);
  let bed: PolicyBed;
  let holder: Service | undefined;

  before(async () => {
    bed = await PolicyBed.create('ssr-hold');
    await bed.startRedir();
  });
  afterEach(async () => {
    await holder?.stop('SIGTERM', startMs);
    holder = undefined;
    await bed.nft.ok('down', '--all', '--kill-switch');
  });
  after(() => bed.destroy());

  const settings = ['-s', '45.9.9.2', '-l', '1080', '-I', 'l0', '-u'];

  async function hold(...args: string[]): Promise<Service> {
    holder = await bed.router.start(process.execPath, [program, 'hold', instance, ...settings, ...args]);
    await holder.waitForOutput(/INFO: holding table inet/, startMs);
    return holder;
  }

  const nft = async (...args: string[]) => {
    const { stderr, stdout, exitCode } = await bed.router.run('nft', args, { reject: false });
    return { said: `${String(stdout)}${String(stderr)}`, exitCode };
  };

  /** All that rules and routing could leave. */
  async function state(): Promise<string> {
    const parts = [(await nft('list', 'ruleset')).said];
    for (const words of ['rule', '-6 rule', 'route show table all', '-6 route show table all'])
      parts.push(await bed.router.ip(words));
    return parts.join('\n');
  }

  /** Requests as lines, answers as lines. */
  function ask(...requests: unknown[]): Promise<Record<string, unknown>[]> {
    return new Promise((resolve, reject) => {
      const asking = connect(socket);
      let heard = '';
      asking.setEncoding('utf8').on('data', (text) => {
        heard += String(text);
        const lines = heard.split('\n').slice(0, -1);
        if (lines.length < requests.length) return;
        asking.destroy();
        resolve(lines.map((line) => JSON.parse(line) as Record<string, unknown>));
      });
      asking.on('error', reject);
      for (const request of requests)
        asking.write(`${typeof request === 'string' ? request : JSON.stringify(request)}\n`);
    });
  }

  it('nobody else flushes or changes the rules, and with a clean end nothing is left', async () => {
    const nothing = await state();
    await hold('--domains-file', bed.nft.file('names.txt', 'example.net\n'));
    assert.equal(statSync(socket).mode & 0o777, 0o600);
    await nft('flush', 'ruleset');
    assert.match((await nft('delete', 'table', 'inet', table)).said, /Operation not permitted/);
    assert.match(
      (await nft('add', 'rule', 'inet', table, 'forward', 'accept')).said,
      /Operation not permitted/,
    );
    assert.equal(await bed.tcp(bed.client, target4), proxied(target4));
    assert.equal(await bed.udp(bed.client, target4), proxied(target4));
    const { stdout, status } = await bed.nft.run(['status', instance]);
    assert.match(stdout, new RegExp(`held by process ${holder!.pid}`));
    assert.match(stdout, /! table inet ss_redir_dns_hold-\S+ is missing/); // it was flushed, and its default applies
    assert.equal(status, 3);
    assert.deepEqual(await holder!.stop('SIGTERM', startMs), { code: 0, signal: undefined });
    assert.equal(await state(), nothing);
    assert.ok(!existsSync(socket));
  });

  it('the kernel takes the rules when the holder is killed, and the next down takes the routing', async () => {
    const nothing = await state();
    await hold();
    await holder!.stop('SIGKILL');
    holder = undefined;
    for (let i = 0; i < 100 && (await nft('list', 'tables')).said.includes(table); i++) await delay(20);
    assert.equal(await bed.tcp(bed.client, target4), direct);
    assert.match(await bed.router.ip('rule'), /lookup 8388/);
    assert.ok(existsSync(socket), 'the path of a killed holder stays');
    await bed.nft.ok('down', instance);
    assert.equal(await state(), nothing);
    await hold(); // in spite of the path
    assert.equal(await bed.tcp(bed.client, target4), proxied(target4));
  });

  it('the kill switch outlives a killed holder', async () => {
    await hold('--kill-switch');
    await holder!.stop('SIGKILL');
    await delay(100);
    assert.equal(await bed.tcp(bed.client, target4), refused);
  });

  it('when nft alone is killed the rules are loaded again', async () => {
    await hold();
    const { stdout } = await bed.router.run('pgrep', ['-P', String(holder!.pid), '-x', 'nft']);
    process.kill(Number(stdout), 'SIGKILL');
    await holder!.waitForOutput(/nft has ended, and the rules with it: they are loaded again/, startMs);
    let found = '';
    for (let i = 0; i < 100 && found !== proxied(target4); i++) found = await bed.tcp(bed.client, target4);
    assert.equal(found, proxied(target4));
  });

  it('policy routing that others remove is there again', async () => {
    await hold();
    for (const family of ['-4', '-6']) {
      await bed.router.ip(`${family} rule del priority 8388`);
      await bed.router.ip(`${family} route flush table 8388`);
    }
    const isBack = async (words: string, pattern: RegExp) => {
      for (let i = 0; i < 200; i++) {
        const said = await bed.router.ip(words).catch(() => '');
        if (pattern.test(said)) return true;
        await delay(25);
      }
      return false;
    };
    for (const family of ['-4', '-6']) {
      assert.ok(await isBack(`${family} rule`, /8388:.*lookup 8388/), `${family} rule`);
      assert.ok(await isBack(`${family} route show table 8388`, /local default dev lo/), `${family} route`);
    }
    assert.equal(await bed.udp(bed.client, target4), proxied(target4));
  });

  it('up, refresh, check and down of the instance go through the holder', async () => {
    const list = bed.nft.file('list.txt', '1.2.3.4\n');
    await hold();
    await bed.nft.ok('check', instance, ...settings);
    await bed.nft.ok('up', instance, ...settings, '-i', list);
    assert.equal(await bed.tcp(bed.client, other4), proxied(other4));
    writeFileSync(list, `${other4}\n`);
    await bed.nft.ok('refresh', instance, ...settings);
    assert.equal(await bed.tcp(bed.client, other4), direct);
    assert.match((await nft('list', 'table', 'inet', table)).said, /flags owner/);
    const refusal = await bed.nft.run(['up', instance, ...settings, '-i', '/does/not/exist']);
    assert.equal(refusal.status, 1);
    assert.match(refusal.stderr, /^ss-nft: \/does\/not\/exist: cannot be read: ENOENT/);
    assert.equal(await bed.tcp(bed.client, other4), direct, 'nothing has changed');
    assert.match(await bed.nft.ok('down', instance), new RegExp(`^removed table inet ${table}$`, 'm'));
    assert.equal((await holder!.exited).code, 0);
    assert.equal(await bed.tcp(bed.client, target4), direct);
    assert.equal(await bed.nft.ok('down', instance), 'nothing to remove');
  });

  /** Connections given to ss-redir so far. */
  async function counted(): Promise<number> {
    const { said } = await nft('list', 'table', 'inet', table);
    return Number(/counter to_proxy \{\s+packets (\d+)/.exec(said)![1]);
  }

  it('dns_hijack is switched on and off while the rest goes on', async () => {
    await hold();
    assert.equal(await bed.tcp(bed.client, target4, 53), proxied(target4));
    const earlier = await counted();
    await bed.nft.ok('up', instance, ...settings, '--dns-hijack', other4);
    assert.equal(await bed.udp(bed.client, target4, 53), direct); // the resolver of the configuration is not proxied
    assert.equal(await bed.tcp(bed.client, target4), proxied(target4));
    await bed.nft.ok('up', instance, ...settings);
    assert.equal(await bed.udp(bed.client, target4, 53), proxied(target4));
    assert.equal(await counted(), earlier + 1, 'counters go on');
  });

  it('a second holder of the instance is refused and names the first, which goes on', async () => {
    await hold();
    const { status, stderr } = await bed.nft.run(['hold', instance, ...settings]);
    assert.equal(status, 1);
    assert.match(stderr, new RegExp(`instance ${instance} is held by process ${holder!.pid} already`));
    assert.equal(await bed.tcp(bed.client, target4), proxied(target4));
  });

  it('of several holders that start at once one has it, and the others say so', async () => {
    const starts = Array.from({ length: 4 }, () =>
      bed.router.start(process.execPath, [program, 'hold', instance, ...settings]),
    );
    const services = await Promise.all(starts);
    const results = await Promise.all(
      services.map(async (service) => {
        await service.waitForOutput(/holding table|is held by process|just beginning/, startMs);
        return service.output;
      }),
    );
    const winners = services.filter((_, i) => results[i]!.includes('holding table'));
    assert.equal(winners.length, 1, results.join('\n'));
    holder = winners[0];
    const [{ pid }] = (await ask({ command: 'status' })) as [{ pid: number }];
    assert.equal(pid, holder!.pid);
    assert.equal(await bed.tcp(bed.client, target4), proxied(target4));
  });

  it('one that hangs is told of soon, and nothing is changed behind its back', async () => {
    await hold();
    process.kill(holder!.pid, 'SIGSTOP');
    try {
      const startedMs = performance.now();
      const { status, stderr } = await bed.nft.run(['down', instance]);
      assert.ok(performance.now() - startedMs < 30_000);
      assert.equal(status, 1);
      assert.match(stderr, /the holder of the rules gave no answer/);
      assert.equal(await bed.tcp(bed.client, target4), proxied(target4));
    } finally {
      process.kill(holder!.pid, 'SIGCONT');
    }
  });

  it('settings that nft refuses hold nothing and leave nothing', async () => {
    const nothing = await state();
    const { status, stderr } = await bed.nft.run([
      'hold',
      instance,
      ...settings,
      '--match-tcp',
      'ip ttl bogus',
    ]);
    assert.equal(status, 1);
    assert.match(stderr, /^ss-nft: nft: .*bogus/m);
    assert.equal(await state(), nothing);
    assert.ok(!existsSync(socket));
  });

  it('SIGHUP reads the configuration again; what is invalid changes nothing and is told', async () => {
    const file = bed.nft.file('gateway.conf', '');
    const write = (gateway: string) =>
      writeFileSync(
        file,
        `[redir]\nlocal_port = 1080\n[server a]\nserver = 45.9.9.2\nserver_port = 8388\npassword = x\nmethod = aes-256-gcm\n[gateway]\nifnames = l0\n${gateway}`,
        { mode: 0o600 },
      );
    write('');
    // In the background, as SIGHUP means reload there: what a terminal sends when it goes is another thing.
    await bed.nft.ok('hold', instance, '--detach', '-c', file);
    const [{ pid }] = (await ask({ command: 'status' })) as [{ pid: number }];
    assert.equal(await bed.tcp(bed.client, other4), proxied(other4));
    write(`dst_ips_bypass = ${other4}\n`);
    process.kill(pid, 'SIGHUP');
    let found = '';
    for (let i = 0; i < 50 && found !== direct; i++) found = await bed.tcp(bed.client, other4);
    assert.equal(found, direct);
    write('dst_ips_bypass = nonsense\n');
    process.kill(pid, 'SIGHUP');
    await delay(500);
    assert.equal(await bed.tcp(bed.client, other4), direct);
    assert.equal(await bed.tcp(bed.client, target4), proxied(target4));
    // What came by the socket meanwhile is older than the file.
    await bed.nft.ok('up', instance, ...settings);
    assert.equal(await bed.tcp(bed.client, other4), proxied(other4));
    write(`dst_ips_bypass = ${other4}\n`);
    process.kill(pid, 'SIGHUP');
    for (let i = 0; i < 50 && (found = await bed.tcp(bed.client, other4)) !== direct; i++);
    assert.equal(found, direct);
    assert.match(readFileSync(`/proc/${pid}/cmdline`, 'utf8'), /hold/);
    await bed.nft.ok('down', instance);
  });

  it('a set is given other elements, ten thousand in under a second and while traffic flows', async () => {
    await hold('-b', other4);
    const elements = Array.from({ length: 10_000 }, (_, i) => `11.${i >> 8}.${i & 255}.0/25`);
    const wrong: string[] = [];
    const until = new AbortController();
    const traffic = (async () => {
      while (!until.signal.aborted) {
        const found = await bed.tcp(bed.client, other4);
        if (found !== direct) wrong.push(found);
      }
    })();
    let slowest = 0;
    for (let i = 0; i < 5; i++) {
      const startedMs = performance.now();
      const [answer] = await ask({ command: 'set', name: 'dst_bypass4', elements: [other4, ...elements] });
      slowest = Math.max(slowest, performance.now() - startedMs);
      assert.deepEqual(answer, { ok: true });
    }
    until.abort();
    await traffic;
    assert.deepEqual(wrong, []);
    assert.ok(slowest < 5000, `${slowest} ms`); // under a second on a machine that does nothing else
    const count = (await nft('list', 'set', 'inet', table, 'dst_bypass4')).said.match(
      /11\.\d+\.\d+\.(?:0|128)\/25/g,
    )!.length;
    assert.equal(count, 10_000);
  });

  it('what is asked wrongly is answered so, and neither garbage nor silence holds anybody up', async () => {
    await hold();
    const silent = Array.from({ length: 20 }, () => connect(socket));
    const flood = connect(socket);
    flood.on('error', () => {});
    flood.write('x'.repeat(100_000));
    const answers = await ask(
      'no JSON',
      '{}',
      { command: 'explode' },
      { command: 'set', name: 'forward; drop', elements: [] },
      { command: 'set', name: 'bypass4', elements: ['1.2.3.4 }; flush ruleset'] },
      { command: 'set', name: 'src_bypass4', elements: [] },
      { command: 'apply', settings: { local_port: 'x' } },
      { command: 'apply', settings: { nobody_knows: 1 } },
      { command: 'status' },
    );
    const errors = answers.map(({ error }) => error);
    for (const [i, pattern] of [
      /expected a line of JSON/,
      /command/,
      /command/,
      /set "forward; drop": expected bypass/,
      /"1\.2\.3\.4 \}; flush ruleset" is no address/,
      /set "src_bypass4": expected/,
      /key "local_port": expected a port/,
      /nobody_knows/,
    ].entries()) {
      assert.match(String(errors[i]), pattern);
    }
    assert.deepEqual([answers[8]!['ok'], answers[8]!['pid']], [true, holder!.pid]);
    assert.equal(await bed.tcp(bed.client, target4), proxied(target4));
    for (const one of [...silent, flood]) one.destroy();
  });

  it('the addresses of servers with names stay current, and the last ones stay when names have no answer', async () => {
    // `ip netns exec` lays these over the machine's own.
    const folder = `/etc/netns/${bed.router.name}`;
    const hosts = (text: string) => writeFileSync(join(folder, 'hosts'), text);
    mkdirSync(folder, { recursive: true });
    try {
      writeFileSync(join(folder, 'resolv.conf'), 'nameserver 127.0.0.1\noptions timeout:1 attempts:1\n');
      hosts('45.9.9.7 server.example\n');
      await hold('-s', 'server.example');
      const addresses = async () => (await nft('list', 'set', 'inet', table, 'bypass4')).said;
      assert.match(await addresses(), /45\.9\.9\.7/);
      hosts('45.9.9.9 server.example\n');
      await bed.nft.ok('refresh', instance, ...settings);
      assert.match(await addresses(), /45\.9\.9\.2, 45\.9\.9\.9 /);
      hosts('');
      const said = await bed.nft.run(['refresh', instance, ...settings]);
      assert.equal(said.status, 0);
      await holder!.waitForOutput(/WARN: .*server\.example/, startMs);
      assert.match(await addresses(), /45\.9\.9\.2, 45\.9\.9\.9 /);
      hosts('45.9.9.11 server.example\n');
      await holder!.waitForOutput(/INFO: servers: 45\.9\.9\.11, 45\.9\.9\.2/, startMs); // asked again by itself
      assert.match(await addresses(), /45\.9\.9\.2, 45\.9\.9\.11 /);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
