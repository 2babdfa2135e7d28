/** What every connection of one worker shares. */
import type { AeadBackend } from '../crypto/aead.js';
import type { Credentials } from '../crypto/credentials.js';
import type { Method } from '../crypto/methods.js';
import type { BufferPool } from '../engine/pool.js';
import type { Reactor } from '../engine/reactor.js';
import type { Scatter } from '../linux/scatter.js';
import type { ConnectOptions } from '../linux/socket.js';
import type { WorkerLog } from './worker-log.js';
import type { Names } from './names.js';
import type { Limits } from './limits.js';
import type { UserCounters } from './user-counters.js';

export interface Timeouts {
  /** For all attempts to reach the server or the target together. */
  connectMs: number;
  /** A pair with one direction ended and nothing moving in the other. */
  halfOpenMs: number;
  /** A pair with both directions open and nothing moving. */
  idleMs: number;
}

export interface RelayContext {
  reactor: Reactor;
  /** Blocks for a batch of records. */
  blocks: BufferPool;
  /** Blocks for an incomplete record, one for every connection (rest.ts). */
  rests: BufferPool;
  scatter: Scatter;
  backend: AeadBackend;
  method: Method;
  credentials: Credentials;
  /** ss-server with users: what each of them moves. */
  userCounters: UserCounters | undefined;
  timeouts: Timeouts;
  connectOptions: ConnectOptions;
  /** Keep TCP_NODELAY after the first response, where libev would clear it. */
  noDelay: boolean;
  limits: Limits;
  names: Names;
  log: WorkerLog;
}
