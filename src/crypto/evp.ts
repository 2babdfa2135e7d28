/** OpenSSL's EVP functions, as include/openssl/evp.h declares them, and the memory that calls of them share. */
import { declareOptional, type Library } from '../linux/ffi.js';
import { Block } from '../linux/memory.js';
import { tagSize, type Cipher } from './methods.js';

const EVP_CTRL_AEAD_GET_TAG = 0x10; // include/openssl/evp.h
const EVP_CTRL_AEAD_SET_TAG = 0x11; // include/openssl/evp.h

/** EVP_EncryptInit_ex and EVP_DecryptInit_ex: a 0 leaves as it is what it stands for. */
export type Init = (context: number, cipher: number, engine: number, key: number, nonce: number) => number;
export type Update = (
  context: number,
  out: number,
  outLength: number,
  from: number,
  length: number,
) => number;
type Final = (context: number, out: number, outLength: number) => number;
type Control = (context: number, command: number, size: number, pointer: number) => number;

export interface Evp {
  newContext: () => number;
  freeContext: (context: number) => void;
  setPadding: (context: number, on: number) => number;
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
  aes128: () => number;
  aes256: () => number;
  chacha20: () => number;
}

/** Room for what the calls read and write besides the data; its parts stand at these offsets. */
export const keyAt = 0; // 32
export const nonceAt = 32; // 12, and nothing behind it is read
const outLengthAt = 48; // int
const finalAt = 64; // EVP_*Final_ex write nothing here with an AEAD, but are entitled to a block
export const scratch = Block.allocate(128);
export const scratchView = new DataView(scratch.bytes.buffer, scratch.bytes.byteOffset, scratch.size);
export const keyAddress = scratch.at(keyAt, 32);
export const nonceAddress = scratch.at(nonceAt, 12);
export const outLengthAddress = scratch.at(outLengthAt, 4);
const finalAddress = scratch.at(finalAt, 32);

/** One EVP_CIPHER_CTX, for one cipher and one direction. */
export interface Context {
  readonly address: number;
  /** Whose key is in it. */
  owner: object | undefined;
}

/** Undefined where a function is missing. */
export function declareEvp(library: Library): Evp | undefined {
  const init = 'uintptr_t context, uintptr_t cipher, uintptr_t engine, uintptr_t key, uintptr_t nonce';
  const update = 'uintptr_t context, uintptr_t out, uintptr_t out_length, uintptr_t from, int length';
  const final = 'uintptr_t context, uintptr_t out, uintptr_t out_length';
  const functions = {
    newContext: declareOptional('uintptr_t EVP_CIPHER_CTX_new()', library),
    freeContext: declareOptional('void EVP_CIPHER_CTX_free(uintptr_t context)', library),
    setPadding: declareOptional('int EVP_CIPHER_CTX_set_padding(uintptr_t context, int on)', library),
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
    aes128: declareOptional('uintptr_t EVP_aes_128_ecb()', library),
    aes256: declareOptional('uintptr_t EVP_aes_256_ecb()', library),
    chacha20: declareOptional('uintptr_t EVP_chacha20()', library),
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

/** Undefined when OpenSSL refuses the cipher, as its FIPS provider refuses ChaCha20. */
export function createContext(evp: Evp, init: Init, cipher: () => number): Context | undefined {
  const address = evp.newContext();
  if (address === 0) return undefined;
  if (init(address, cipher(), 0, keyAddress, nonceAddress) === 1) return { address, owner: undefined };
  evp.freeContext(address);
  evp.clearErrors();
  return undefined;
}

/**
 * Where the key stands that the next init call puts into the context. Nobody owns the context until that call and those
 * behind it are through: should one throw, no one may believe that its key is in there.
 */
export function lend(context: Context, key: Uint8Array): number {
  context.owner = undefined;
  scratch.bytes.set(key, keyAt);
  return keyAddress;
}

/** @param key and @param nonce addresses; 0 for the key that the context has. */
export function sealWith(
  evp: Evp,
  context: number,
  key: number,
  nonce: number,
  block: Block,
  offset: number,
  length: number,
): void {
  const data = block.at(offset, length + tagSize);
  const done =
    evp.encryptInit(context, 0, 0, key, nonce) === 1 &&
    evp.encryptUpdate(context, data, outLengthAddress, data, length) === 1 &&
    evp.encryptFinal(context, finalAddress, outLengthAddress) === 1 &&
    evp.control(context, EVP_CTRL_AEAD_GET_TAG, tagSize, data + length) === 1;
  if (!done) throw new Error('OpenSSL failed to encrypt: out of memory, or its context is broken');
}

export function openWith(
  evp: Evp,
  context: number,
  key: number,
  nonce: number,
  source: Block,
  offset: number,
  length: number,
  target: Block,
  targetOffset: number,
): boolean {
  const from = source.at(offset, length + tagSize);
  const to = target.at(targetOffset, length);
  const begun =
    evp.decryptInit(context, 0, 0, key, nonce) === 1 &&
    evp.control(context, EVP_CTRL_AEAD_SET_TAG, tagSize, from + length) === 1 &&
    (length === 0 || evp.decryptUpdate(context, to, outLengthAddress, from, length) === 1);
  if (!begun) throw new Error('OpenSSL failed to decrypt: out of memory, or its context is broken');
  if (evp.decryptFinal(context, finalAddress, outLengthAddress) === 1) return true;
  // OpenSSL 3.0 and 3.5 queue no error for a wrong tag. If another does, node:crypto must not take it for its own.
  evp.clearErrors();
  return false;
}
