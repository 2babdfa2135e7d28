// A Shadowsocks AEAD peer made by hand on node:crypto, slow and plain, so that tests can send what no proper client or
// server would, and look into what ours sends. SIP004:
//
//   stream = salt (as long as the key) | chunk | chunk ...
//   chunk  = AEAD(u16be length) tag 16 | AEAD(payload) tag 16      nonce: little-endian counter, one a seal
import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from 'node:crypto';
import { isIPv6 } from 'node:net';

const tagSize = 16;
const lengthSize = 2;

const ciphers = {
  'aes-128-gcm': ['aes-128-gcm', 16],
  'aes-192-gcm': ['aes-192-gcm', 24],
  'aes-256-gcm': ['aes-256-gcm', 32],
  'chacha20-ietf-poly1305': ['chacha20-poly1305', 32],
} as const;

/** The methods that node:crypto can speak; xchacha20-ietf-poly1305 is not among them. */
export type PeerMethod = keyof typeof ciphers;

/** EVP_BytesToKey with MD5, no salt, one round. */
export function passwordKey(method: PeerMethod, password: string): Buffer {
  const [, keySize] = ciphers[method];
  const blocks: Buffer[] = [];
  while (blocks.length * 16 < keySize) {
    const hash = createHash('md5').update(blocks.at(-1) ?? Buffer.alloc(0));
    blocks.push(hash.update(password, 'utf8').digest());
  }
  return Buffer.concat(blocks).subarray(0, keySize);
}

class Direction {
  readonly #cipher: string;
  readonly #key: Buffer;
  #counter = 0;

  constructor(method: PeerMethod, masterKey: Buffer, salt: Buffer) {
    this.#cipher = ciphers[method][0];
    this.#key = Buffer.from(hkdfSync('sha1', masterKey, salt, 'ss-subkey', masterKey.length));
  }

  #nonce(): Buffer {
    const nonce = Buffer.alloc(12);
    nonce.writeUInt32LE(this.#counter++, 0);
    return nonce;
  }

  seal(plain: Buffer): Buffer {
    const cipher = createCipheriv(this.#cipher as 'aes-256-gcm', this.#key, this.#nonce(), {
      authTagLength: tagSize,
    });
    return Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
  }

  open(sealed: Buffer): Buffer {
    const decipher = createDecipheriv(this.#cipher as 'aes-256-gcm', this.#key, this.#nonce(), {
      authTagLength: tagSize,
    });
    decipher.setAuthTag(sealed.subarray(-tagSize));
    return Buffer.concat([decipher.update(sealed.subarray(0, -tagSize)), decipher.final()]);
  }
}

export class PeerSealer {
  readonly salt: Buffer;
  readonly #direction: Direction;

  constructor(method: PeerMethod, password: string, salt = randomBytes(ciphers[method][1])) {
    this.salt = salt;
    this.#direction = new Direction(method, passwordKey(method, password), salt);
  }

  /** One chunk; `length` lies about the payload's length if it is given. */
  chunk(payload: Buffer, length = payload.length): Buffer {
    const prefix = Buffer.from([length >> 8, length & 0xff]);
    const sealedLength = this.#direction.seal(prefix);
    return Buffer.concat([sealedLength, this.#direction.seal(payload)]);
  }
}

/** Opens the chunks of a whole captured stream; what is incomplete at its end is left out. */
export function openStream(
  method: PeerMethod,
  password: string,
  stream: Buffer,
): { salt: Buffer; chunks: Buffer[] } {
  const saltSize = ciphers[method][1];
  const salt = stream.subarray(0, saltSize);
  const direction = new Direction(method, passwordKey(method, password), salt);
  const chunks: Buffer[] = [];
  for (let at = saltSize; at + lengthSize + tagSize <= stream.length;) {
    const length = direction.open(stream.subarray(at, at + lengthSize + tagSize)).readUInt16BE();
    at += lengthSize + tagSize;
    if (at + length + tagSize > stream.length) break;
    chunks.push(direction.open(stream.subarray(at, at + length + tagSize)));
    at += length + tagSize;
  }
  return { salt, chunks };
}

/** ATYP 1 or 4, address, port (RFC 1928 section 5). IPv6 only with exactly one `::`. */
export function targetAddress(host: string, port: number): Buffer {
  const portBytes = Buffer.from([port >> 8, port & 0xff]);
  if (!isIPv6(host)) return Buffer.concat([Buffer.from([1, ...host.split('.').map(Number)]), portBytes]);

  const [head = [], tail = []] = host.split('::').map((part) => part.split(':').filter(Boolean));
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => '0');
  const groups = [...head, ...zeros, ...tail].map((group) => group.padStart(4, '0'));
  return Buffer.concat([Buffer.from([4]), Buffer.from(groups.join(''), 'hex'), portBytes]);
}
