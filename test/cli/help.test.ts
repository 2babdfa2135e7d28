import assert from 'node:assert/strict';
import { test } from 'node:test';
import { helpText } from '../../src/cli/help.js';

test('the help says by which option UDP is relayed, and that it comes by TPROXY whatever TCP uses', () => {
  assert.match(helpText('ss-redir', '1'), /UDP \(-u, always TPROXY\)/);
  assert.match(helpText('ss-server', '1'), /UDP \(-u\)/);
});
