// The units under a real systemd: it is booted once, and each scenario of boot.ts that it ran there is a test here.
import { describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { testBooted, whyNotBooted } from '../helpers/booted.js';
import { findCommand } from '../helpers/packages.js';
import { scenarios } from './boot.js';

const program = fileURLToPath(new URL('boot.js', import.meta.url));
const withoutDebians = findCommand('ss-redir') === undefined && 'needs shadowsocks-libev';

describe('under a real systemd', { skip: whyNotBooted() || withoutDebians }, () => {
  testBooted(program, scenarios);
});
