/**
 * HalfSipHash-2-4 with 64 bits of output (Aumasson and Bernstein, appendix of the SipHash reference code): a hash whose
 * collisions nobody can look for without its key.
 */
export type HashKey = readonly [number, number];

/** @param seed 8 random bytes. */
export function hashKey(seed: Uint8Array): HashKey {
  if (seed.length !== 8) throw new RangeError(`seed of ${seed.length} bytes, expected 8`);
  return [wordAt(seed, 0), wordAt(seed, 4)];
}

/** What `halfSipHash` found. A high word of 0 never happens: that stands for an empty place in a table. */
export const hashed = { high: 0, low: 0 };

/** Hashes `bytes[from..to)`: whole words, fewer than 256 bytes. */
export function halfSipHash(bytes: Uint8Array, from: number, to: number, key: HashKey): void {
  v0 = key[0];
  v1 = key[1] ^ 0xee;
  v2 = key[0] ^ 0x6c796765;
  v3 = key[1] ^ 0x74656462;
  for (let at = from; at + 4 <= to; at += 4) compress(wordAt(bytes, at));
  compress((to - from) << 24);
  v2 ^= 0xee;
  mix(4);
  hashed.low = (v1 ^ v3) >>> 0;
  v1 ^= 0xdd;
  mix(4);
  hashed.high = (v1 ^ v3) >>> 0 || 1;
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

/** u32le, as a signed number. */
export function wordAt(bytes: Uint8Array, at: number): number {
  return bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
}
