import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { plain, readPage } from '../man/pages.js';
import { withOptionTables } from '../../src/cli/readme.js';

const file = new URL('../../../README.md', import.meta.url);
const skip = existsSync(file) ? false : 'no README.md here';

test('README.md has the options of the option table; if not, run `npm run readme`', { skip }, () => {
  const readme = readFileSync(file, 'utf8');
  assert.equal(readme, withOptionTables(readme));
});

test('a README whose marks are missing or turned round is refused', () => {
  for (const text of ['', '<!-- options:begin -->', '<!-- options:end --><!-- options:begin -->']) {
    assert.throws(() => withOptionTables(text), /expected <!-- options:begin -->/);
  }
});

test('tables that are there already are replaced, and what stands around them is kept', () => {
  const once = withOptionTables('a\n<!-- options:begin -->\nold\n<!-- options:end -->\nz\n');
  assert.equal(withOptionTables(once), once);
  assert.match(once, /^a\n<!-- options:begin -->\n\n### ss-redir\n/);
  assert.match(once, /\n\n<!-- options:end -->\nz\n$/);
  assert.doesNotMatch(once, /^old$/m);
});

test('the commands that install are those of ss-redir(7)', { skip }, () => {
  const section = readFileSync(file, 'utf8')
    .split(/^## /m)
    .find((text) => text.startsWith('Installed, '))!;
  const [, block] = section.split(/^```(?:sh)?\n/m);
  const commands = block!
    .trim()
    .split('\n')
    .map((line) => line.replace(/ +#.*/, ''));
  const page = plain(readPage('ss-redir.7'));
  assert.ok(commands.length >= 5);
  for (const command of commands) assert.ok(page.includes(`\n${command}\n`), command);
});
