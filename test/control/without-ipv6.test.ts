// A kernel without IPv6 at all (ipv6.disable=1): both commands serve IPv4, TCP and UDP.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { close } from '../../src/linux/libc.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { listenTcp, localEndpoint } from '../../src/linux/socket.js';

const preload = new URL('without-ipv6.js', import.meta.url).href;
const common = ['-k', 'correct horse', '-m', 'aes-256-gcm', '-u'];
const skip = process.getuid!() === 0 ? false : 'IP_TRANSPARENT needs root';

for (const command of ['ss-server', 'ss-redir'] as const) {
  test(`${command} at \`::\` serves IPv4 where the kernel has no IPv6, and says so`, { skip }, async () => {
    const port = String(freePort());
    const args =
      command === 'ss-server' ? ['-p', port] : ['-s', '127.0.0.1', '-p', '1', '-b', '::', '-l', port, '-T'];
    const program = fileURLToPath(new URL(`../../src/bin/${command}.js`, import.meta.url));
    const child = spawn(process.execPath, ['--import', preload, program, ...args, ...common], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (output += data));
    try {
      await waitFor(
        () => /UDP relay enabled/.test(output),
        () => output,
      );
      assert.match(
        output,
        new RegExp(`no IPv6: listening at 0\\.0\\.0\\.0:${port} in place of \\[::\\]:${port}`),
      );
      const client = connect(Number(port), '127.0.0.1');
      await once(client, 'connect');
      client.destroy();
      const refused = createSocket('udp4');
      refused.connect(Number(port), '127.0.0.1');
      await once(refused, 'connect');
      refused.on('error', () => assert.fail('nobody listens on UDP')); // ECONNREFUSED
      refused.send('x');
      await new Promise((resolve) => setTimeout(resolve, 100));
      refused.close();
    } finally {
      child.kill();
      await once(child, 'exit');
    }
  });
}

function freePort(): number {
  const fd = listenTcp(Endpoint.parse('127.0.0.1', 0)!);
  const { port } = localEndpoint(fd)!;
  close(fd);
  return port;
}

async function waitFor(done: () => boolean, describe: () => string): Promise<void> {
  const untilMs = performance.now() + 15_000;
  while (!done()) {
    assert.ok(performance.now() < untilMs, describe());
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
