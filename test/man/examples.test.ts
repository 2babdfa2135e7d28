// Every example of the manual pages does what it says: see examples-boot.ts.
import { describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { testBooted, whyNotBooted } from '../helpers/booted.js';
import { scenarios } from './examples-boot.js';
import { skip } from './pages.js';

describe('examples of the manual pages', { skip: skip || whyNotBooted() }, () => {
  testBooted(fileURLToPath(new URL('examples-boot.js', import.meta.url)), scenarios);
});
