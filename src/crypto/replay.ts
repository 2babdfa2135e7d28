/**
 * Which salts ss-server has seen, so that a recorded stream sent again is refused (2017 AEAD; the 2022 edition has
 * timestamps and an exact memory of its own).
 *
 * Remembered are 64-bit fingerprints, in two generations: when the younger one has `capacity` of them it becomes the
 * elder, and the elder is forgotten. So the last `capacity` salts are known for certain, at most twice as many are kept, and
 * a new salt is mistaken for an old one once in 2^64 / 2 capacity times: 10^-13 at a million. A Bloom filter would need a
 * quarter of the memory and all of it from the start; this grows with the connections, from 4 KiB to 32 MiB.
 */
/** As shadowsocks-libev remembers on a server. */
const defaultCapacity = 1_000_000;

/** A generation is cut in parts that grow one by one: no single call ever moves more than 25,000 fingerprints. */
const parts = 64;

export class SaltFilter {
  private readonly capacity: number;
  private readonly key: readonly [number, number];
  private current = newGeneration();
  private previous: FingerprintSet[] | undefined;
  private size = 0;

  /**
   * @param seed 8 random bytes: the key of the fingerprint, lest a client that has the password choose salts that crowd one
   *   place of a table.
   */
  constructor(seed: Uint8Array, capacity: number = defaultCapacity) {
    if (seed.length !== 8) throw new RangeError(`seed of ${seed.length} bytes, expected 8`);
    this.capacity = capacity;
    this.key = [wordAt(seed, 0), wordAt(seed, 4)];
  }

  /** True for a salt that is new, and from now on is not: check and insertion are one step. */
  accept(salt: Uint8Array): boolean {
    fingerprint(salt, this.key);
    const { high, low } = result;
    const part = high >>> 26; // the highest 6 bits: one of 64
    if (this.previous?.[part]!.has(high, low)) return false;
    if (!this.current[part]!.add(high, low)) return false;
    this.size += 1;
    if (this.size >= this.capacity) this.turn();
    return true;
  }

  /** Remembers a salt of ours, so that our own stream is refused when somebody sends it back to us. */
  add(salt: Uint8Array): void {
    this.accept(salt);
  }

  /** Bytes of the tables. */
  get memory(): number {
    return [...this.current, ...(this.previous ?? [])].reduce((sum, part) => sum + part.memory, 0);
  }

  private turn(): void {
    this.previous = this.current;
    this.current = newGeneration();
    this.size = 0;
  }
}

function newGeneration(): FingerprintSet[] {
  return Array.from({ length: parts }, () => new FingerprintSet());
}

/** Hash table with linear probing. Two words a slot; both 0 is an empty slot. */
class FingerprintSet {
  private words = new Uint32Array(2 * 8);
  private size = 0;

  get memory(): number {
    return this.words.byteLength;
  }

  has(high: number, low: number): boolean {
    const i = this.find(high, low);
    return this.words[i] !== 0 || this.words[i + 1] !== 0;
  }

  /** False if it was there already. */
  add(high: number, low: number): boolean {
    if (this.has(high, low)) return false;
    if (this.size * 8 >= this.words.length * 3) this.grow(); // three quarters of the slots
    this.put(high, low);
    this.size += 1;
    return true;
  }

  private put(high: number, low: number): void {
    const i = this.find(high, low);
    this.words[i] = high;
    this.words[i + 1] = low;
  }

  /** Index of the fingerprint's slot, or of the empty one where it belongs. There always is one. */
  private find(high: number, low: number): number {
    const { words } = this;
    const mask = words.length - 1;
    let i = (low << 1) & mask;
    while (words[i] !== 0 || words[i + 1] !== 0) {
      if (words[i] === high && words[i + 1] === low) return i;
      i = (i + 2) & mask;
    }
    return i;
  }

  private grow(): void {
    const old = this.words;
    this.words = new Uint32Array(2 * old.length);
    for (let i = 0; i < old.length; i += 2) {
      if (old[i] !== 0 || old[i + 1] !== 0) this.put(old[i]!, old[i + 1]!);
    }
  }
}

/** What `fingerprint` found. Both 0 never happens: that stands for an empty slot. */
const result = { high: 0, low: 0 };

/** HalfSipHash-2-4 with 64 bits of output (Aumasson and Bernstein, appendix of the SipHash reference code). */
function fingerprint(salt: Uint8Array, key: readonly [number, number]): void {
  v0 = key[0];
  v1 = key[1] ^ 0xee;
  v2 = key[0] ^ 0x6c796765;
  v3 = key[1] ^ 0x74656462;
  for (let at = 0; at + 4 <= salt.length; at += 4) compress(wordAt(salt, at));
  compress(salt.length << 24); // salts are whole words: 16, 24 or 32 bytes
  v2 ^= 0xee;
  mix(4);
  result.low = (v1 ^ v3) >>> 0;
  v1 ^= 0xdd;
  mix(4);
  result.high = (v1 ^ v3) >>> 0 || 1;
}

let v0 = 0;
let v1 = 0;
let v2 = 0;
let v3 = 0;

function compress(word: number): void {
  v3 ^= word;
  mix(2);
  v0 ^= word;
}

function mix(rounds: number): void {
  for (let i = 0; i < rounds; i += 1) {
    v0 = (v0 + v1) | 0;
    v2 = (v2 + v3) | 0;
    v1 = rotate(v1, 5) ^ v0;
    v3 = rotate(v3, 8) ^ v2;
    v0 = (rotate(v0, 16) + v3) | 0;
    v2 = (v2 + v1) | 0;
    v3 = rotate(v3, 7) ^ v0;
    v1 = rotate(v1, 13) ^ v2;
    v2 = rotate(v2, 16);
  }
}

function rotate(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits));
}

function wordAt(bytes: Uint8Array, at: number): number {
  return bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
}
