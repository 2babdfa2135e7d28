/**
 * The fast backend: OpenSSL's EVP functions, called in place in the data plane's own blocks.
 *
 * An EVP_CIPHER_CTX takes more memory than all the rest of an idle connection, so streams have none of their own. There
 * are two for each cipher in a thread, one to seal and one to open, lent to the stream that works just now: a stream
 * that finds another's key in it sets its own in the same call that sets the nonce (0.1 to 0.3 µs more).
 */
import type { Block } from '../linux/memory.js';
import type { AeadBackend, BlockCipher, Opener, PacketCipher, Sealer } from './aead.js';
import {
  createContext,
  declareEvp,
  keyAddress,
  keyAt,
  lend,
  nonceAddress,
  nonceAt,
  openWith,
  scratch,
  scratchView,
  sealWith,
  type Context,
  type Evp,
  type Init,
} from './evp.js';
import { libcryptoCandidates } from './libcrypto.js';
import type { Cipher, Method } from './methods.js';
import { hchacha } from './noble.js';
import {
  createBlockContexts,
  EvpBlockCipher,
  EvpPacketCipher,
  XchachaPacketCipher,
} from './openssl-packet.js';

/** OpenSSL, if this system has one that knows all our ciphers. */
export function opensslBackend(): AeadBackend | undefined {
  for (const library of libcryptoCandidates()) {
    const evp = declareEvp(library);
    const backend = evp && createBackend(evp);
    if (backend !== undefined) return backend;
  }
  return undefined;
}

/** Undefined when OpenSSL refuses a cipher, as its FIPS provider refuses ChaCha20. */
function createBackend(evp: Evp): AeadBackend | undefined {
  const sealing = createContexts(evp, evp.encryptInit);
  const opening = createContexts(evp, evp.decryptInit);
  const blocks = createBlockContexts(evp);
  const chacha20 = createContext(evp, evp.encryptInit, evp.chacha20);
  if (sealing === undefined || opening === undefined || blocks === undefined || chacha20 === undefined)
    return undefined;
  return {
    name: 'openssl',
    sealer(method: Method, subkey: Uint8Array): Sealer {
      const context = sealing[method.cipher];
      if (method.cipher === 'xchacha20-poly1305') return new XchachaSealer(evp, context, subkey);
      return new EvpSealer(evp, context, subkey);
    },
    opener(method: Method, subkey: Uint8Array): Opener {
      const context = opening[method.cipher];
      if (method.cipher === 'xchacha20-poly1305') return new XchachaOpener(evp, context, subkey);
      return new EvpOpener(evp, context, subkey);
    },
    packetCipher(cipher: Cipher, key: Uint8Array): PacketCipher {
      const [seal, open] = [sealing[cipher], opening[cipher]];
      if (cipher === 'xchacha20-poly1305') return new XchachaPacketCipher(evp, chacha20, seal, open, key);
      return new EvpPacketCipher(evp, seal, open, key);
    },
    blockCipher(key: Uint8Array): BlockCipher {
      return new EvpBlockCipher(evp, blocks, key);
    },
  };
}

function createContexts(evp: Evp, init: Init): Record<Cipher, Context> | undefined {
  const contexts: Partial<Record<Cipher, Context>> = {};
  for (const [cipher, find] of Object.entries(evp.ciphers)) {
    const context = createContext(evp, init, find);
    if (context === undefined) return undefined;
    contexts[cipher as Cipher] = context;
  }
  return contexts as Record<Cipher, Context>;
}

class EvpSealer implements Sealer {
  private readonly evp: Evp;
  private readonly context: Context;
  private readonly subkey: Uint8Array;
  private counter = 0;

  constructor(evp: Evp, context: Context, subkey: Uint8Array) {
    this.evp = evp;
    this.context = context;
    this.subkey = subkey;
  }

  seal(block: Block, offset: number, length: number): void {
    const { context } = this;
    const key = context.owner === this ? 0 : lend(context, this.subkey);
    setNonce(this.counter);
    sealWith(this.evp, context.address, key, nonceAddress, block, offset, length);
    context.owner = this;
    this.counter += 1;
  }
}

class EvpOpener implements Opener {
  private readonly evp: Evp;
  private readonly context: Context;
  private readonly subkey: Uint8Array;
  private counter = 0;

  constructor(evp: Evp, context: Context, subkey: Uint8Array) {
    this.evp = evp;
    this.context = context;
    this.subkey = subkey;
  }

  open(source: Block, offset: number, length: number, target: Block, targetOffset: number): boolean {
    const { context } = this;
    const key = context.owner === this ? 0 : lend(context, this.subkey);
    setNonce(this.counter);
    const good = openWith(
      this.evp,
      context.address,
      key,
      nonceAddress,
      source,
      offset,
      length,
      target,
      targetOffset,
    );
    context.owner = this;
    if (good) this.counter += 1;
    return good;
  }
}

/**
 * XChaCha20-Poly1305(key, n24) is ChaCha20-Poly1305(HChaCha20(key, n24[0..16]), 00000000 ‖ n24[16..24])
 * (draft-irtf-cfrg-xchacha-03, section 2.3). Our counter ends in the first 16 bytes: every operation has its own key, and
 * the inner nonce is always zero.
 */
class XchachaSealer implements Sealer {
  private readonly evp: Evp;
  private readonly context: Context;
  private readonly subkey: Uint32Array;
  private counter = 0;

  constructor(evp: Evp, context: Context, subkey: Uint8Array) {
    this.evp = evp;
    this.context = context;
    this.subkey = wordsOf(subkey);
  }

  seal(block: Block, offset: number, length: number): void {
    setXchachaKey(this.subkey, this.counter);
    setNonce(0);
    sealWith(this.evp, this.context.address, keyAddress, nonceAddress, block, offset, length);
    this.counter += 1;
  }
}

class XchachaOpener implements Opener {
  private readonly evp: Evp;
  private readonly context: Context;
  private readonly subkey: Uint32Array;
  private counter = 0;

  constructor(evp: Evp, context: Context, subkey: Uint8Array) {
    this.evp = evp;
    this.context = context;
    this.subkey = wordsOf(subkey);
  }

  open(source: Block, offset: number, length: number, target: Block, targetOffset: number): boolean {
    setXchachaKey(this.subkey, this.counter);
    setNonce(0);
    const address = this.context.address;
    const good = openWith(
      this.evp,
      address,
      keyAddress,
      nonceAddress,
      source,
      offset,
      length,
      target,
      targetOffset,
    );
    if (good) this.counter += 1;
    return good;
  }
}

/** Bytes 8 to 11 stay zero: 2^53 operations are 2^65 bytes. */
function setNonce(counter: number): void {
  scratchView.setUint32(nonceAt, counter >>> 0, true);
  scratchView.setUint32(nonceAt + 4, counter / 2 ** 32, true);
}

const sigma = wordsOf(Buffer.from('expand 32-byte k', 'latin1')); // RFC 8439, section 2.3
const noncePrefix = new Uint32Array(4);
const innerKey = new Uint32Array(8);
const innerKeyBytes = new Uint8Array(innerKey.buffer);

/** noble's HChaCha20 takes as long as two calls of OpenSSL's chacha20 and their undoing: 0.4 to 0.6 µs. */
function setXchachaKey(subkey: Uint32Array, counter: number): void {
  noncePrefix[0] = counter >>> 0;
  noncePrefix[1] = counter / 2 ** 32;
  hchacha(sigma, subkey, noncePrefix, innerKey);
  scratch.bytes.set(innerKeyBytes, keyAt);
}

/** The same bytes as words in the host's order, which is what noble asks for. */
function wordsOf(bytes: Uint8Array): Uint32Array {
  return new Uint32Array(Uint8Array.from(bytes).buffer);
}
