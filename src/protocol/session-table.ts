/**
 * The 2022 UDP sessions of a server, by user and client session ID. Looking one up makes no object: the key of the map is a
 * hash of one word, and sessions that share it are chained. Clients choose their IDs, so the hash has a secret in it, lest
 * one of them make a chain of thousands.
 */

export interface TableEntry {
  /** Constant while it is in a table. */
  readonly user: number;
  readonly idHigh: number;
  readonly idLow: number;
  /** The next entry with the same hash; the table's own. */
  next: this | undefined;
}

export class SessionTable<Entry extends TableEntry> {
  size = 0;
  private readonly first = new Map<number, Entry>();
  private readonly secretHigh: number;
  private readonly secretLow: number;

  /** @param secret 8 random bytes. */
  constructor(secret: Buffer) {
    this.secretHigh = secret.readInt32BE(0);
    this.secretLow = secret.readInt32BE(4);
  }

  find(user: number, idHigh: number, idLow: number): Entry | undefined {
    let entry = this.first.get(this.hash(user, idHigh, idLow));
    while (entry !== undefined && !(entry.idLow === idLow && entry.idHigh === idHigh && entry.user === user))
      entry = entry.next;
    return entry;
  }

  /** Adds what `find` does not find. */
  add(entry: Entry): void {
    const hash = this.hash(entry.user, entry.idHigh, entry.idLow);
    entry.next = this.first.get(hash);
    this.first.set(hash, entry);
    this.size += 1;
  }

  removeWhere(isOver: (entry: Entry) => boolean): void {
    for (const [hash, first] of this.first) {
      let kept: Entry | undefined;
      let next: Entry | undefined;
      for (let entry: Entry | undefined = first; entry !== undefined; entry = next) {
        next = entry.next;
        if (isOver(entry)) {
          this.size -= 1;
        } else {
          entry.next = kept;
          kept = entry;
        }
      }
      if (kept === undefined) this.first.delete(hash);
      else if (kept !== first) this.first.set(hash, kept);
    }
  }

  private hash(user: number, idHigh: number, idLow: number): number {
    let word = Math.imul(idHigh ^ this.secretHigh, 0x9e3779b1) ^ user;
    word = Math.imul(word ^ (word >>> 15), 0x85ebca6b) ^ idLow ^ this.secretLow;
    word = Math.imul(word ^ (word >>> 13), 0xc2b2ae35);
    return word ^ (word >>> 16);
  }
}
