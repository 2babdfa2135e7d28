/**
 * Which packet IDs of a UDP session were seen: the highest, and one bit for each of the IDs right below it. As UDP reorders,
 * an ID is new when it is above the highest, or less than the window's size below it and its bit is not set (RFC 6479 keeps
 * such a ring for IPsec). IDs are unsigned 64-bit numbers, here two words of 32 bits each.
 */

/** What we chose: shadowsocks-go takes 256, shadowsocks-rust and WireGuard 8128. */
const defaultSize = 2048;

const high = 0;
const low = 1;
const firstBits = 2;

export class PacketWindow {
  private readonly size: number;
  /** The two words of the highest ID, then the ring: ID n has bit n mod size. */
  private readonly words: Uint32Array;

  /** @param size a power of two, 32 or more. */
  constructor(size: number = defaultSize) {
    if (size < 32 || (size & (size - 1)) !== 0)
      throw new RangeError(`window of ${size} IDs, expected a power of two of 32 or more`);
    this.size = size;
    // An empty window is one that has ID 0 as its highest, not seen: any first ID is new.
    this.words = new Uint32Array(firstBits + size / 32);
  }

  /** Signed words are taken for unsigned ones here and in `add`. */
  isNew(idHigh: number, idLow: number): boolean {
    const ahead = this.distance(idHigh, idLow);
    if (ahead > 0) return true;
    if (ahead <= -this.size) return false;
    const bit = idLow & (this.size - 1);
    return (this.words[firstBits + (bit >>> 5)]! & (1 << (bit & 31))) === 0;
  }

  /** From now on this ID is not new; for one that `isNew` said is. */
  add(idHigh: number, idLow: number): void {
    const ahead = this.distance(idHigh, idLow);
    if (ahead > 0) this.advance(idHigh, idLow, ahead);
    const bit = idLow & (this.size - 1);
    this.words[firstBits + (bit >>> 5)]! |= 1 << (bit & 31);
  }

  /** By how much the ID is above the highest; not exact beyond 2^53, which is far enough either way. */
  private distance(idHigh: number, idLow: number): number {
    const { words } = this;
    return ((idHigh >>> 0) - words[high]!) * 2 ** 32 + ((idLow >>> 0) - words[low]!);
  }

  /** The bits of the IDs passed over belonged to IDs that leave the window. */
  private advance(idHigh: number, idLow: number, ahead: number): void {
    const { words, size } = this;
    if (ahead >= size) {
      words.fill(0, firstBits);
    } else {
      const from = words[low]! + 1;
      for (let bit = from; bit < from + ahead; bit += 1)
        words[firstBits + ((bit & (size - 1)) >>> 5)]! &= ~(1 << (bit & 31));
    }
    words[high] = idHigh;
    words[low] = idLow;
  }
}
