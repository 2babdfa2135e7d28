// SIGHUP: other servers, keys, limits and log level for what begins from then on, while connections and sessions go on.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { addresses } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { PeerSealer, targetAddress } from '../helpers/aead-peer.js';
import { Echo } from '../helpers/echo.js';
import { UdpWire } from '../helpers/udp-sockets.js';
import { remotes, UdpWorld, withUdp } from '../helpers/udp-world.js';
import { originPorts, origins, redirPort, whySkipped } from '../helpers/world.js';

const here = addresses.internet.ipv4;
const ports = { one: 8391, two: 8392 };
const far = { host: remotes.ipv4.asked, port: 4000 };
const identityKey = 'AAECAwQFBgcICQoLDA0ODw==';
const userKeys = { ann: 'EBESExQVFhcYGRobHB0eHw==', bob: 'ICEiIyQlJicoKSorLC0uLw==' };

describe('reload by SIGHUP', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  before(async () => {
    udp = await UdpWorld.create('reload');
  });
  afterEach(() => udp.reset());
  after(() => udp?.destroy());

  const base = {
    local_address: '::',
    local_port: redirPort,
    method: 'aes-256-gcm',
    verbose: true,
    ...withUdp,
  };

  class Program {
    readonly file: string;
    readonly service: Service;

    constructor(file: string, service: Service) {
      this.file = file;
      this.service = service;
    }

    /** Resolves with what it says of the reload. */
    async reload(config: object | string): Promise<string> {
      writeFileSync(this.file, typeof config === 'string' ? config : JSON.stringify(config));
      const earlier = this.service.output.length;
      this.service.kill('SIGHUP');
      const said = () => this.service.output.slice(earlier);
      assert.ok(await udp.world.settles(() => / reloaded: |not reloaded, /.test(said()), 10_000), said());
      await delay(20); // its last lines
      return said();
    }
  }

  async function startRedir(config: object): Promise<Program> {
    const file = udp.world.writeConfig(JSON.stringify({ ...base, ...config }));
    const { mode = withUdp.mode } = config as { mode?: string };
    return new Program(file, await udp.startRedir({ file, config: { mode } }));
  }

  async function startServer(port: number, password: string, config: object = {}): Promise<Program> {
    const all = {
      server: '0.0.0.0',
      server_port: port,
      password,
      method: 'aes-256-gcm',
      ...withUdp,
      ...config,
    };
    const file = udp.world.writeConfig(JSON.stringify(all));
    return new Program(file, await udp.startServer({ file, config: { server_port: port } }));
  }

  const serverOf = (port: number, password: string, more: object = {}) => ({
    ...base,
    server: here,
    server_port: port,
    password,
    ...more,
  });

  const connect = () => Echo.connect(udp.world);
  const echoOnce = () => Echo.once(udp.world);

  const countBy = (program: Program, port: number) =>
    program.service.output.split('\n').filter((line) => line.endsWith(`by ${here}:${port}`)).length;

  test('ss-redir: a new server and password for new connections, while an old one goes on', async () => {
    await startServer(ports.one, 'one');
    await startServer(ports.two, 'two');
    const redir = await startRedir({ server: here, server_port: ports.one, password: 'one' });
    const old = await connect();
    await old.echo(`before ${'x'.repeat(50_000)}`);
    await redir.reload(serverOf(ports.two, 'two'));
    await old.echo(`after ${'y'.repeat(50_000)}`);
    const earlier = countBy(redir, ports.two);
    await echoOnce();
    assert.equal(countBy(redir, ports.two), earlier + 1);
    await old.echo(`and on ${'z'.repeat(50_000)}`);
    await old.close();
  });

  test('ss-redir: servers of their own methods and keys come and go', async () => {
    await startServer(ports.one, 'one');
    await startServer(ports.two, 'two', { method: 'chacha20-ietf-poly1305' });
    const both = (...passwords: string[]) => ({
      ...base,
      servers: [
        { address: here, port: ports.one, password: passwords[0], method: 'aes-256-gcm' },
        { address: here, port: ports.two, password: passwords[1], method: 'chacha20-ietf-poly1305' },
      ],
    });
    const redir = await startRedir(serverOf(ports.one, 'one'));
    await redir.reload(both('one', 'two'));
    for (let i = 0; i < 4; i++) await echoOnce();
    assert.ok(countBy(redir, ports.two) >= 2, redir.service.output);
    await redir.reload(serverOf(ports.two, 'two', { method: 'chacha20-ietf-poly1305' }));
    const ofOne = countBy(redir, ports.one);
    for (let i = 0; i < 4; i++) await echoOnce();
    assert.equal(countBy(redir, ports.one), ofOne);
  });

  test('ss-redir: a UDP session goes on when its server stays', async () => {
    await startServer(ports.one, 'one');
    await startServer(ports.two, 'two');
    const redir = await startRedir({ server: here, server_port: ports.one, password: 'one' });
    const remote = await udp.remote(far, 'mirror');
    const client = await udp.client('ipv4');
    const seen = await client.ask(far, 'before');
    const more = { address: here, port: ports.two, password: 'two', method: 'aes-256-gcm' };
    await redir.reload({
      ...base,
      servers: [{ address: here, port: ports.one, password: 'one', method: 'aes-256-gcm' }, more],
    });
    assert.equal(await client.ask(far, 'after'), seen, 'from the same port');
    await remote.close();
  });

  test('ss-redir: a UDP session ends when its server is spoken to with another key, or is no longer there', async () => {
    const server = await startServer(ports.one, 'one');
    await startServer(ports.two, 'two');
    const redir = await startRedir({ server: here, server_port: ports.one, password: 'one' });
    const remote = await udp.remote(far, 'mirror');
    const client = await udp.client('ipv4');
    await client.ask(far, 'before');
    await server.reload({
      server: '0.0.0.0',
      server_port: ports.one,
      password: 'new',
      method: 'aes-256-gcm',
      ...withUdp,
    });
    await redir.reload(serverOf(ports.one, 'new'));
    await client.ask(far, 'with the new key');
    await redir.reload(serverOf(ports.two, 'two'));
    await client.ask(far, 'by another server');
    await remote.close();
  });

  for (const [what, config, pattern] of [
    ['no JSON', '{ "server": ', /not reloaded, nothing is changed: .*\.json:1/],
    ['an unknown method', { method: 'rot13' }, /not reloaded, nothing is changed: .*rot13/],
    ['no server', { server: undefined }, /not reloaded, nothing is changed: .*server/],
    [
      'a name without an address',
      { server: 'nobody.invalid' },
      /not reloaded, nothing is changed: no server has an address/,
    ],
  ] as const) {
    test(`ss-redir: ${what} changes nothing and is told`, async () => {
      await startServer(ports.one, 'one');
      const redir = await startRedir({ server: here, server_port: ports.one, password: 'one' });
      const text =
        typeof config === 'string' ? config : JSON.stringify({ ...serverOf(ports.one, 'two'), ...config });
      assert.match(await redir.reload(text), pattern);
      await echoOnce();
      assert.match(await redir.reload(serverOf(ports.one, 'one')), / reloaded: /);
      await echoOnce();
    });
  }

  test('log level and limits change, and what needs a restart is named', async () => {
    await startServer(ports.one, 'one');
    const config = serverOf(ports.one, 'one', { max_connections: 50 });
    const redir = await startRedir(config);
    const said = await redir.reload({
      ...config,
      verbose: false,
      max_connections: 1,
      local_port: 4711,
      workers: 2,
    });
    assert.match(said, /a restart is needed for: local_port, workers; all else is in force/);
    const lines = redir.service.output.length;
    const first = await connect();
    await first.echo('first');
    assert.doesNotMatch(redir.service.output.slice(lines), /by 45\.9\.9\.2/, 'not verbose any more');
    const second = await connect(); // waits in the kernel
    const answered = second.echo('second');
    const early = await Promise.race([answered.then(() => 'answered'), delay(300).then(() => 'waiting')]);
    assert.equal(early, 'waiting');
    await first.close();
    await answered;
    assert.match(await redir.reload({ ...config, max_connections: 60 }), /max_connections above 50/);
    await second.close();
  });

  test('one reload after the other, and many at once, and it serves', async () => {
    await startServer(ports.one, 'one');
    const redir = await startRedir({ server: here, server_port: ports.one, password: 'one' });
    const old = await connect();
    for (let i = 0; i < 50; i++) redir.service.kill('SIGHUP');
    for (let i = 0; i < 10; i++) await old.echo(`${i} ${'x'.repeat(10_000)}`);
    await redir.reload(serverOf(ports.one, 'one'));
    await echoOnce();
    await old.close();
  });

  test('ss-server: another password, and what has been begun with the old one goes on', async () => {
    const server = await startServer(ports.one, 'one');
    const redir = await startRedir({ server: here, server_port: ports.one, password: 'one' });
    const old = await connect();
    await old.echo('before');
    const next = { server: '0.0.0.0', server_port: ports.one, method: 'aes-256-gcm', ...withUdp };
    await server.reload({ ...next, password: 'two' });
    await old.echo('after');
    await assert.rejects(echoOnce());
    await redir.reload(serverOf(ports.one, 'two'));
    await echoOnce();
    await old.echo('and on');
    await old.close();
    const remote = await udp.remote(far, 'echo');
    const client = await udp.client('ipv4');
    await client.ask(far, 'by UDP as well');
    await remote.close();
  });

  test('ss-server: users come and go; the session of one who stays keeps its port, one who has gone is refused', async () => {
    const method = '2022-blake3-aes-128-gcm';
    const users = (...names: (keyof typeof userKeys)[]) =>
      names.map((name) => ({ name, password: userKeys[name] }));
    const config = { server: '0.0.0.0', server_port: ports.one, password: identityKey, method, ...withUdp };
    const server = await startServer(ports.one, identityKey, { method, users: users('ann', 'bob') });
    const redir = await startRedir(serverOf(ports.one, `${identityKey}:${userKeys.bob}`, { method }));
    const remote = await udp.remote(far, 'mirror');
    const client = await udp.client('ipv4');
    const seen = await client.ask(far, 'before');
    await server.reload({ ...config, users: users('bob') }); // another number
    assert.equal(await client.ask(far, 'after'), seen, 'from the same port');
    await echoOnce();
    server.service.kill('SIGUSR1');
    await server.service.waitForOutput(/user bob: [2-9] connections/);
    await server.reload({ ...config, users: users('ann') });
    await assert.rejects(echoOnce());
    await udp.hasDropped(server.service, {});
    await client.send(far, 'refused');
    await udp.hasDropped(server.service, { forged: 1 });
    await redir.reload(serverOf(ports.one, `${identityKey}:${userKeys.ann}`, { method }));
    await echoOnce();
    await remote.close();
  });

  test('ss-server: a 2022 packet of before is a replay, also when its user has been away meanwhile', async () => {
    const method = '2022-blake3-aes-128-gcm';
    const users = (...names: (keyof typeof userKeys)[]) =>
      names.map((name) => ({ name, password: userKeys[name] }));
    const config = { server: '0.0.0.0', server_port: ports.one, password: identityKey, method, ...withUdp };
    const server = await startServer(ports.one, identityKey, { method, users: users('ann', 'bob') });
    const wireAt = { host: here, port: 8380 };
    const wire = await UdpWire.open(udp.world.origin, wireAt, { host: here, port: ports.one });
    await startRedir(serverOf(wireAt.port, `${identityKey}:${userKeys.bob}`, { method, mode: 'udp_only' }));
    const remote = await udp.remote(far, 'mirror');
    const client = await udp.client('ipv4');
    await client.ask(far, 'captured');
    const captured = await wire.next('up');
    await server.reload({ ...config, users: users('ann') });
    await delay(1100); // stamps are whole seconds
    await server.reload({ ...config, users: users('ann', 'bob') });
    await remote.take(1);
    await wire.inject({ direction: 'up', data: captured.data, client: captured.client });
    assert.deepEqual(await remote.take(1, 300), []);
    await udp.hasDropped(server.service, { repeated: 1 });
    await remote.close();
  });

  test('ss-server: a stream that has been seen is a replay after a reload as well', async () => {
    const server = await startServer(ports.one, 'one');
    const sealer = new PeerSealer('aes-256-gcm', 'one');
    const port = originPorts.manual;
    const request = Buffer.concat([targetAddress(origins.ipv4, port), Buffer.from('first flight')]);
    const flight = Buffer.concat([sealer.salt, sealer.chunk(request)]);
    const once = await udp.world.client.connect({ host: here, port: ports.one });
    await once.write(flight);
    const origin = await udp.world.origin.accept(port);
    assert.equal((await origin.wait({ bytes: 12 })).data.toString(), 'first flight');
    const same = {
      server: '0.0.0.0',
      server_port: ports.one,
      password: 'one',
      method: 'aes-256-gcm',
      ...withUdp,
    };
    await server.reload({ ...same, verbose: true });
    const again = await udp.world.client.connect({ host: here, port: ports.one });
    await again.write(flight);
    await assert.rejects(udp.world.origin.accept(port, 500), /nobody connected/);
    await server.service.waitForOutput(/failed to handshake with .*(?:repeated|seen)/);
    for (const socket of [once, again, origin]) await socket.destroy();
  });
});
