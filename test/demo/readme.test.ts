// The README's commands, as they stand there but for the interface's and the server's names.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createTestbed, whyNoNetns, type Netns, type Testbed } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { removeRules } from '../../src/nft/apply.js';
import { Agent } from '../helpers/agents.js';
import { UdpSocket } from '../helpers/udp-sockets.js';

const repository = fileURLToPath(new URL('../../..', import.meta.url));
const readme = readFileSync(join(repository, 'README.md'), 'utf8');
const greeter = `require('net').createServer((s) => s.end('peer ' + s.remoteAddress)).listen(80, '::')`;
const visitor = `require('net').connect(80, process.argv[1]).on('error', (e) => console.log(e.code)).setTimeout(1500, function () { this.destroy({ code: 'ETIMEDOUT' }); }).pipe(process.stdout)`;

describe('README', { skip: whyNoNetns() }, () => {
  const directory = mkdtempSync(join(tmpdir(), 'ss-redir-readme-'));
  let testbed: Testbed;
  let agents: Agent[];
  let client: Agent;
  let server: Service;

  before(async () => {
    testbed = await createTestbed('ssr-readme');
    await testbed.internet.start(process.execPath, ['-e', greeter], { listen: 80 });
    client = new Agent(testbed.client.name);
    const internet = new Agent(testbed.internet.name);
    agents = [client, internet];
    for (const host of ['93.184.216.34', '2606:2800:220:1::34'])
      await UdpSocket.open(internet, { host, port: 53, behaviour: 'mirror' });
    server = await start(testbed.internet, command('ss-server'), 8388);
  });
  after(async () => {
    await Promise.all(agents.map((agent) => agent.stop()));
    await testbed.destroy();
    rmSync(directory, { recursive: true });
  });

  it('its commands for REDIRECT proxy TCP of a client over IPv4 and IPv6', async () => {
    const redir = await follow('nft/redirect.nft');
    assert.match(redir.output, /tcp redirect mode/);
    await assertProxied();
    assert.equal(await ask('93.184.216.34'), '192.168.50.2'); // UDP is forwarded as before
    await redir.stop();
    assert.equal(await visit('93.184.216.34'), 'ECONNREFUSED');
    await removeRules((name, args) => testbed.gateway.run(name, args));
  });

  it('its commands for TPROXY proxy TCP and UDP, behind a firewall that drops by default too', async () => {
    const redir = await follow('nft/tproxy.nft');
    assert.match(redir.output, /tcp tproxy mode/);
    await assertProxied();
    await assertUdpProxied();
    await testbed.gateway.run('nft', ['-f', '-'], { input: firewall(['', '']) });
    assert.equal(await visit('93.184.216.34'), 'ETIMEDOUT');
    await testbed.gateway.run('nft', ['-f', '-'], { input: firewall(expressions()) });
    await assertProxied();
    await assertUdpProxied();
    await testbed.gateway.run('nft', ['delete table inet firewall']);
    await redir.stop();
    assert.equal(await visit('93.184.216.34'), 'ECONNREFUSED');
  });

  it('its configurations with users work, and SIGUSR1 tells what each has used', async () => {
    await server.stop();
    server = await start(testbed.internet, command('ss-server'), 8388, 1);
    const redir = await start(testbed.gateway, daemon('nft/tproxy.nft'), 1080, 2);
    await assertProxied();
    assert.equal(await ask('93.184.216.34'), '93.184.216.34');
    server.kill('SIGUSR1');
    await server.waitForOutput(/user anna: 3 connections, [1-9]\d* bytes up, [1-9]\d* bytes down/); // one of them by UDP
    await server.waitForOutput(/user ben: 0 connections, 0 bytes up, 0 bytes down/);
    await redir.stop();
  });

  it('names both files that it points to, and the licence', () => {
    for (const [, path] of readme.matchAll(/\]\(([^)]+)\)/g)) {
      assert.ok(readFileSync(join(repository, path!)).length > 0, path);
    }
  });

  /** Types the commands of the block that loads this file; its last line is ss-redir. */
  async function follow(file: string): Promise<Service> {
    const lines = blockWith(file).slice(0, -1);
    const rules = lines.filter((line) => line !== 'npm run setup'); // has been done, or this would not run
    await testbed.gateway.run('sh', ['-ec', rules.join('\n')], { cwd: repository });
    return start(testbed.gateway, daemon(file), 1080);
  }

  /** @param example which of the README's configurations. */
  async function start(netns: Netns, line: string, listen: number, example = 0): Promise<Service> {
    const config = join(directory, `${example}.json`);
    writeFileSync(config, blocks('json')[example]!, { mode: 0o600 });
    const script = `exec ${line.replace('config.json', config)}`;
    const service = await netns.start('sh', ['-c', script], { cwd: repository, listen });
    await service.waitForOutput(/listening at/);
    return service;
  }

  async function assertProxied(): Promise<void> {
    assert.equal(await visit('93.184.216.34'), 'peer ::ffff:93.184.216.34'); // not the client: by the proxy
    assert.equal(await visit('2606:2800:220:1::34'), 'peer 2606:2800:220:1::34');
    assert.equal(await visit('45.9.9.2'), 'peer ::ffff:192.168.50.2'); // the server itself: direct
  }

  async function assertUdpProxied(): Promise<void> {
    for (const host of ['93.184.216.34', '2606:2800:220:1::34']) assert.equal(await ask(host), host);
  }

  /** Whom the far end saw a datagram come from. */
  async function ask(host: string): Promise<string | undefined> {
    const socket = await UdpSocket.open(client, { host: host.includes(':') ? '::' : '0.0.0.0' });
    const answer = await socket.ask({ host, port: 53 }, 'who am I');
    return answer.split(' ')[0];
  }

  async function visit(host: string): Promise<string> {
    return (await testbed.client.run(process.execPath, ['-e', visitor, host])).stdout;
  }
});

function blocks(language: string): string[] {
  const found = readme.matchAll(new RegExp(`\`\`\`${language}\\n([^]*?)\`\`\``, 'g'));
  return [...found].map(([, text]) =>
    text!.replaceAll('br-lan', 'l0').replaceAll('198.51.100.7', '45.9.9.2'),
  );
}

function blockWith(file: string): string[] {
  const block = blocks('sh').find((one) => one.includes(file))!;
  return block.trim().split('\n');
}

function daemon(file: string): string {
  return blockWith(file).at(-1)!;
}

/** What it says a firewall must accept: in input, and in output. */
function expressions(): string[] {
  return [...readme.matchAll(/`(meta mark & 0x\d+ != 0)`/g)].map(([, expression]) => `${expression} accept`);
}

function firewall([input, output]: string[]): string {
  return `
    add table inet firewall
    delete table inet firewall
    table inet firewall {
      chain input {
        type filter hook input priority 5; policy drop;
        ct state established,related accept
        meta l4proto ipv6-icmp accept
        ${input}
      }
      chain output {
        type filter hook output priority 5; policy drop;
        ct state established,related accept
        meta l4proto ipv6-icmp accept
        ${output}
      }
    }`;
}

function command(program: string): string {
  const lines = blocks('sh').join('').split('\n');
  return lines.find((line) => line.includes(`${program}.js`))!;
}
