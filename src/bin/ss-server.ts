#!/usr/bin/env node
import { run } from '../cli/run.js';

await run('ss-server');
