/**
 * How a request of the 2022 edition begins (SIP022, section 3.1.3; identity headers: SIP023):
 *
 *     | salt | identity header … | fixed header | tag | variable header | tag |
 *     | S    | 16 each           | 11           | 16  | V               | 16  |     S: as long as the key
 *
 *     fixed header       | type 0 | timestamp u64be, seconds | V u16be |
 *     variable header    | target address (address.ts) | P u16be | padding P | first payload, to the end of V |
 *     identity header    AES-ECB(identity subkey of this key, hash of the next key), in the order of the chain
 *
 * A client with something to say sends it along; one without sends 1 to 900 bytes of padding, so that the size of what it
 * sends first does not tell the target. A server with users expects one identity header, which names the user; from there
 * on that user's key counts, for the answer too.
 */
import type { AeadBackend, Sealer } from '../crypto/aead.js';
import type { Credentials } from '../crypto/credentials.js';
import {
  identitySubkey,
  maxIdentityKeys,
  pskHash,
  pskHashSize,
  sessionSubkey2022,
} from '../crypto/keys-2022.js';
import { tagSize, type Method } from '../crypto/methods.js';
import { ProtocolError } from '../errors.js';
import { Block } from '../linux/memory.js';
import { maxAddressSize, readAddress } from './address.js';
import type { SaltVerdict } from '../crypto/salt-pool.js';
import type { StreamEncoder } from './stream.js';
import type { UserTable } from './user-table.js';
import {
  checkTypeAndClock,
  forged,
  maxPayload2022,
  sealedLengthSize,
  sealRecords,
  stride2022,
  typeRequest,
  writeTimestamp,
  type Clock,
  type HeaderReader,
  type Opening,
} from './tcp-2022.js';

/** From the specification: what a sender may use. A receiver takes more. */
export const maxPadding = 900;

const identityHeaderSize = pskHashSize;
const fixedHeaderSize = 1 + 8 + 2; // type, timestamp, V
const paddingLengthSize = 2;
const maxSaltSize = 32;

/** All that may stand before the first payload byte: 1348 bytes, rounded up so that payload begins a cache line. */
const headroom =
  Math.ceil(
    (maxSaltSize +
      maxIdentityKeys * identityHeaderSize +
      fixedHeaderSize +
      tagSize +
      maxAddressSize +
      paddingLengthSize +
      maxPadding) /
      64,
  ) * 64;

export interface RequestParts {
  readonly backend: AeadBackend;
  readonly method: Method;
  readonly credentials: Credentials;
  /** Fresh from the random source, and never that of another stream. Not copied. */
  readonly salt: Uint8Array;
  /** The target. Not copied. */
  readonly address: Uint8Array;
  readonly now: Clock;
  /** Padding for a first payload of this size: at most `maxPadding` bytes, and at least one if the size is 0. */
  readonly padding: (payloadSize: number) => Uint8Array;
}

export class RequestEncoder2022 implements StreamEncoder {
  start = 0;
  end = 0;
  private readonly sealer: Sealer;
  /** What the first flight needs; nothing once it is sealed. */
  private parts: RequestParts | undefined;

  constructor(parts: RequestParts) {
    const { backend, method, credentials, salt, address } = parts;
    if (salt.length !== method.saltSize) {
      throw new RangeError(`a ${method.name} salt has ${method.saltSize} bytes, got ${salt.length}`);
    }
    if (address.length > maxAddressSize) {
      throw new RangeError(`an address has at most ${maxAddressSize} bytes, got ${address.length}`);
    }
    if (credentials.identityKeys.length > maxIdentityKeys) {
      throw new RangeError(
        `${credentials.identityKeys.length} identity keys, at most ${maxIdentityKeys} have room`,
      );
    }
    this.sealer = backend.sealer(method, sessionSubkey2022(credentials.key, salt));
    this.parts = parts;
  }

  get headroom(): number {
    return headroom;
  }

  get stride(): number {
    return stride2022;
  }

  get maxPayload(): number {
    return maxPayload2022;
  }

  /** Address and padding share the variable header with the first payload. */
  get room(): number {
    if (this.parts === undefined) return Infinity;
    return maxPayload2022 - this.parts.address.length - paddingLengthSize - maxPadding;
  }

  seal(block: Block, length: number): void {
    if (length < (this.parts === undefined ? 1 : 0) || length > this.room) {
      throw new RangeError(
        `cannot seal ${length} payload bytes, expected at most ${this.room} and at least one`,
      );
    }
    if (this.parts !== undefined) return this.sealFirst(this.parts, block, length);
    this.start = headroom - sealedLengthSize;
    this.end = sealRecords(this.sealer, block, headroom, length);
  }

  /** Everything in one piece: what a server reads first must hold salt and fixed header whole. */
  private sealFirst(parts: RequestParts, block: Block, length: number): void {
    const { address, salt, now } = parts;
    const { bytes } = block;
    const padding = parts.padding(length);
    if (padding.length > maxPadding || padding.length + length < 1) {
      throw new RangeError(`${padding.length} bytes of padding for a payload of ${length}`);
    }
    // With payload the padding stands before it, in the headroom; without, it takes the payload's place.
    const variableSize = address.length + paddingLengthSize + padding.length + length;
    const variableAt = headroom - address.length - paddingLengthSize - (length === 0 ? 0 : padding.length);
    bytes.set(address, variableAt);
    bytes.writeUInt16BE(padding.length, variableAt + address.length);
    bytes.set(padding, variableAt + address.length + paddingLengthSize);

    const fixedAt = variableAt - tagSize - fixedHeaderSize;
    bytes[fixedAt] = typeRequest;
    writeTimestamp(bytes, fixedAt + 1, now());
    bytes.writeUInt16BE(variableSize, fixedAt + 1 + 8);
    this.sealer.seal(block, fixedAt, fixedHeaderSize);
    this.sealer.seal(block, variableAt, variableSize);

    const identityAt = fixedAt - parts.credentials.identityKeys.length * identityHeaderSize;
    writeIdentityHeaders(parts, block, identityAt);
    this.start = identityAt - salt.length;
    bytes.set(salt, this.start);
    this.end = variableAt + variableSize + tagSize;
    this.parts = undefined;
  }
}

function writeIdentityHeaders({ backend, credentials, salt }: RequestParts, block: Block, at: number): void {
  const { identityKeys, key } = credentials;
  identityKeys.forEach((identityKey, i) => {
    const headerAt = at + i * identityHeaderSize;
    block.bytes.set(pskHash(identityKeys[i + 1] ?? key), headerAt);
    backend.blockCipher(identitySubkey(identityKey, salt)).encrypt(block, headerAt);
  });
}

/** What all requests that come to a server are read with. */
export interface RequestKeys {
  readonly backend: AeadBackend;
  readonly method: Method;
  readonly credentials: Credentials;
  /** Of `credentials.users`. */
  readonly users: UserTable;
  readonly now: Clock;
  /**
   * Asked once a request, right after its fixed header has proved to know the key. It remembers the salt in the same step,
   * or two copies of a request could pass it together.
   */
  readonly acceptSalt: (salt: Uint8Array) => SaltVerdict;
}

/** Where headers are decrypted to; read at once, so one serves the thread. */
const openedHeader = Block.allocate(fixedHeaderSize);
const openedIdentity = Block.allocate(identityHeaderSize);

export class RequestHeader implements HeaderReader {
  /** Of the request, once its header is read. */
  salt: Uint8Array = new Uint8Array(0);
  /** Index of the user who sent it; -1 without users. */
  user = -1;
  private readonly keys: RequestKeys;

  constructor(keys: RequestKeys) {
    this.keys = keys;
  }

  get size(): number {
    const { method, credentials } = this.keys;
    const identitySize = credentials.users.length > 0 ? identityHeaderSize : 0;
    return method.saltSize + identitySize + fixedHeaderSize + tagSize;
  }

  /** The key of this request's sessions: the user's, or the only one. */
  get key(): Uint8Array {
    const { credentials } = this.keys;
    return this.user >= 0 ? credentials.users[this.user]!.key : credentials.key;
  }

  read(source: Block, from: number): Opening {
    const { backend, method, credentials, now } = this.keys;
    const { size } = this;
    const salt = Uint8Array.from(source.bytes.subarray(from, from + method.saltSize));
    if (credentials.users.length > 0) this.user = this.findUser(source, from + method.saltSize, salt);
    const opener = backend.opener(method, sessionSubkey2022(this.key, salt));
    const fixedAt = from + size - tagSize - fixedHeaderSize;
    if (!opener.open(source, fixedAt, fixedHeaderSize, openedHeader, 0)) throw forged('fixed header');
    checkTypeAndClock(openedHeader.bytes, typeRequest, now, 'client');
    const chunkSize = openedHeader.bytes.readUInt16BE(1 + 8);
    this.remember(salt);
    this.salt = salt;
    return { opener, size, chunkSize };
  }

  private findUser(source: Block, at: number, salt: Uint8Array): number {
    const { backend, credentials, users } = this.keys;
    openedIdentity.bytes.set(source.bytes.subarray(at, at + identityHeaderSize));
    backend.blockCipher(identitySubkey(credentials.key, salt)).decrypt(openedIdentity, 0);
    const user = users.find(openedIdentity.bytes, 0);
    if (user >= 0) return user;
    throw new ProtocolError(
      'UNKNOWN_USER',
      'the identity header names no user of ours: other identity key, a user that was removed, or none in the client',
    );
  }

  private remember(salt: Uint8Array): void {
    const verdict = this.keys.acceptSalt(salt);
    if (verdict === 'new') return;
    if (verdict === 'full') {
      throw new ProtocolError('SALTS_FULL', 'no room to remember the salt of one more request: refused');
    }
    throw new ProtocolError(
      'REPEATED_SALT',
      'the salt was seen before, expected a new one: a replayed stream',
    );
  }

  /** From `address | P | padding | payload` to `address | payload`, which is how a request of either edition begins. */
  unpack(target: Block, at: number, length: number): number {
    const { bytes } = target;
    const end = at + length;
    const address = readAddress(bytes, at, end);
    if (address === undefined) {
      throw new ProtocolError(
        'BAD_ADDRESS',
        `target address: longer than the variable header of ${length} bytes`,
      );
    }
    const paddingAt = address.end + paddingLengthSize;
    if (paddingAt > end) {
      throw new ProtocolError(
        'BAD_HEADER',
        `variable header of ${length} bytes: no padding length behind the address`,
      );
    }
    const paddingSize = bytes.readUInt16BE(address.end);
    const payloadAt = paddingAt + paddingSize;
    if (payloadAt > end) {
      throw new ProtocolError(
        'BAD_HEADER',
        `padding of ${paddingSize} bytes, where ${end - paddingAt} are left`,
      );
    }
    if (paddingSize === 0 && payloadAt === end) {
      throw new ProtocolError('BAD_HEADER', 'neither padding nor payload, expected one of them');
    }
    bytes.copyWithin(address.end, payloadAt, end);
    return address.end - at + (end - payloadAt);
  }
}
