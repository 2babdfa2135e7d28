/**
 * The bare AES block, for identity headers and for the headers of UDP packets. As streams do, keys
 * borrow contexts (openssl.ts): a key that is in one already is not set again.
 */
import type { Block } from '../linux/memory.js';
import type { BlockCipher } from './aead.js';
import { createContext, lend, outLengthAddress, type Context, type Evp } from './evp.js';

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
