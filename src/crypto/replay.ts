/**
 * Which salts ss-server has seen, so that a recorded stream sent again is refused (2017 AEAD; the 2022 edition has
 * timestamps and an exact memory of its own). The kernel spreads connections over the workers, so they all look into one
 * memory, which the main thread makes.
 *
 * Remembered are 64-bit fingerprints, in two generations: when the younger one has `capacity` of them it becomes the
 * elder, and the elder is forgotten. So the last `capacity` salts are known for certain, at most twice as many are kept, and
 * a new salt is mistaken for an old one once in 2^64 / 2 capacity times: 10^-13 at a million. A Bloom filter would need a
 * quarter of the memory and all of it from the start; this grows with the connections, from 10 KiB to 32 MiB.
 */
import { createTableMemory, FingerprintTable, parts, type TableMemory } from './fingerprint-table.js';
import { type HashKey, halfSipHash, hashed, hashKey } from './half-siphash.js';
import { SharedLock } from './shared-lock.js';

/** As shadowsocks-libev remembers on a server. */
const defaultCapacity = 1_000_000;

/** Can be given to another thread: every filter made from it is the same filter. */
export interface SaltMemory {
  readonly seed: Uint8Array;
  readonly capacity: number;
  /** Three words: the lock, which table is the younger generation (0 or 1), how many fingerprints that has. */
  readonly state: SharedArrayBuffer;
  readonly tables: readonly [TableMemory, TableMemory];
}

const youngAt = 1;
const sizeAt = 2;

/**
 * @param seed 8 random bytes: the key of the fingerprint, lest a client that has the password choose salts that crowd one
 *   place of a table.
 */
export function createSaltMemory(seed: Uint8Array, capacity: number = defaultCapacity): SaltMemory {
  if (seed.length !== 8) throw new RangeError(`seed of ${seed.length} bytes, expected 8`);
  const maxSlots = slotsOfPart(capacity);
  const tables = [createTableMemory(maxSlots), createTableMemory(maxSlots)] as const;
  return { seed, capacity, state: new SharedArrayBuffer(3 * 4), tables };
}

/** Room, three quarters full, for a part's share and ten standard deviations more. */
function slotsOfPart(capacity: number): number {
  const share = capacity / parts;
  const most = share + 10 * Math.sqrt(share) + 10;
  return Math.max(8, 2 ** Math.ceil(Math.log2((most * 4) / 3)));
}

export class SaltFilter {
  private readonly capacity: number;
  private readonly key: HashKey;
  private readonly lock: SharedLock;
  private readonly state: Uint32Array;
  private readonly tables: readonly [FingerprintTable, FingerprintTable];

  /** @param patienceMs how long another thread may hold the memory before it counts as dead. */
  constructor({ seed, capacity, state, tables }: SaltMemory, patienceMs?: number) {
    this.capacity = capacity;
    this.key = hashKey(seed);
    this.lock = new SharedLock(new Int32Array(state, 0, 1), patienceMs);
    this.state = new Uint32Array(state);
    this.tables = [new FingerprintTable(tables[0]), new FingerprintTable(tables[1])];
  }

  /**
   * True for a salt that is new, and from now on is not, for no thread: check and insertion are one step.
   * @param from and @param to say which part of `salt` is the salt.
   */
  accept(salt: Uint8Array, from = 0, to = salt.length): boolean {
    halfSipHash(salt, from, to, this.key);
    this.lock.acquire();
    try {
      return this.insert(hashed.high, hashed.low);
    } finally {
      this.lock.release();
    }
  }

  /** Remembers a salt of ours, so that our own stream is refused when somebody sends it back to us. */
  add(salt: Uint8Array, from = 0, to = salt.length): void {
    this.accept(salt, from, to);
  }

  /** Bytes of the tables. */
  get memory(): number {
    return this.tables[0].bytes + this.tables[1].bytes;
  }

  private insert(high: number, low: number): boolean {
    const young = this.younger();
    if (this.tables[0].has(high, low) || this.tables[1].has(high, low)) return false;
    if (!young.add(high, low)) {
      this.turn(); // one part has ten deviations more than its share: never
      this.younger().add(high, low);
    }
    this.state[sizeAt]! += 1;
    if (this.state[sizeAt]! >= this.capacity) this.turn();
    return true;
  }

  private younger(): FingerprintTable {
    return this.tables[this.state[youngAt]!]!;
  }

  /** The younger generation is the elder from now on; the elder's memory serves the new one. */
  private turn(): void {
    this.state[youngAt] = 1 - this.state[youngAt]!;
    this.state[sizeAt] = 0;
    this.younger().clear();
  }
}
