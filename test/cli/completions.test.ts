// The completions, asked of the shells themselves: all that the option table has, and nothing else.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { documentedOptions } from '../../src/cli/man.js';
import { nftCommands } from '../../src/cli/nft-parse.js';
import { type Program, optionsOf } from '../../src/cli/options.js';
import { setupCommands } from '../../src/cli/setup-parse.js';
import { methodNames } from '../../src/crypto/methods.js';
import { findCommand } from '../helpers/packages.js';
import { CompletingShells } from '../helpers/shells.js';

const programs = ['ss-redir', 'ss-server', 'ss-nft', 'ss-setup'] as const;

for (const shell of ['bash', 'zsh', 'fish'] as const) {
  describe(`completion for ${shell}`, { skip: findCommand(shell) ? false : `needs ${shell}` }, () => {
    let folder: string;
    const shells = new Map<Program, CompletingShells>();
    before(() => {
      folder = mkdtempSync(join(tmpdir(), 'ss-redir-test-'));
      for (const program of programs) shells.set(program, new CompletingShells(folder, program));
      mkdirSync(join(folder, 'place'));
      writeFileSync(join(folder, 'plan.conf'), '');
    });
    after(() => rmSync(folder, { recursive: true, force: true }));
    const offered = (program: Program, ...words: string[]) => shells.get(program)!.offered(shell, ...words);

    for (const program of programs) {
      test(`${program}: every option that is not refused is offered, and no other`, () => {
        const names = documentedOptions(program).flatMap(({ short, long }) =>
          short === undefined ? [`--${long}`] : [`-${short}`, `--${long}`],
        );
        assert.deepEqual(
          offered(program, '-').map((name) => name.replace(/=$/, '')),
          names.toSorted(),
        );
      });

      test(`${program}: what follows an option that takes an argument is no option and no command`, () => {
        const others = new Set<string>([...nftCommands, ...setupCommands]);
        // fish offers options wherever there is a dash.
        const typed = shell === 'fish' ? '' : '-';
        for (const { long, argument } of documentedOptions(program)) {
          if (argument === undefined) continue;
          const offers = offered(program, `--${long}`, typed);
          const wrong = offers.filter((offer) => offer.startsWith('-') || others.has(offer));
          assert.deepEqual(wrong, [], long);
        }
      });
    }

    test('words where there are only these', () => {
      for (const option of ['-m', '--method'])
        assert.deepEqual(offered('ss-redir', option, ''), methodNames.toSorted());
      assert.deepEqual(offered('ss-nft', '--src-default', ''), ['bypass', 'checkdst', 'forward']);
      assert.deepEqual(offered('ss-nft', '--dst-default', ''), ['bypass', 'forward']);
      assert.deepEqual(offered('ss-nft', '--fail', ''), ['closed', 'open']);
      assert.deepEqual(offered('ss-server', '--workers', ''), ['auto']);
      const afterEquals = offered('ss-server', '--method=2022-blake3-c').map((word) =>
        word.replace(/^--method=/, ''),
      );
      assert.deepEqual(afterEquals, ['2022-blake3-chacha20-poly1305']);
    });

    test('files, directories, users and interfaces where they belong', () => {
      assert.deepEqual(offered('ss-redir', '-c', 'pl').map(withoutSlash), ['place', 'plan.conf']);
      assert.deepEqual(offered('ss-nft', '--dst-bypass-file', 'plan'), ['plan.conf']);
      assert.deepEqual(offered('ss-setup', '--prefix', 'pl').map(withoutSlash), ['place']);
      assert.deepEqual(offered('ss-redir', '-a', 'roo'), ['root']);
      const interfaces = offered('ss-nft', '-I', '');
      for (const name of Object.keys(networkInterfaces())) assert.ok(interfaces.includes(name), name);
      // Of an address nobody knows anything, least of all that it is a file.
      for (const program of ['ss-redir', 'ss-nft'] as const)
        assert.deepEqual(offered(program, '-s', 'pl'), []);
    });

    test('commands, and behind them no second one', () => {
      assert.deepEqual(offered('ss-nft', ''), nftCommands.toSorted());
      assert.deepEqual(offered('ss-setup', ''), setupCommands.toSorted());
      assert.deepEqual(offered('ss-setup', 'remove', 'i'), []);
      assert.deepEqual(offered('ss-nft', '-I', 'lo', 'dow'), ['down']);
      assert.deepEqual(offered('ss-redir', 'pl'), []);
    });

    test('what is refused is not offered', () => {
      const refused = optionsOf('ss-server').filter(({ later, refused: gone }) => later ?? gone);
      assert.ok(refused.length > 0);
      for (const { long } of refused) assert.deepEqual(offered('ss-server', `--${long}`), [], long);
    });
  });
}

function withoutSlash(name: string): string {
  return name.replace(/\/$/, '');
}
