/**
 * A table of things by socket address: sessions by client, reply sockets by the remote they speak for. It makes no object for
 * a lookup: keys are six words in one array, chains are numbers.
 *
 *     key    | address 4 words (IPv4: 1, then zeros) | family << 16 + port | scope |
 */
import { randomInt } from 'node:crypto';
import { AF_INET, AF_INET6, isMapped } from '../linux/sockaddr.js';

const keyWords = 6;
const none = -1;

export class AddressTable<T> {
  readonly capacity: number;
  private readonly values: (T | undefined)[];
  private readonly keys: Uint32Array;
  private readonly buckets: Int32Array;
  private readonly chain: Int32Array;
  private free = 0;
  private count = 0;
  private readonly key = new Uint32Array(keyWords);
  /** Unknown to whoever could choose addresses that fall into one bucket. */
  private readonly seed = randomInt(2 ** 32);

  constructor(capacity: number) {
    this.capacity = capacity;
    this.values = Array.from({ length: capacity });
    this.keys = new Uint32Array(capacity * keyWords);
    this.buckets = new Int32Array(2 ** Math.ceil(Math.log2(capacity + 1))).fill(none);
    this.chain = Int32Array.from({ length: capacity }, (_, i) => (i + 1 < capacity ? i + 1 : none)); // of free places first
  }

  get size(): number {
    return this.count;
  }

  get full(): boolean {
    return this.count === this.capacity;
  }

  /** Whose place it is; undefined for a free one. */
  at(place: number): T | undefined {
    return this.values[place];
  }

  /** The place of the sockaddr (sockaddr.ts) at `bytes[at]`, or -1. `insert` then puts something there. */
  findSockaddr(bytes: Buffer, at: number): number {
    const { key } = this;
    key[1] = key[2] = key[3] = key[5] = 0;
    if (bytes[at] === AF_INET) {
      key[0] = bytes.readUInt32LE(at + 4);
      key[4] = (AF_INET << 16) | bytes.readUInt16BE(at + 2);
    } else if (isMapped(bytes, at + 8)) {
      key[0] = bytes.readUInt32LE(at + 20);
      key[4] = (AF_INET << 16) | bytes.readUInt16BE(at + 2);
    } else {
      for (let i = 0; i < 4; i++) key[i] = bytes.readUInt32LE(at + 8 + 4 * i);
      key[4] = (AF_INET6 << 16) | bytes.readUInt16BE(at + 2);
      key[5] = bytes.readUInt32LE(at + 24);
    }
    return this.find();
  }

  private find(): number {
    const { key, keys } = this;
    for (let place = this.buckets[this.bucketOf(key, 0)]!; place !== none; place = this.chain[place]!) {
      const k = place * keyWords;
      if (
        keys[k] === key[0] &&
        keys[k + 4] === key[4] &&
        keys[k + 1] === key[1] &&
        keys[k + 2] === key[2] &&
        keys[k + 3] === key[3] &&
        keys[k + 5] === key[5]
      )
        return place;
    }
    return none;
  }

  /** Puts `value` at the address that was looked for last and not found. There must be room. Returns its place. */
  insert(value: T): number {
    const place = this.free;
    this.free = this.chain[place]!;
    this.values[place] = value;
    this.keys.set(this.key, place * keyWords);
    const bucket = this.bucketOf(this.key, 0);
    this.chain[place] = this.buckets[bucket]!;
    this.buckets[bucket] = place;
    this.count++;
    return place;
  }

  remove(place: number): void {
    const bucket = this.bucketOf(this.keys, place * keyWords);
    let before = none;
    for (let at = this.buckets[bucket]!; at !== place; at = this.chain[at]!) before = at;
    if (before === none) this.buckets[bucket] = this.chain[place]!;
    else this.chain[before] = this.chain[place]!;
    this.values[place] = undefined;
    this.chain[place] = this.free;
    this.free = place;
    this.count--;
  }

  /** MurmurHash3's mixing, from the seed on. */
  private bucketOf(key: Uint32Array, at: number): number {
    let hash = this.seed;
    for (let i = 0; i < keyWords; i++) {
      let word = Math.imul(key[at + i]!, 0xcc9e2d51);
      word = (word << 15) | (word >>> 17);
      hash ^= Math.imul(word, 0x1b873593);
      hash = Math.imul((hash << 13) | (hash >>> 19), 5) + 0xe6546b64;
    }
    hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
    hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
    return (hash ^ (hash >>> 16)) & (this.buckets.length - 1);
  }
}
