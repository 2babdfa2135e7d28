/**
 * The salts of the last packets, for a client of the 2017 methods: its server's answers and its own packets. Both come from
 * somebody who has the key and draws them at random, so their bytes may be used as they are, and no lock, hash or exact order
 * is needed: 30 ns, where the memory of a server (replay.ts) takes 750. A set of four places is found by bytes 8 and
 * 9 of a salt, and keeps the eight before them; the newest takes the place of the one that was put there four before.
 */

const ways = 4;
const setBits = 14; // 65,536 salts in 512 KiB
const sets = 2 ** setBits;

export class RecentSalts {
  private readonly low = new Uint32Array(sets * ways);
  private readonly high = new Uint32Array(sets * ways);
  private readonly turns = new Uint8Array(sets);

  /** Remembers the salt `bytes[from..to)`, of 16 bytes or more. False when it is one of those that came before. */
  accept(bytes: Uint8Array, from: number): boolean {
    const first = setOf(bytes, from) * ways;
    const low = wordAt(bytes, from);
    const high = wordAt(bytes, from + 4);
    for (let place = first; place < first + ways; place++) {
      if (this.low[place] === low && this.high[place] === high) return false;
    }
    this.put(first, low, high);
    return true;
  }

  /** Remembers a salt of our own. */
  add(bytes: Uint8Array, from: number): void {
    this.put(setOf(bytes, from) * ways, wordAt(bytes, from), wordAt(bytes, from + 4));
  }

  private put(first: number, low: number, high: number): void {
    const set = first / ways;
    const place = first + this.turns[set]!;
    this.turns[set] = (this.turns[set]! + 1) % ways;
    this.low[place] = low;
    this.high[place] = high;
  }
}

function setOf(bytes: Uint8Array, from: number): number {
  return wordAt(bytes, from + 8) & (sets - 1);
}

function wordAt(bytes: Uint8Array, at: number): number {
  return (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24)) >>> 0;
}
