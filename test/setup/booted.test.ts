// From bare Debian to a working gateway by the page ss-redir(7), and back: see boot.ts.
import { describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { testBooted, whyNotBooted } from '../helpers/booted.js';
import { scenarios } from './boot.js';

describe('ss-setup under a real systemd', { skip: whyNotBooted() }, () => {
  testBooted(fileURLToPath(new URL('boot.js', import.meta.url)), scenarios);
});
