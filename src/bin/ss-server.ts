#!/usr/bin/env node
import { start } from '../cli/start.js';

await start('ss-server');
