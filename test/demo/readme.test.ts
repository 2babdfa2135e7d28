// The README's commands, as they stand there but for the interface's and the server's names.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createTestbed, whyNoNetns, type Netns, type Testbed } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';

const repository = fileURLToPath(new URL('../../..', import.meta.url));
const readme = readFileSync(join(repository, 'README.md'), 'utf8');
const greeter = `require('net').createServer((s) => s.end('peer ' + s.remoteAddress)).listen(80, '::')`;
const visitor = `require('net').connect(80, process.argv[1]).on('error', (e) => console.log(e.code)).pipe(process.stdout)`;

describe('README', { skip: whyNoNetns() }, () => {
  const directory = mkdtempSync(join(tmpdir(), 'ss-redir-readme-'));
  const config = join(directory, 'config.json');
  let testbed: Testbed;

  before(async () => {
    testbed = await createTestbed('ssr-readme');
    writeFileSync(config, blocks('json')[0]!, { mode: 0o600 });
    await testbed.internet.start(process.execPath, ['-e', greeter], { listen: 80 });
    await start(testbed.internet, command('ss-server'), 8388);
  });
  after(async () => {
    await testbed.destroy();
    rmSync(directory, { recursive: true });
  });

  for (const [mode, file] of [
    ['REDIRECT', 'nft/redirect.nft'],
    ['TPROXY', 'nft/tproxy.nft'],
  ] as const) {
    it(`its commands for ${mode} proxy a client over IPv4 and IPv6`, async () => {
      const block = blocks('sh').find((one) => one.includes(file))!;
      const lines = block.trim().split('\n');
      const daemon = lines.pop()!;
      const rules = lines.filter((line) => line !== 'npm run setup'); // has been done, or this would not run
      await testbed.gateway.run('sh', ['-ec', rules.join('\n')], { cwd: repository });
      const redir = await start(testbed.gateway, daemon, 1080);
      assert.match(redir.output, new RegExp(`tcp ${mode.toLowerCase()} mode`));
      assert.equal(await visit('93.184.216.34'), 'peer ::ffff:93.184.216.34'); // not the client: by the proxy
      assert.equal(await visit('2606:2800:220:1::34'), 'peer 2606:2800:220:1::34');
      assert.equal(await visit('45.9.9.2'), 'peer ::ffff:192.168.50.2'); // the server itself: direct
      await redir.stop();
      assert.equal(await visit('93.184.216.34'), 'ECONNREFUSED');
    });
  }

  it('names both files that it points to, and the licence', () => {
    for (const [, path] of readme.matchAll(/\]\(([^)]+)\)/g)) {
      assert.ok(readFileSync(join(repository, path!)).length > 0, path);
    }
  });

  async function start(netns: Netns, line: string, listen: number): Promise<Service> {
    const script = `exec ${line.replace('config.json', config)}`;
    const service = await netns.start('sh', ['-c', script], { cwd: repository, listen });
    await service.waitForOutput(/listening at/);
    return service;
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

function command(program: string): string {
  const lines = blocks('sh').join('').split('\n');
  return lines.find((line) => line.includes(`${program}.js`))!;
}
