// The same text in both configurations must give the same key as in Debian's ss-server, however JSON spells it (R60).
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { addresses } from '../../src/demo/netns.js';
import { originPorts, origins, redirPort, serverPort, whySkipped, World } from '../helpers/world.js';

const spellings: [what: string, json: string, text: string][] = [
  ['escapes and a surrogate pair', String.raw`"\u00e9\"\\\/\ud83d\ude00"`, 'é"\\/😀'],
  ['the same bytes raw', String.raw`"é\"\\/😀"`, 'é"\\/😀'],
  ['a number', '12345678', '12345678'],
  ['a negative number', '-7', '-7'],
  ['spaces around', '" x "', ' x '],
  ['control characters, escaped', String.raw`"a\tb\nc\b"`, 'a\tb\nc\b'],
  ['what looks like comments', '"pass//word a#b /*x*/"', 'pass//word a#b /*x*/'],
  ['4,000 characters', `"${'pä'.repeat(2000)}"`, 'pä'.repeat(2000)],
];

describe('passwords', { skip: whySkipped() }, () => {
  let world: World;
  before(async () => {
    world = await World.create('pass');
  });
  after(() => world?.destroy());
  afterEach(() => world.reset());

  const configOf = (passwordJson: string, server: string) =>
    world.writeConfig(`{"server": "${server}", "server_port": ${serverPort}, "local_address": "::",
      "local_port": ${redirPort}, "timeout": 60, "method": "aes-256-gcm", "password": ${passwordJson}}`);

  async function isAnswered(): Promise<void> {
    const client = await world.client.connect({ host: origins.ipv4, port: originPorts.echo });
    await client.write('hello');
    assert.equal((await client.wait({ bytes: 5 }, 3000)).data.toString(), 'hello');
  }

  for (const [what, json, text] of spellings) {
    test(`${what}: in both files, and behind -k of ours`, async () => {
      await world.startServer('debian', { file: configOf(json, '0.0.0.0') });
      const byFile = await world.startRedir('ours', 'redirect', {
        file: configOf(json, addresses.internet.ipv4),
      });
      await isAnswered();
      await world.stop(byFile);

      const byOption = await world.startRedir('ours', 'redirect', {
        file: configOf('"another"', addresses.internet.ipv4),
        args: ['-k', text],
      });
      await isAnswered();
      assert.ok(!byOption.output.includes(text), 'the password is in the log');
    });
  }

  test('an empty password', async () => {
    await world.startServer('debian', { file: configOf('""', '0.0.0.0') });
    await world.startRedir('ours', 'redirect', { file: configOf('""', addresses.internet.ipv4) });
    await isAnswered();
  });
});
