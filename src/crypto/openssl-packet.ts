/**
 * What UDP packets need of OpenSSL: an AEAD whose nonce comes with each packet, and the bare AES block. As streams do,
 * keys borrow contexts (openssl.ts): one that is in its context still is not set again.
 */
import { Block } from '../linux/memory.js';
import type { BlockCipher, PacketCipher } from './aead.js';
import {
  createContext,
  keyAddress,
  keyAt,
  lend,
  openWith,
  outLengthAddress,
  scratchView,
  sealWith,
  type Context,
  type Evp,
} from './evp.js';

export class EvpPacketCipher implements PacketCipher {
  private readonly evp: Evp;
  private readonly sealing: Context;
  private readonly opening: Context;
  private key: Uint8Array;

  constructor(evp: Evp, sealing: Context, opening: Context, key: Uint8Array) {
    this.evp = evp;
    this.sealing = sealing;
    this.opening = opening;
    this.key = key;
  }

  changeKey(key: Uint8Array): void {
    this.key = key;
    leave(this.sealing, this);
    leave(this.opening, this);
  }

  seal(block: Block, offset: number, length: number, nonces: Block, nonceAt: number): void {
    const { sealing } = this;
    const key = sealing.owner === this ? 0 : lend(sealing, this.key);
    sealWith(this.evp, sealing.address, key, nonces.at(nonceAt, 12), block, offset, length);
    sealing.owner = this;
  }

  open(block: Block, offset: number, length: number, nonces: Block, nonceAt: number): boolean {
    const { opening } = this;
    const key = opening.owner === this ? 0 : lend(opening, this.key);
    const nonce = nonces.at(nonceAt, 12);
    const good = openWith(this.evp, opening.address, key, nonce, block, offset, length, block, offset);
    opening.owner = this;
    return good;
  }
}

/** See openssl.ts for what XChaCha20-Poly1305 is made of. */
export class XchachaPacketCipher implements PacketCipher {
  private readonly evp: Evp;
  /** Plain ChaCha20. */
  private readonly deriving: Context;
  private readonly sealing: Context;
  private readonly opening: Context;
  private key: Uint8Array;

  constructor(evp: Evp, deriving: Context, sealing: Context, opening: Context, key: Uint8Array) {
    this.evp = evp;
    this.deriving = deriving;
    this.sealing = sealing;
    this.opening = opening;
    this.key = key;
  }

  changeKey(key: Uint8Array): void {
    this.key = key;
    leave(this.deriving, this);
  }

  seal(block: Block, offset: number, length: number, nonces: Block, nonceAt: number): void {
    this.derive(nonces, nonceAt);
    sealWith(this.evp, this.sealing.address, keyAddress, innerNonceAddress, block, offset, length);
  }

  open(block: Block, offset: number, length: number, nonces: Block, nonceAt: number): boolean {
    this.derive(nonces, nonceAt);
    const { address } = this.opening;
    return openWith(this.evp, address, keyAddress, innerNonceAddress, block, offset, length, block, offset);
  }

  /**
   * HChaCha20 from OpenSSL's ChaCha20, which takes the 16 bytes for block counter and nonce: its key stream is the state
   * after the rounds plus the state before them, of which the words 0 to 3 and 12 to 15 are known and subtracted.
   * noble's HChaCha20 takes as long and makes two arrays a call.
   */
  private derive(nonces: Block, nonceAt: number): void {
    const { evp, deriving } = this;
    const prefix = nonces.at(nonceAt, 24);
    const key = deriving.owner === this ? 0 : lend(deriving, this.key);
    const done =
      evp.encryptInit(deriving.address, 0, 0, key, prefix) === 1 &&
      evp.encryptUpdate(deriving.address, keyStreamAddress, outLengthAddress, zerosAddress, 64) === 1;
    if (!done) throw new Error('OpenSSL failed to derive a key: out of memory, or its context is broken');
    deriving.owner = this;

    const nonce = nonces.bytes;
    for (let i = 0; i < 16; i += 4) {
      scratchView.setUint32(keyAt + i, streamView.getUint32(i, true) - sigma[i >> 2]!, true);
      const word =
        nonce[nonceAt + i]! |
        (nonce[nonceAt + i + 1]! << 8) |
        (nonce[nonceAt + i + 2]! << 16) |
        (nonce[nonceAt + i + 3]! << 24);
      scratchView.setUint32(keyAt + 16 + i, streamView.getUint32(48 + i, true) - word, true);
    }
    for (let i = 0; i < 8; i += 1) derivation.bytes[innerNonceAt + 4 + i] = nonce[nonceAt + 16 + i]!;
  }
}

/** What a derivation works on. Its nonce is not that of evp.ts, whose last 4 bytes streams leave zero. */
const zerosAt = 64; // 64, which become the key stream
const innerNonceAt = 128; // 12: 4 zeros, then the end of the packet's nonce
const derivation = Block.allocate(64 + 64 + 12);
const keyStreamAddress = derivation.at(0, 64);
const zerosAddress = derivation.at(zerosAt, 64);
const innerNonceAddress = derivation.at(innerNonceAt, 12);
const streamView = new DataView(derivation.bytes.buffer, derivation.bytes.byteOffset, 64);
const sigma = [0x61707865, 0x3320646e, 0x79622d32, 0x6b206574]; // RFC 8439, section 2.3

function leave(context: Context, owner: object): void {
  if (context.owner === owner) context.owner = undefined;
}

const blockSize = 16;

/** AES in one direction, with keys of 16 and of 32 bytes. */
export interface BlockContexts {
  readonly encrypting: { readonly aes128: Context; readonly aes256: Context };
  readonly decrypting: { readonly aes128: Context; readonly aes256: Context };
}

export function createBlockContexts(evp: Evp): BlockContexts | undefined {
  const [encrypting, decrypting] = [evp.encryptInit, evp.decryptInit].map((init) => ({
    aes128: createContext(evp, init, evp.aes128),
    aes256: createContext(evp, init, evp.aes256),
  }));
  const all = [encrypting, decrypting].flatMap((contexts) => Object.values(contexts!));
  for (const context of all) {
    if (context === undefined) return undefined;
    evp.setPadding(context.address, 0); // it keeps the last block back otherwise
  }
  return { encrypting, decrypting } as BlockContexts;
}

/** ECB has no state but the key, so a block takes one call. */
export class EvpBlockCipher implements BlockCipher {
  private readonly evp: Evp;
  private readonly encrypting: Context;
  private readonly decrypting: Context;
  private readonly key: Uint8Array;

  constructor(evp: Evp, contexts: BlockContexts, key: Uint8Array) {
    if (key.length !== 16 && key.length !== 32)
      throw new RangeError(`a block cipher's key has 16 or 32 bytes, got ${key.length}`);
    const size = key.length === 16 ? 'aes128' : 'aes256';
    this.evp = evp;
    this.encrypting = contexts.encrypting[size];
    this.decrypting = contexts.decrypting[size];
    this.key = key;
  }

  encrypt(block: Block, offset: number): void {
    const { evp, encrypting } = this;
    const at = block.at(offset, blockSize);
    const ready = encrypting.owner === this || this.enter(encrypting, evp.encryptInit);
    if (ready && evp.encryptUpdate(encrypting.address, at, outLengthAddress, at, blockSize) === 1) return;
    throw new Error('OpenSSL failed to encrypt a block: out of memory, or its context is broken');
  }

  decrypt(block: Block, offset: number): void {
    const { evp, decrypting } = this;
    const at = block.at(offset, blockSize);
    const ready = decrypting.owner === this || this.enter(decrypting, evp.decryptInit);
    if (ready && evp.decryptUpdate(decrypting.address, at, outLengthAddress, at, blockSize) === 1) return;
    throw new Error('OpenSSL failed to decrypt a block: out of memory, or its context is broken');
  }

  private enter(context: Context, init: Evp['encryptInit']): boolean {
    if (init(context.address, 0, 0, lend(context, this.key), 0) !== 1) return false;
    context.owner = this;
    return true;
  }
}
