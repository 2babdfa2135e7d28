/**
 * A set of 64-bit fingerprints in memory that several threads share. It has no lock: whoever calls holds one.
 *
 * The table is cut in 64 parts that grow one by one, so that no single call moves more than the fingerprints of one part.
 * A part has 8 slots, then 16, 32 … A slot stays where it is when its part grows, and the memory grows at its end only:
 *
 *     slots     0…7           8…15          16…31         …
 *     memory    | of part 0 … 63 | of part 0 … 63 | of part 0 … 63 | …
 *               512 slots        512              1024
 *
 * A slot is two words, the high one first; a high word of 0 is an empty slot. Beyond its part's present size a slot may
 * hold anything.
 */
export const parts = 64;

const firstSlots = 8;
const slotWords = 2;
const slotBytes = slotWords * 4;

/** Can be given to another thread, which has the same table then. */
export interface TableMemory {
  /** Of each part how many fingerprints, then of each part how many slots. */
  readonly sizes: SharedArrayBuffer;
  /** Growable. */
  readonly slots: SharedArrayBuffer;
}

/** @param maxSlots of one part: a power of two, 8 or more. */
export function createTableMemory(maxSlots: number): TableMemory {
  const sizes = new SharedArrayBuffer(2 * parts * 4);
  new Uint32Array(sizes).fill(firstSlots, parts);
  const maxByteLength = parts * maxSlots * slotBytes;
  return { sizes, slots: new SharedArrayBuffer(parts * firstSlots * slotBytes, { maxByteLength }) };
}

export class FingerprintTable {
  private readonly memory: TableMemory;
  private readonly counts: Uint32Array;
  private readonly slots: Uint32Array;
  /** Of the length that the memory had when we last looked: another thread may have grown it. */
  private words: Uint32Array;

  constructor(memory: TableMemory) {
    this.memory = memory;
    this.counts = new Uint32Array(memory.sizes, 0, parts);
    this.slots = new Uint32Array(memory.sizes, parts * 4, parts);
    this.words = wordsOf(memory);
  }

  get bytes(): number {
    return this.memory.sizes.byteLength + this.memory.slots.byteLength;
  }

  /** @param high not 0; its highest 6 bits choose the part. */
  has(high: number, low: number): boolean {
    const at = this.find(high, low); // first: it may look at the memory anew
    return this.words[at] !== 0;
  }

  /** Adds what is not there yet; false if its part is full. */
  add(high: number, low: number): boolean {
    const part = partOf(high);
    if (this.counts[part]! * 4 >= this.slots[part]! * 3 && !this.grow(part)) return false;
    this.put(high, low);
    this.counts[part]! += 1;
    return true;
  }

  clear(): void {
    this.counts.fill(0);
    this.slots.fill(firstSlots);
    this.words.fill(0, 0, parts * firstSlots * slotWords);
  }

  private put(high: number, low: number): void {
    const at = this.find(high, low);
    this.words[at] = high;
    this.words[at + 1] = low;
  }

  /** Index of the fingerprint's first word, or of the empty slot where it belongs. There always is one. */
  private find(high: number, low: number): number {
    const part = partOf(high);
    const slots = this.slots[part]!;
    if (this.words.length < parts * slots * slotWords) this.words = wordsOf(this.memory);
    const { words } = this;
    let slot = low & (slots - 1);
    let at = wordAt(part, slot);
    while (words[at] !== 0 && (words[at] !== high || words[at + 1] !== low)) {
      slot = (slot + 1) & (slots - 1);
      at = wordAt(part, slot);
    }
    return at;
  }

  /** Twice the slots for one part; false if it has the most already. */
  private grow(part: number): boolean {
    const slots = this.slots[part]!;
    const bytes = 2 * parts * slots * slotBytes;
    if (bytes > this.memory.slots.maxByteLength) return false;
    if (bytes > this.memory.slots.byteLength) this.memory.slots.grow(bytes);
    const moved = this.takeOut(part, slots);
    this.slots[part] = 2 * slots;
    this.words = wordsOf(this.memory);
    const added = wordAt(part, slots);
    this.words.fill(0, added, added + slots * slotWords);
    for (let i = 0; i < moved.length; i += slotWords) this.put(moved[i]!, moved[i + 1]!);
    return true;
  }

  private takeOut(part: number, slots: number): Uint32Array {
    const { words } = this;
    const taken = new Uint32Array(this.counts[part]! * slotWords);
    let used = 0;
    for (let slot = 0; slot < slots; slot += 1) {
      const at = wordAt(part, slot);
      if (words[at] === 0) continue;
      taken[used] = words[at]!;
      taken[used + 1] = words[at + 1]!;
      used += slotWords;
      words[at] = 0;
    }
    return taken;
  }
}

function partOf(high: number): number {
  return high >>> 26;
}

/** Where a part's slot stands, as drawn above: slots 2^n to 2^(n+1) - 1 of all parts begin at slot 64 × 2^n. */
function wordAt(part: number, slot: number): number {
  if (slot < firstSlots) return (part * firstSlots + slot) * slotWords;
  const log2 = 31 - Math.clz32(slot);
  return (((parts - 1 + part) << log2) + slot) * slotWords; // 64 × 2^n + part × 2^n + (slot - 2^n)
}

/** Of a fixed length: V8 reads those as fast as any, those that follow a growing buffer more slowly. */
function wordsOf({ slots }: TableMemory): Uint32Array {
  return new Uint32Array(slots, 0, slots.byteLength / 4);
}
