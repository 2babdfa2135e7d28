// The manual pages against the option table, --help, the parser, the messages in the source, and the tools that print them.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { helpText } from '../../src/cli/help.js';
import { documentedOptions, manPages, withOptions } from '../../src/cli/man.js';
import { nftCommands } from '../../src/cli/nft-parse.js';
import { optionsOf, type Program } from '../../src/cli/options.js';
import { accept, tokenize } from '../../src/cli/parse.js';
import { UsageError } from '../../src/errors.js';
import { findCommand } from '../helpers/packages.js';
import { manFolder, optionsOfPage, pageFiles, plain, readPage, sectionOf, skip } from './pages.js';

describe('options', { skip }, () => {
  for (const [program, file] of manPages) {
    const page = skip === false ? readPage(file) : '';

    test(`${file} has the options of the option table; if not, run \`npm run man\``, () => {
      assert.equal(page, withOptions(page, program));
    });

    test(`${file}, \`${program} --help\` and the parser know the same options, with the same arguments`, () => {
      const inPage = optionsOfPage(page);
      const inHelp = helpText(program, '0')
        .split('\n')
        .flatMap((line, index, lines) => {
          const refused = /\[not in this version|^ +refused:/.test(lines[index + 1] ?? '');
          return /^  +-/.test(line) && !refused ? [line.trim()] : [];
        });
      assert.deepEqual(inPage, inHelp);
      const taken = optionsOf(program).filter(({ long, short, argument }) =>
        [`--${long}`, ...(short === undefined ? [] : [`-${short}`])].every((name) =>
          isTaken(program, [name, ...(argument === undefined ? [] : ['x'])]),
        ),
      );
      assert.deepEqual(inPage, taken.map(spelling));
    });
  }

  test('what a page adds to an option is kept, and refused when the option has gone', () => {
    const page = 'a\n.\\" options:begin\n.\\" options:end\nz\n';
    const once = withOptions(page, 'ss-server');
    assert.match(once, /^a\n\.\\" options:begin\n\.Bl -tag -width Ds\n\.It Fl s , Fl -server Ar HOST\n/);
    assert.match(once, /\n\.El\n\.\\" options:end\nz\n$/);
    const added = once.replace(
      /(\.It Fl p , [^]*?\.\\" more\n)([^]*)(\.El\n\.\\" options:end)/,
      '$1One more\nline.\n$2and a last one.\n$3',
    );
    assert.match(added, /One more\nline\.\n\.It/);
    assert.equal(withOptions(added, 'ss-server'), added);
    const gone = added.replace('Fl -server-port', 'Fl -server-harbour');
    assert.throws(() => withOptions(gone, 'ss-server'), /adds to --server-harbour, which is no option/);
  });

  test('a page whose marks are missing or turned round is refused', () => {
    for (const text of ['', '.\\" options:begin\n', '.\\" options:end\n.\\" options:begin\n']) {
      assert.throws(() => withOptions(text, 'ss-nft'), /expected \.\\" options:begin/);
    }
  });

  test('options that this version refuses are in no page', () => {
    const refused = optionsOf('ss-server').filter(({ later, refused: gone }) => later ?? gone);
    assert.ok(refused.length > 0);
    for (const option of refused) assert.ok(!documentedOptions('ss-server').includes(option), option.long);
  });
});

test('ss-nft.8 describes the commands that ss-nft has, and no other', { skip }, () => {
  const described = [...sectionOf(readPage('ss-nft.8'), 'COMMANDS').matchAll(/^\.It Cm (\S+)/gm)];
  assert.deepEqual(
    described.map(([, command]) => command),
    [...nftCommands],
  );
});

describe('printing', { skip }, () => {
  for (const file of pageFiles) {
    const missing = ['mandoc', 'man', 'groff'].filter((tool) => findCommand(tool) === undefined);
    const skipTools = missing.length > 0 && `not installed: ${missing.join(', ')}`;

    test(`mandoc -T lint finds nothing in ${file}`, { skip: skipTools }, () => {
      const { stdout } = spawnSync('mandoc', ['-T', 'lint', `${manFolder}${file}`], { encoding: 'utf8' });
      // It looks for referenced pages among those installed here: the test below looks among ours.
      const found = stdout
        .split('\n')
        .filter((line) => line !== '' && !line.includes('referenced manual not found'));
      assert.deepEqual(found, []);
    });

    test(`man --warnings has none for ${file}`, { skip: skipTools }, () => {
      const { stdout, stderr, status } = spawnSync(
        'man',
        ['--warnings', '-E', 'UTF-8', '-l', '-Tutf8', '-Z', `${manFolder}${file}`],
        { encoding: 'utf8', env: { ...process.env, LC_ALL: 'C.UTF-8', MANROFFSEQ: '', MANWIDTH: '80' } },
      );
      assert.equal(stderr, '');
      assert.equal(status, 0);
      assert.ok(stdout.length > 1000);
    });
  }
});

test('every page of ours that a page refers to is there', { skip }, () => {
  for (const file of pageFiles) {
    for (const [, name, section] of readPage(file).matchAll(/^\.(?:It )?Xr (ss-\S+) (\d)/gm))
      assert.ok(pageFiles.includes(`${name}.${section}`), `${file}: ${name}(${section})`);
  }
});

describe('DIAGNOSTICS', { skip }, () => {
  const source = readSource(fileURLToPath(new URL('../../../src/', import.meta.url)));

  for (const file of pageFiles) {
    const messages = [...sectionOf(readPage(file), 'DIAGNOSTICS').matchAll(/^\.It (.+)$/gm)].map(([, text]) =>
      plain(text!),
    );
    for (const message of messages) {
      test(`${file}: a message is like "${message}"`, () => {
        // Words in capitals stand for what differs.
        const parts = message.split(/\b[A-Z]{4,}\b/).map((part) => part.trim());
        const words = parts.filter((part) => part.length >= 6);
        assert.ok(words.length > 0, 'nothing but placeholders');
        for (const part of words) assert.ok(source.includes(part), `no message in src/ has "${part}"`);
      });
    }
  }
});

function readSource(folder: string): string {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  );
  return files.map((name) => readFileSync(join(folder, name), 'utf8')).join('\n');
}

function spelling({ short, long, argument }: { short?: string; long: string; argument?: string }): string {
  const names = short === undefined ? `--${long}` : `-${short}, --${long}`;
  return argument === undefined ? names : `${names} ${argument}`;
}

function isTaken(program: Program, argv: readonly string[]): boolean {
  const known = optionsOf(program);
  try {
    for (const token of tokenize(known, argv)) {
      if (token.kind === 'option') accept(program, known, token.name, token.rawName, token.value);
    }
    return true;
  } catch (error) {
    if (error instanceof UsageError) return false;
    throw error;
  }
}
