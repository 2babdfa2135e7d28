import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { requireRoot, requireTools } from '../../src/demo/needs.js';

describe('what the demo needs', () => {
  const path = process.env['PATH'];
  const getuid = process.getuid;
  let folder: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'ss-redir-needs-'));
    process.env['PATH'] = folder;
  });
  afterEach(() => {
    process.env['PATH'] = path;
    if (getuid) process.getuid = getuid;
    rmSync(folder, { recursive: true });
  });

  const put = (command: string, script = '') => {
    writeFileSync(join(folder, command), `#!/bin/sh\n${script}\n`);
    chmodSync(join(folder, command), 0o755);
  };
  const log = () => readFileSync(join(folder, 'log'), 'utf8').trim().split('\n');

  it('without root it says in one line how to start it', () => {
    process.getuid = () => 1000;
    assert.throws(requireRoot, { message: 'needs root, to make network namespaces: sudo npm start' });
  });

  it('with both tools there it installs nothing', async () => {
    put('nft');
    put('ip');
    put('apt-get', 'exit 1');
    await requireTools(() => assert.fail('nothing to say'));
  });

  it('on a Debian-like system it says what is missing and installs just that', async () => {
    put('ip');
    put('apt-get', `echo "$*" >> ${join(folder, 'log')}`);
    const said: string[] = [];
    await requireTools((line) => said.push(line));
    assert.deepEqual(said, ['Needs nftables: installing with apt-get']);
    assert.deepEqual(log(), ['install -y -q --no-install-recommends nftables']);
  });

  it('fetches the package lists only when the first attempt fails', async () => {
    put(
      'apt-get',
      `echo "$*" >> ${join(folder, 'log')}; [ -e ${folder}/lists ] || { : > ${folder}/lists; exit 100; }`,
    );
    await requireTools(() => undefined);
    assert.deepEqual(log(), [
      'install -y -q --no-install-recommends nftables iproute2',
      'update -q',
      'install -y -q --no-install-recommends nftables iproute2',
    ]);
  });

  it('elsewhere it names the command of that system', async () => {
    put('dnf');
    await assert.rejects(
      requireTools(() => undefined),
      { message: 'needs nftables and iproute2: install them with: dnf install nftables iproute' },
    );
  });

  it('on an unknown system it names what to install', async () => {
    await assert.rejects(
      requireTools(() => undefined),
      { message: 'needs nftables and iproute2: install them' },
    );
  });
});
