// The clock of ss-redir's host jumps while it runs: what is 2022 is refused and told of as long as it is wrong, and all is well
// when it is right again. Connections that stand go on: only their beginnings carry the time.
import assert from 'node:assert/strict';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Service } from '../../src/demo/service.js';
import { Echo } from '../helpers/echo.js';
import { remotes, UdpWorld, withUdp } from '../helpers/udp-world.js';
import { whySkipped } from '../helpers/world.js';

const method = '2022-blake3-aes-128-gcm';
const key = 'AAECAwQFBgcICQoLDA0ODw==';
const far = { host: remotes.ipv4.asked, port: 4000 };

/** libfaketime, wherever this architecture has it. */
function library(): string | undefined {
  return [
    '/usr/lib',
    ...(existsSync('/usr/lib') ? readdirSync('/usr/lib').map((name) => `/usr/lib/${name}`) : []),
  ]
    .map((folder) => join(folder, 'faketime/libfaketime.so.1'))
    .find((path) => existsSync(path));
}

describe(
  'jumps of the clock',
  { skip: whySkipped() || (library() === undefined && 'needs faketime') },
  () => {
    let udp: UdpWorld;
    let redir: Service;
    let server: Service;
    let file: string;
    before(async () => {
      udp = await UdpWorld.create('clock');
      file = join(udp.world.directory, 'clock');
      jump('+0');
      const config = { ...withUdp, method, password: key };
      // The timers go by the monotonic clock, which does not jump.
      const env = {
        LD_PRELOAD: library()!,
        FAKETIME_TIMESTAMP_FILE: file,
        FAKETIME_NO_CACHE: '1',
        FAKETIME_DONT_FAKE_MONOTONIC: '1',
      };
      ({ redir, server } = await udp.startRelay({ config, redir: { env } }));
    });
    after(() => udp?.destroy());

    function jump(by: string): void {
      writeFileSync(file, `${by}\n`);
    }

    for (const by of ['+45', '-45', '+86400']) {
      test(`by ${by} s and back, over TCP and UDP`, async () => {
        const remote = await udp.remote(far, 'echo');
        const client = await udp.client('ipv4');
        const old = await Echo.connect(udp.world);
        await old.echo('before');
        await client.ask(far, 'before');
        const logged = server.output.length;
        jump(by);
        await old.echo('on it goes');
        await assert.rejects(Echo.once(udp.world));
        await client.send(far, 'stale');
        await client.hearsNothing();
        assert.match(server.output.slice(logged), /clock/);
        jump('+0');
        await Echo.once(udp.world);
        await client.ask(far, 'after');
        await old.echo('to the end');
        await old.close();
        await remote.close();
        await client.close();
        assert.ok(redir.running && server.running);
      });
    }
  },
);
