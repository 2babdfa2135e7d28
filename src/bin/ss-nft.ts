#!/usr/bin/env node
import { startNft } from '../cli/start.js';

await startNft();
