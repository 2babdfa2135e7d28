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
 * A slot is two words, the high one first; a high word of 0 is an empty slot. Further words may stand behind them, of what
 * the fingerprint was made from: then two of one fingerprint are two. Beyond its part's present size a slot may hold
 * anything.
 */
export const parts = 64;

const firstSlots = 8;
const fingerprintWords = 2;

/** Where nothing stands behind a fingerprint. */
const nothing = new Uint32Array(0);

/** Can be given to another thread, which has the same table then. */
export interface TableMemory {
  /** Of each part how many fingerprints, then of each part how many slots. */
  readonly sizes: SharedArrayBuffer;
  /** Growable. */
  readonly slots: SharedArrayBuffer;
  /** Of one slot. */
  readonly slotWords: number;
}

/**
 * @param maxSlots of one part: a power of two, 8 or more.
 * @param moreWords that stand behind each fingerprint.
 */
export function createTableMemory(maxSlots: number, moreWords = 0): TableMemory {
  const slotWords = fingerprintWords + moreWords;
  const slotBytes = slotWords * 4;
  const sizes = new SharedArrayBuffer(2 * parts * 4);
  new Uint32Array(sizes).fill(firstSlots, parts);
  const maxByteLength = parts * maxSlots * slotBytes;
  const slots = new SharedArrayBuffer(parts * firstSlots * slotBytes, { maxByteLength });
  return { sizes, slots, slotWords };
}

export class FingerprintTable {
  private readonly memory: TableMemory;
  private readonly slotWords: number;
  private readonly counts: Uint32Array;
  private readonly slots: Uint32Array;
  /** Of the length that the memory had when we last looked: another thread may have grown it. */
  private words: Uint32Array;

  constructor(memory: TableMemory) {
    this.memory = memory;
    this.slotWords = memory.slotWords;
    this.counts = new Uint32Array(memory.sizes, 0, parts);
    this.slots = new Uint32Array(memory.sizes, parts * 4, parts);
    this.words = wordsOf(memory);
  }

  get bytes(): number {
    return this.memory.sizes.byteLength + this.memory.slots.byteLength;
  }

  /**
   * @param high not 0; its highest 6 bits choose the part.
   * @param more the words behind the fingerprint, as many as the table has.
   */
  has(high: number, low: number, more: Uint32Array = nothing): boolean {
    const at = this.find(high, low, more); // first: it may look at the memory anew
    return this.words[at] !== 0;
  }

  /** Adds what is not there yet; false if its part is full. */
  add(high: number, low: number, more: Uint32Array = nothing): boolean {
    const part = partOf(high);
    if (this.counts[part]! * 4 >= this.slots[part]! * 3 && !this.grow(part)) return false;
    this.put(high, low, more);
    this.counts[part]! += 1;
    return true;
  }

  clear(): void {
    this.counts.fill(0);
    this.slots.fill(firstSlots);
    this.words.fill(0, 0, parts * firstSlots * this.slotWords);
  }

  private put(high: number, low: number, more: Uint32Array): void {
    const at = this.find(high, low, more);
    this.words[at] = high;
    this.words[at + 1] = low;
    this.words.set(more, at + fingerprintWords);
  }

  /** Index of the fingerprint's first word, or of the empty slot where it belongs. There always is one. */
  private find(high: number, low: number, more: Uint32Array): number {
    const { slotWords } = this;
    const part = partOf(high);
    const slots = this.slots[part]!;
    if (this.words.length < parts * slots * slotWords) this.words = wordsOf(this.memory);
    const { words } = this;
    let slot = low & (slots - 1);
    let at = slotAt(part, slot) * slotWords;
    while (words[at] !== 0 && (words[at] !== high || words[at + 1] !== low || !this.hasAt(at, more))) {
      slot = (slot + 1) & (slots - 1);
      at = slotAt(part, slot) * slotWords;
    }
    return at;
  }

  private hasAt(at: number, more: Uint32Array): boolean {
    return more.every((word, i) => this.words[at + fingerprintWords + i] === word);
  }

  /** Twice the slots for one part; false if it has the most already. */
  private grow(part: number): boolean {
    const { slotWords } = this;
    const slots = this.slots[part]!;
    const bytes = 2 * parts * slots * slotWords * 4;
    if (bytes > this.memory.slots.maxByteLength) return false;
    if (bytes > this.memory.slots.byteLength) this.memory.slots.grow(bytes);
    const moved = this.takeOut(part, slots);
    this.slots[part] = 2 * slots;
    this.words = wordsOf(this.memory);
    const added = slotAt(part, slots) * slotWords;
    this.words.fill(0, added, added + slots * slotWords);
    for (let i = 0; i < moved.length; i += slotWords) {
      this.put(moved[i]!, moved[i + 1]!, moved.subarray(i + fingerprintWords, i + slotWords));
    }
    return true;
  }

  private takeOut(part: number, slots: number): Uint32Array {
    const { words, slotWords } = this;
    const taken = new Uint32Array(this.counts[part]! * slotWords);
    let used = 0;
    for (let slot = 0; slot < slots; slot += 1) {
      const at = slotAt(part, slot) * slotWords;
      if (words[at] === 0) continue;
      taken.set(words.subarray(at, at + slotWords), used);
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
function slotAt(part: number, slot: number): number {
  if (slot < firstSlots) return part * firstSlots + slot;
  const log2 = 31 - Math.clz32(slot);
  return ((parts - 1 + part) << log2) + slot; // 64 × 2^n + part × 2^n + (slot - 2^n)
}

/** Of a fixed length: V8 reads those as fast as any, those that follow a growing buffer more slowly. */
function wordsOf({ slots }: TableMemory): Uint32Array {
  return new Uint32Array(slots, 0, slots.byteLength / 4);
}
