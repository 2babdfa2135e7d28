/**
 * The salts of the requests of the last minute, so that a recorded one sent again is refused (SIP022, section 3.1.5). One
 * memory for all workers and all users of a server, as replay.ts has it for the 2017 edition; but here a salt is kept whole,
 * so none is ever taken for another, and none is forgotten while a replay of its request could pass.
 *
 * That is 65 s: a clock may differ by 30 s either way, and timestamps are whole seconds, so a request that is stamped 30 s
 * ahead stays valid for up to 61 s.
 *
 * Salts stand in two generations. When the younger one began 65 s ago or more, the elder, whose salts are all older than
 * that, is emptied and becomes the younger. A generation that is full before its time refuses more: a salt that could not
 * be remembered could be used twice.
 */
import { createTableMemory, FingerprintTable, parts, type TableMemory } from './fingerprint-table.js';
import { type HashKey, halfSipHash, hashed, hashKey, wordAt } from './half-siphash.js';
import { SharedLock } from './shared-lock.js';

/** Ours, see above; the specification asks for 60. */
const keepMs = 65_000;

/**
 * Ours: requests in 65 s, 15,000 a second. Full, the two generations hold 160 MiB with salts of 32 bytes; they begin with
 * 42 KB.
 */
const defaultCapacity = 1_000_000;

export type SaltVerdict = 'new' | 'repeated' | 'full';

/** Can be given to another thread: every pool made from it is the same pool. */
export interface SaltPoolMemory {
  readonly seed: Uint8Array;
  readonly saltSize: number;
  readonly capacity: number;
  /** Three words: the lock, which table is the younger generation (0 or 1), how many salts that has. */
  readonly state: SharedArrayBuffer;
  /** One Float64: when the younger generation began, in ms. */
  readonly began: SharedArrayBuffer;
  readonly tables: readonly [TableMemory, TableMemory];
}

const youngAt = 1;
const sizeAt = 2;

/**
 * @param seed 8 random bytes, lest a client that has the key choose salts that crowd one place of a table.
 * @param capacity salts in one generation.
 */
export function createSaltPoolMemory(
  seed: Uint8Array,
  saltSize: number,
  capacity: number = defaultCapacity,
): SaltPoolMemory {
  const table = (): TableMemory => createTableMemory(slotsOfPart(capacity), saltSize / 4);
  return {
    seed,
    saltSize,
    capacity,
    state: new SharedArrayBuffer(3 * 4),
    began: new SharedArrayBuffer(8),
    tables: [table(), table()],
  };
}

/** Room, three quarters full, for a part's share and ten standard deviations more. */
function slotsOfPart(capacity: number): number {
  const share = capacity / parts;
  const most = share + 10 * Math.sqrt(share) + 10;
  return Math.max(8, 2 ** Math.ceil(Math.log2((most * 4) / 3)));
}

export class SaltPool {
  private readonly capacity: number;
  private readonly key: HashKey;
  private readonly lock: SharedLock;
  private readonly state: Uint32Array;
  private readonly began: Float64Array;
  private readonly tables: readonly [FingerprintTable, FingerprintTable];
  /** The salt in question, as words. */
  private readonly salt: Uint32Array;

  /** @param patienceMs how long another thread may hold the memory before it counts as dead. */
  constructor(memory: SaltPoolMemory, patienceMs?: number) {
    const { seed, saltSize, capacity, state, began, tables } = memory;
    this.capacity = capacity;
    this.key = hashKey(seed);
    this.lock = new SharedLock(new Int32Array(state, 0, 1), patienceMs);
    this.state = new Uint32Array(state);
    this.began = new Float64Array(began);
    this.tables = [new FingerprintTable(tables[0]), new FingerprintTable(tables[1])];
    this.salt = new Uint32Array(saltSize / 4);
  }

  /**
   * 'new' for a salt that from now on is not, for no thread: check and insertion are one step. Call it for authentic
   * requests only, or anyone could fill the pool.
   *
   * @param nowMs of a clock that never goes back and is the same in all threads.
   */
  accept(salt: Uint8Array, nowMs: number): SaltVerdict {
    for (let i = 0; i < this.salt.length; i += 1) this.salt[i] = wordAt(salt, i * 4);
    halfSipHash(salt, 0, salt.length, this.key);
    this.lock.acquire();
    try {
      return this.insert(hashed.high, hashed.low, nowMs);
    } finally {
      this.lock.release();
    }
  }

  /** Bytes of the tables. */
  get memory(): number {
    return this.tables[0].bytes + this.tables[1].bytes;
  }

  private insert(high: number, low: number, nowMs: number): SaltVerdict {
    const { tables, salt, state } = this;
    if (tables[0].has(high, low, salt) || tables[1].has(high, low, salt)) return 'repeated';
    if (nowMs - this.began[0]! >= keepMs) this.turn(nowMs);
    if (state[sizeAt]! >= this.capacity || !tables[state[youngAt]!]!.add(high, low, salt)) return 'full';
    state[sizeAt]! += 1;
    return 'new';
  }

  /** The younger generation is the elder from now on; the elder's memory serves the new one. */
  private turn(nowMs: number): void {
    this.state[youngAt] = 1 - this.state[youngAt]!;
    this.state[sizeAt] = 0;
    this.tables[this.state[youngAt]!]!.clear();
    this.began[0] = nowMs;
  }
}
