/**
 * The fast backend: OpenSSL's EVP functions, called in place in the data plane's own blocks.
 *
 * An EVP_CIPHER_CTX takes more memory than all the rest of an idle connection, so streams have none of their own. There
 * are two for each cipher in a thread, one to seal and one to open, lent to the stream that works just now: a stream
 * that finds another's key in it sets its own in the same call that sets the nonce (0.1 to 0.3 µs more).
 */
import { declareOptional, type Library } from '../linux/ffi.js';
import { Block } from '../linux/memory.js';
import type { AeadBackend, Opener, Sealer } from './aead.js';
import { libcryptoCandidates } from './libcrypto.js';
import { tagSize, type Cipher, type Method } from './methods.js';
import { hchacha } from './noble.js';

const EVP_CTRL_AEAD_GET_TAG = 0x10; // include/openssl/evp.h
const EVP_CTRL_AEAD_SET_TAG = 0x11; // include/openssl/evp.h

/** EVP_EncryptInit_ex and EVP_DecryptInit_ex: a 0 leaves as it is what it stands for. */
type Init = (context: number, cipher: number, engine: number, key: number, nonce: number) => number;
type Update = (context: number, out: number, outLength: number, from: number, length: number) => number;
type Final = (context: number, out: number, outLength: number) => number;
type Control = (context: number, command: number, size: number, pointer: number) => number;

interface Evp {
  newContext: () => number;
  freeContext: (context: number) => void;
  encryptInit: Init;
  encryptUpdate: Update;
  encryptFinal: Final;
  decryptInit: Init;
  decryptUpdate: Update;
  decryptFinal: Final;
  control: Control;
  clearErrors: () => void;
  /** The functions that return the EVP_CIPHER. OpenSSL has no XChaCha20-Poly1305: it is made from ChaCha20-Poly1305. */
  ciphers: Record<Cipher, () => number>;
}

/** Room for what the calls read and write besides the data; its parts stand at these offsets. */
const keyAt = 0; // 32
const nonceAt = 32; // 12, and nothing behind it is read
const outLengthAt = 48; // int
const finalAt = 64; // EVP_*Final_ex write nothing here with an AEAD, but are entitled to a block
const scratch = Block.allocate(128);
const scratchView = new DataView(scratch.bytes.buffer, scratch.bytes.byteOffset, scratch.size);
const keyAddress = scratch.at(keyAt, 32);
const nonceAddress = scratch.at(nonceAt, 12);
const outLengthAddress = scratch.at(outLengthAt, 4);
const finalAddress = scratch.at(finalAt, 32);

/** One EVP_CIPHER_CTX, for one cipher and one direction. */
interface Context {
  readonly address: number;
  /** Whose key is in it. */
  owner: Sealer | Opener | undefined;
}

/** OpenSSL, if this system has one that knows all our ciphers. */
export function opensslBackend(): AeadBackend | undefined {
  for (const library of libcryptoCandidates()) {
    const evp = declareEvp(library);
    const backend = evp && createBackend(evp);
    if (backend !== undefined) return backend;
  }
  return undefined;
}

function declareEvp(library: Library): Evp | undefined {
  const init = 'uintptr_t context, uintptr_t cipher, uintptr_t engine, uintptr_t key, uintptr_t nonce';
  const update = 'uintptr_t context, uintptr_t out, uintptr_t out_length, uintptr_t from, int length';
  const final = 'uintptr_t context, uintptr_t out, uintptr_t out_length';
  const functions = {
    newContext: declareOptional('uintptr_t EVP_CIPHER_CTX_new()', library),
    freeContext: declareOptional('void EVP_CIPHER_CTX_free(uintptr_t context)', library),
    encryptInit: declareOptional(`int EVP_EncryptInit_ex(${init})`, library),
    encryptUpdate: declareOptional(`int EVP_EncryptUpdate(${update})`, library),
    encryptFinal: declareOptional(`int EVP_EncryptFinal_ex(${final})`, library),
    decryptInit: declareOptional(`int EVP_DecryptInit_ex(${init})`, library),
    decryptUpdate: declareOptional(`int EVP_DecryptUpdate(${update})`, library),
    decryptFinal: declareOptional(`int EVP_DecryptFinal_ex(${final})`, library),
    control: declareOptional(
      'int EVP_CIPHER_CTX_ctrl(uintptr_t context, int command, int size, uintptr_t pointer)',
      library,
    ),
    clearErrors: declareOptional('void ERR_clear_error()', library),
  };
  const chacha = declareOptional('uintptr_t EVP_chacha20_poly1305()', library);
  const ciphers = {
    'aes-128-gcm': declareOptional('uintptr_t EVP_aes_128_gcm()', library),
    'aes-192-gcm': declareOptional('uintptr_t EVP_aes_192_gcm()', library),
    'aes-256-gcm': declareOptional('uintptr_t EVP_aes_256_gcm()', library),
    'chacha20-poly1305': chacha,
    'xchacha20-poly1305': chacha,
  };
  if (Object.values(functions).includes(undefined)) return undefined;
  if (Object.values(ciphers).includes(undefined)) return undefined;
  return { ...functions, ciphers } as unknown as Evp;
}

/** Undefined when OpenSSL refuses a cipher, as its FIPS provider refuses ChaCha20. */
function createBackend(evp: Evp): AeadBackend | undefined {
  const sealing = createContexts(evp, evp.encryptInit);
  const opening = createContexts(evp, evp.decryptInit);
  if (sealing === undefined || opening === undefined) return undefined;
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
  };
}

function createContexts(evp: Evp, init: Init): Record<Cipher, Context> | undefined {
  const contexts: Partial<Record<Cipher, Context>> = {};
  for (const [cipher, find] of Object.entries(evp.ciphers)) {
    const address = evp.newContext();
    if (address === 0) return undefined;
    if (init(address, find(), 0, keyAddress, nonceAddress) !== 1) {
      evp.freeContext(address);
      evp.clearErrors();
      return undefined;
    }
    contexts[cipher as Cipher] = { address, owner: undefined };
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
    sealWith(this.evp, context.address, key, block, offset, length);
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
    const good = openWith(this.evp, context.address, key, source, offset, length, target, targetOffset);
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
    sealWith(this.evp, this.context.address, keyAddress, block, offset, length);
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
    const good = openWith(this.evp, address, keyAddress, source, offset, length, target, targetOffset);
    if (good) this.counter += 1;
    return good;
  }
}

/**
 * Where the key stands that the next init call puts into the context. Nobody owns the context until that call and those
 * behind it are through: should one throw, no stream may believe that its key is in there.
 */
function lend(context: Context, subkey: Uint8Array): number {
  context.owner = undefined;
  scratch.bytes.set(subkey, keyAt);
  return keyAddress;
}

function sealWith(
  evp: Evp,
  context: number,
  key: number,
  block: Block,
  offset: number,
  length: number,
): void {
  const data = block.at(offset, length + tagSize);
  const done =
    evp.encryptInit(context, 0, 0, key, nonceAddress) === 1 &&
    evp.encryptUpdate(context, data, outLengthAddress, data, length) === 1 &&
    evp.encryptFinal(context, finalAddress, outLengthAddress) === 1 &&
    evp.control(context, EVP_CTRL_AEAD_GET_TAG, tagSize, data + length) === 1;
  if (!done) throw new Error('OpenSSL failed to encrypt: out of memory, or its context is broken');
}

function openWith(
  evp: Evp,
  context: number,
  key: number,
  source: Block,
  offset: number,
  length: number,
  target: Block,
  targetOffset: number,
): boolean {
  const from = source.at(offset, length + tagSize);
  const to = target.at(targetOffset, length);
  const begun =
    evp.decryptInit(context, 0, 0, key, nonceAddress) === 1 &&
    evp.control(context, EVP_CTRL_AEAD_SET_TAG, tagSize, from + length) === 1 &&
    (length === 0 || evp.decryptUpdate(context, to, outLengthAddress, from, length) === 1);
  if (!begun) throw new Error('OpenSSL failed to decrypt: out of memory, or its context is broken');
  if (evp.decryptFinal(context, finalAddress, outLengthAddress) === 1) return true;
  // OpenSSL 3.0 and 3.5 queue no error for a wrong tag. If another does, node:crypto must not take it for its own.
  evp.clearErrors();
  return false;
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
