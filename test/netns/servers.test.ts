// Several servers in one INI file, each with a method, a password and a mode of its own: two of Debian's and one of ours.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { addresses } from '../../src/demo/netns.js';
import { remotes, UdpWorld } from '../helpers/udp-world.js';
import { originPorts, origins, redirPort, whySkipped } from '../helpers/world.js';

const psk = 'AAECAwQFBgcICQoLDA0ODw==';
const servers = {
  plain: { kind: 'debian', port: 8391, method: 'aes-256-gcm', password: 'a#b;c=d "e" \\' },
  other: { kind: 'debian', port: 8392, method: 'chacha20-ietf-poly1305', password: 'other' },
  new: { kind: 'ours', port: 8393, method: '2022-blake3-aes-128-gcm', password: psk },
} as const;
const names = Object.keys(servers) as (keyof typeof servers)[];

function sectionOf(name: keyof typeof servers, more = ''): string {
  const { port, method, password } = servers[name];
  return `[server ${name}]
address = ${addresses.internet.ipv4}
port = ${port}
method = ${method}
password = '${password}'   # ${name}
${more}
`;
}

const head = `# three servers
[redir]
local_port = ${redirPort}
mode = tcp_and_udp
tcp_tproxy = true
verbose = true
`;

/** How many connections, or sessions, the log gives to a server. */
function countBy(output: string, protocol: 'tcp' | 'udp', name: keyof typeof servers): number {
  const to = `by ${addresses.internet.ipv4}:${servers[name].port}`;
  const lines = output.split('\n').filter((line) => line.endsWith(to));
  return lines.filter((line) => line.includes(' udp: ') === (protocol === 'udp')).length;
}

describe('servers with methods and passwords of their own', { skip: whySkipped() }, () => {
  let udp: UdpWorld;
  before(async () => {
    udp = await UdpWorld.create('servers');
    for (const { kind, port, method, password } of Object.values(servers)) {
      const config = { server: '0.0.0.0', server_port: port, method, password, mode: 'tcp_and_udp' };
      await udp.world.startServer(kind, { config });
    }
  });
  after(() => udp?.destroy());

  async function startRedir(file: string) {
    const { world } = udp;
    const path = world.writeConfig(file);
    return world.startRedir('ours', 'tproxy', { config: { mode: 'tcp_and_udp' }, file: path });
  }

  async function echo(text: string): Promise<void> {
    const client = await udp.world.client.connect({ host: origins.ipv4, port: originPorts.echo });
    await client.write(text);
    assert.equal((await client.wait({ bytes: text.length }, 3000)).data.toString(), text);
    await client.destroy();
  }

  test('every one of them carries connections and datagrams, each in its own way', async (t) => {
    const redir = await startRedir(head + names.map((name) => sectionOf(name)).join(''));
    t.after(() => udp.world.stop(redir));
    for (let i = 0; i < 6; i++) await echo(`connection ${i} ${'x'.repeat(20_000)}`);
    const far = { host: remotes.ipv4.asked, port: 4000 };
    const remote = await udp.remote(far, 'echo');
    t.after(() => remote.close());
    for (let i = 0; i < 6; i++) {
      const client = await udp.client('ipv4');
      assert.equal(await client.ask(far, `session ${i}`), `session ${i} from ${far.host} ${far.port}`);
    }
    for (const protocol of ['tcp', 'udp'] as const) {
      for (const name of names)
        assert.equal(countBy(redir.output, protocol, name), 2, `${protocol} by ${name}`);
    }
    assert.match(
      redir.output,
      /initializing ciphers\.\.\. aes-256-gcm, chacha20-ietf-poly1305, 2022-blake3-aes-128-gcm/,
    );
  });

  test('a server whose mode is without a protocol gets none of it', async (t) => {
    const redir = await startRedir(
      head +
        sectionOf('plain', 'mode = tcp_only') +
        sectionOf('other', 'mode = udp_only') +
        sectionOf('new', 'disabled = true'),
    );
    t.after(() => udp.world.stop(redir));
    const far = { host: remotes.ipv4.asked, port: 4001 };
    const remote = await udp.remote(far, 'echo');
    t.after(() => remote.close());
    for (let i = 0; i < 3; i++) {
      await echo(`connection ${i}`);
      const client = await udp.client('ipv4');
      assert.equal(await client.ask(far, `session ${i}`), `session ${i} from ${far.host} ${far.port}`);
    }
    const counts = names.map((name) => [
      countBy(redir.output, 'tcp', name),
      countBy(redir.output, 'udp', name),
    ]);
    assert.deepEqual(counts, [
      [3, 0],
      [0, 3],
      [0, 0],
    ]);
  });
});
