import type { User } from '../crypto/credentials.js';
import { pskHash } from '../crypto/keys-2022.js';

/** Finds a user by the 16 bytes that identify its key in an identity header (SIP023), without an object. */
export class UserTable {
  private readonly hashes: readonly Uint8Array[];
  /** By the first word of the hash: the users that have it, one nearly always. */
  private readonly byWord = new Map<number, number[]>();

  /** @param hashes of the users' keys, in the order of the users. */
  constructor(hashes: readonly Uint8Array[]) {
    this.hashes = hashes;
    for (const [user, hash] of hashes.entries()) {
      const word = wordAt(hash, 0);
      const users = this.byWord.get(word);
      if (users === undefined) this.byWord.set(word, [user]);
      else users.push(user);
    }
  }

  static of(users: readonly User[]): UserTable {
    return new UserTable(users.map(({ key }) => pskHash(key)));
  }

  /** The index of the user whose hash stands at `bytes[at]`; -1 if nobody has it. */
  find(bytes: Uint8Array, at: number): number {
    const users = this.byWord.get(wordAt(bytes, at));
    if (users === undefined) return -1;
    for (let i = 0; i < users.length; i += 1) {
      if (this.isAt(bytes, at, this.hashes[users[i]!]!)) return users[i]!;
    }
    return -1;
  }

  private isAt(bytes: Uint8Array, at: number, hash: Uint8Array): boolean {
    for (let i = 0; i < hash.length; i += 1) if (bytes[at + i] !== hash[i]) return false;
    return true;
  }
}

function wordAt(bytes: Uint8Array, at: number): number {
  return bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
}
