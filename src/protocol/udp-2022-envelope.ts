/** What surrounds the body of a 2022 UDP packet, as drawn in udp-2022.ts. It differs between AES and ChaCha20. */
import type { AeadBackend, BlockCipher, PacketCipher } from '../crypto/aead.js';
import type { User } from '../crypto/credentials.js';
import { pskHash, pskHashSize, sessionSubkey2022 } from '../crypto/keys-2022.js';
import { tagSize, type Method } from '../crypto/methods.js';
import type { Block } from '../linux/memory.js';
import type { PacketSources } from './packet-sources.js';
import { headerSize } from './udp-2022.js';
import { UserTable } from './user-table.js';

const nonceSize = 24; // of XChaCha20
const nonceInHeader = 4; // the last 4 bytes of the session ID, then the packet ID

export interface SealingEnvelope {
  /** Bytes before the body. */
  readonly size: number;
  /** Where among them session ID and packet ID stand before they are sealed. */
  readonly headerAt: number;
  /** What seals the bodies of a session. */
  sessionCipher(sessionId: Uint8Array): PacketCipher;
  /** Seals header and body, which end at `to`; the packet begins at `start`, and a tag comes behind. */
  seal(block: Block, start: number, to: number, cipher: PacketCipher): void;
}

export interface OpeningEnvelope {
  readonly size: number;
  readonly headerAt: number;
  /** After `reveal`: the index of the user whose packet it is; -1 where there are no users. */
  readonly user: number;
  /** Opens what shows session ID and packet ID of the packet at `block[from..to)`; false if it is forged. */
  reveal(block: Block, from: number, to: number): boolean;
  /** What opens the bodies of a session of the user that `reveal` found. It keeps nothing of `sessionId`. */
  sessionCipher(sessionId: Uint8Array): PacketCipher;
  /** Opens the body if `reveal` has not; false if it is forged. */
  openBody(block: Block, from: number, to: number, cipher: PacketCipher): boolean;
}

export class AesSealing implements SealingEnvelope {
  readonly size: number;
  readonly headerAt = 0;
  private readonly backend: AeadBackend;
  private readonly method: Method;
  private readonly key: Uint8Array;
  private readonly headerCipher: BlockCipher;
  /** Of each identity header. */
  private readonly identityCiphers: readonly BlockCipher[];
  private readonly hashes: readonly Uint8Array[];

  /** @param identityKeys a client's keys before `key`. */
  constructor(
    backend: AeadBackend,
    method: Method,
    key: Uint8Array,
    identityKeys: readonly Uint8Array[] = [],
  ) {
    const chain = [...identityKeys, key];
    const ciphers = chain.map((each) => backend.blockCipher(each));
    this.size = headerSize + identityKeys.length * pskHashSize;
    this.backend = backend;
    this.method = method;
    this.key = key;
    this.headerCipher = ciphers[0]!;
    this.identityCiphers = ciphers.slice(0, -1);
    this.hashes = chain.slice(1).map(pskHash);
  }

  sessionCipher(sessionId: Uint8Array): PacketCipher {
    return this.backend.packetCipher(this.method.cipher, sessionSubkey2022(this.key, sessionId));
  }

  seal(block: Block, start: number, to: number, cipher: PacketCipher): void {
    const body = start + this.size;
    cipher.seal(block, body, to - body, block, start + nonceInHeader);
    for (let i = 0; i < this.identityCiphers.length; i += 1) this.writeIdentity(block, start, i);
    this.headerCipher.encrypt(block, start);
  }

  private writeIdentity(block: Block, start: number, i: number): void {
    const { bytes } = block;
    const at = start + headerSize + i * pskHashSize;
    const hash = this.hashes[i]!;
    for (let j = 0; j < pskHashSize; j += 1) bytes[at + j] = hash[j]! ^ bytes[start + j]!;
    this.identityCiphers[i]!.encrypt(block, at);
  }
}

export class AesOpening implements OpeningEnvelope {
  readonly size: number;
  readonly headerAt = 0;
  user = -1;
  private readonly backend: AeadBackend;
  private readonly method: Method;
  private readonly key: Uint8Array;
  private readonly headerCipher: BlockCipher;
  private readonly users: readonly User[];
  private readonly table: UserTable | undefined;

  /** @param users if there are any, each packet has one identity header and is sealed with the key of one of them. */
  constructor(backend: AeadBackend, method: Method, key: Uint8Array, users: readonly User[] = []) {
    this.size = headerSize + (users.length > 0 ? pskHashSize : 0);
    this.backend = backend;
    this.method = method;
    this.key = key;
    this.headerCipher = backend.blockCipher(key);
    this.users = users;
    this.table = users.length > 0 ? UserTable.of(users) : undefined;
  }

  reveal(block: Block, from: number): boolean {
    this.headerCipher.decrypt(block, from);
    if (this.table === undefined) return true;
    const { bytes } = block;
    const at = from + headerSize;
    this.headerCipher.decrypt(block, at);
    for (let i = 0; i < pskHashSize; i += 1) bytes[at + i]! ^= bytes[from + i]!;
    this.user = this.table.find(bytes, at);
    return this.user !== -1;
  }

  sessionCipher(sessionId: Uint8Array): PacketCipher {
    const key = this.table === undefined ? this.key : this.users[this.user]!.key;
    return this.backend.packetCipher(this.method.cipher, sessionSubkey2022(key, sessionId));
  }

  openBody(block: Block, from: number, to: number, cipher: PacketCipher): boolean {
    const body = from + this.size;
    return cipher.open(block, body, to - body - tagSize, block, from + nonceInHeader);
  }
}

/** Both directions: all packets of all sessions have the one key. */
export class ChachaEnvelope implements SealingEnvelope, OpeningEnvelope {
  readonly size = nonceSize + headerSize;
  readonly headerAt = nonceSize;
  readonly user = -1;
  private readonly sources: PacketSources;
  private readonly cipher: PacketCipher;

  constructor(backend: AeadBackend, key: Uint8Array, sources: PacketSources) {
    this.sources = sources;
    this.cipher = backend.packetCipher('xchacha20-poly1305', key);
  }

  sessionCipher(): PacketCipher {
    return this.cipher;
  }

  seal(block: Block, start: number, to: number, cipher: PacketCipher): void {
    const header = start + nonceSize;
    this.sources.fillRandom(block.bytes, start, nonceSize);
    cipher.seal(block, header, to - header, block, start);
  }

  reveal(block: Block, from: number, to: number): boolean {
    const header = from + nonceSize;
    return this.cipher.open(block, header, to - header - tagSize, block, from);
  }

  openBody(): boolean {
    return true;
  }
}
