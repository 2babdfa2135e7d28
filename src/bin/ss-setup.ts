#!/usr/bin/env node
import { startSetup } from '../cli/start.js';

await startSetup();
