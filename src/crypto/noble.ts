/**
 * The portable backend, on @noble/ciphers. It is also the reference that every other backend is tested against, so it is
 * written to be read: a cipher object, a slice and a copy for each operation.
 */
import { ecb, gcm } from '@noble/ciphers/aes.js';
import { chacha20poly1305, hchacha, xchacha20poly1305 } from '@noble/ciphers/chacha.js';
import type { Block } from '../linux/memory.js';
import type { AeadBackend, BlockCipher, Opener, PacketCipher, Sealer } from './aead.js';
import { tagSize, type Cipher, type Method } from './methods.js';

export { hchacha };

const blockSize = 16;

interface OneShot {
  encrypt(plaintext: Uint8Array): Uint8Array;
  decrypt(ciphertext: Uint8Array): Uint8Array;
}

const ciphers: Record<Cipher, (key: Uint8Array, nonce: Uint8Array) => OneShot> = {
  'aes-128-gcm': gcm,
  'aes-192-gcm': gcm,
  'aes-256-gcm': gcm,
  'chacha20-poly1305': chacha20poly1305,
  'xchacha20-poly1305': xchacha20poly1305,
};

export const nobleBackend: AeadBackend = {
  name: 'noble',
  sealer: (method, subkey) => new NobleSealer(method, subkey),
  opener: (method, subkey) => new NobleOpener(method, subkey),
  packetCipher: (cipher, key) => new NoblePacketCipher(cipher, key),
  blockCipher: (key) => new NobleBlockCipher(key),
};

class NobleSealer implements Sealer {
  private readonly method: Method;
  private readonly subkey: Uint8Array;
  private counter = 0;

  constructor(method: Method, subkey: Uint8Array) {
    this.method = method;
    this.subkey = subkey;
  }

  seal(block: Block, offset: number, length: number): void {
    block.at(offset, length + tagSize);
    const cipher = ciphers[this.method.cipher](
      this.subkey,
      counterNonce(this.counter, this.method.nonceSize),
    );
    const sealed = cipher.encrypt(block.bytes.subarray(offset, offset + length));
    block.bytes.set(sealed, offset);
    this.counter += 1;
  }
}

class NobleOpener implements Opener {
  private readonly method: Method;
  private readonly subkey: Uint8Array;
  private counter = 0;

  constructor(method: Method, subkey: Uint8Array) {
    this.method = method;
    this.subkey = subkey;
  }

  open(source: Block, offset: number, length: number, target: Block, targetOffset: number): boolean {
    source.at(offset, length + tagSize);
    target.at(targetOffset, length);
    const cipher = ciphers[this.method.cipher](
      this.subkey,
      counterNonce(this.counter, this.method.nonceSize),
    );
    let opened: Uint8Array;
    try {
      opened = cipher.decrypt(source.bytes.subarray(offset, offset + length + tagSize));
    } catch {
      return false;
    }
    target.bytes.set(opened, targetOffset);
    this.counter += 1;
    return true;
  }
}

class NoblePacketCipher implements PacketCipher {
  private readonly cipher: Cipher;
  private key: Uint8Array;

  constructor(cipher: Cipher, key: Uint8Array) {
    this.cipher = cipher;
    this.key = key;
  }

  changeKey(key: Uint8Array): void {
    this.key = key;
  }

  seal(block: Block, offset: number, length: number, nonces: Block, nonceAt: number): void {
    block.at(offset, length + tagSize);
    const sealed = this.with(nonces, nonceAt).encrypt(block.bytes.subarray(offset, offset + length));
    block.bytes.set(sealed, offset);
  }

  open(block: Block, offset: number, length: number, nonces: Block, nonceAt: number): boolean {
    block.at(offset, length + tagSize);
    const cipher = this.with(nonces, nonceAt);
    let opened: Uint8Array;
    try {
      opened = cipher.decrypt(block.bytes.subarray(offset, offset + length + tagSize));
    } catch {
      return false;
    }
    block.bytes.set(opened, offset);
    return true;
  }

  private with(nonces: Block, nonceAt: number): OneShot {
    const size = this.cipher === 'xchacha20-poly1305' ? 24 : 12;
    nonces.at(nonceAt, size);
    return ciphers[this.cipher](this.key, nonces.bytes.subarray(nonceAt, nonceAt + size));
  }
}

class NobleBlockCipher implements BlockCipher {
  private readonly key: Uint8Array;

  constructor(key: Uint8Array) {
    this.key = key;
  }

  encrypt(block: Block, offset: number): void {
    block.at(offset, blockSize);
    block.bytes.set(this.cipher.encrypt(block.bytes.subarray(offset, offset + blockSize)), offset);
  }

  decrypt(block: Block, offset: number): void {
    block.at(offset, blockSize);
    block.bytes.set(this.cipher.decrypt(block.bytes.subarray(offset, offset + blockSize)), offset);
  }

  /** A new one each time: noble's encrypt once. */
  private get cipher(): OneShot {
    return ecb(this.key, { disablePadding: true });
  }
}

/** The nonce of operation number `counter`. 2^53 operations are 2^65 bytes, so a Number holds the count. */
export function counterNonce(counter: number, size: number): Uint8Array {
  const nonce = Buffer.alloc(size);
  nonce.writeUInt32LE(counter >>> 0, 0);
  nonce.writeUInt32LE(Math.floor(counter / 2 ** 32), 4);
  return nonce;
}
