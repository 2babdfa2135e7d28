/**
 * Who may have how much of a memory, so that nobody can keep the others out. A quarter of it is reserved, the same for each
 * owner; of the rest an owner may have at most four times what is still free there, so that one alone may fill four fifths of
 * it, and who comes next still finds a fifth.
 */

const reservedPart = 1 / 4;
const timesTheFree = 4;

export class SessionShares {
  private readonly counts: Uint32Array;
  /** For each owner. */
  private readonly reserved: number;
  /** Of what is not reserved. */
  private free: number;

  constructor(capacity: number, owners: number) {
    this.counts = new Uint32Array(owners);
    this.reserved = Math.floor((capacity * reservedPart) / owners);
    this.free = capacity - this.reserved * owners;
  }

  hasRoom(owner: number): boolean {
    const beyond = this.counts[owner]! - this.reserved;
    return beyond < 0 || beyond < timesTheFree * this.free;
  }

  add(owner: number): void {
    if (this.counts[owner]! >= this.reserved) this.free -= 1;
    this.counts[owner]! += 1;
  }

  remove(owner: number): void {
    this.counts[owner]! -= 1;
    if (this.counts[owner]! >= this.reserved) this.free += 1;
  }
}
