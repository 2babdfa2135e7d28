/**
 * Keys of the 2022 edition (SIP022, section 2; SIP023):
 *
 *     PSK --BLAKE3 derive_key with the stream's salt, or the UDP session's identifier--> session subkey
 *     iPSK --BLAKE3 derive_key with the stream's salt--> identity subkey, which encrypts one block that names the next PSK
 *
 * A PSK (pre-shared key) comes from a random source and stands in the configuration as base64. It is never made of a
 * password: whoever records one stream could try passwords as fast as hashes can be computed.
 */
import { blake3 } from '@noble/hashes/blake3.js';
import { ConfigError } from '../errors.js';
import type { Method } from './methods.js';

const sessionContext = Buffer.from('shadowsocks 2022 session subkey', 'latin1');
const identityContext = Buffer.from('shadowsocks 2022 identity subkey', 'latin1');

/** What an identity header holds of a PSK. */
export const pskHashSize = 16;

/** Ours: identity PSKs before the user's. One is usual; each is a server on the way. */
export const maxIdentityKeys = 8;

/** As long as the PSK. `salt` is that of the TCP stream, or the session identifier of the UDP packet's direction. */
export function sessionSubkey2022(psk: Uint8Array, salt: Uint8Array): Uint8Array {
  return deriveKey(sessionContext, psk, salt);
}

/** For the identity headers of a TCP request; those of UDP packets are encrypted with the iPSK itself. */
export function identitySubkey(ipsk: Uint8Array, salt: Uint8Array): Uint8Array {
  return deriveKey(identityContext, ipsk, salt);
}

function deriveKey(context: Uint8Array, key: Uint8Array, salt: Uint8Array): Uint8Array {
  const material = new Uint8Array(key.length + salt.length);
  material.set(key, 0);
  material.set(salt, key.length);
  return blake3(material, { context, dkLen: key.length });
}

/** The first 16 bytes of a PSK's BLAKE3 hash: what an identity header calls it by. */
export function pskHash(psk: Uint8Array): Uint8Array {
  return blake3(psk, { dkLen: pskHashSize });
}

/**
 * A PSK as the configuration has it: base64 in the standard alphabet, with or without padding, of exactly the method's
 * key size. Blanks and line ends around it are no part of a key and are passed over: `openssl rand -base64 32 > file`
 * ends in one, and no two keys differ by them.
 *
 * @throws {ConfigError} which says what was expected, what kind of text came, and how to make a key. It repeats none of it.
 */
export function parsePsk(text: string, method: Method): Uint8Array {
  const bare = text.trim();
  const key = decodeBase64(bare);
  if (key?.length === method.keySize) return key;
  throw refusal(method, describe(bare, key, method.keySize));
}

export interface PskChain {
  /** What sessions are derived from. */
  readonly key: Uint8Array;
  /** The identity PSKs before it, in order; empty when there is one key only. */
  readonly identityKeys: readonly Uint8Array[];
}

/**
 * A client's keys: one PSK, or `iPSK:…:uPSK`, in which each key but the last tells one server on the way which key the
 * next one takes (SIP023).
 *
 * @throws {ConfigError} as `parsePsk` does, naming the key by its place; or for several keys where the method has none.
 */
export function parsePskChain(text: string, method: Method): PskChain {
  const parts = text.split(':');
  if (parts.length === 1) return { key: parsePsk(text, method), identityKeys: [] };
  if (!method.hasIdentityHeaders) {
    throw new ConfigError(
      `${method.name} has no identity headers, so "iPSK:uPSK" cannot be used with it: ` +
        `expected one key, got ${parts.length} with colons between them`,
    );
  }
  if (parts.length > 1 + maxIdentityKeys) {
    throw new ConfigError(`expected at most ${1 + maxIdentityKeys} keys in "iPSK:uPSK", got ${parts.length}`);
  }
  const keys = parts.map((part, i) => {
    try {
      return parsePsk(part, method);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      throw new ConfigError(`key ${i + 1} of ${parts.length}: ${error.message}`);
    }
  });
  return { key: keys.at(-1)!, identityKeys: keys.slice(0, -1) };
}

function refusal({ name, keySize }: Method, got: string): ConfigError {
  return new ConfigError(
    `${name} wants a key of exactly ${keySize} bytes in base64, got ${got}; ` +
      `make a key with: openssl rand -base64 ${keySize}`,
  );
}

/** Of the standard alphabet; undefined for anything else. Bits that no byte takes must be 0. */
function decodeBase64(text: string): Uint8Array | undefined {
  const bare = text.replace(/={1,2}$/, '');
  if (bare !== text && text.length % 4 !== 0) return undefined;
  const bytes = Buffer.from(bare, 'base64');
  // Buffer.from skips what it cannot decode, so only a text that comes out again was base64.
  if (bytes.toString('base64').replaceAll('=', '') !== bare) return undefined;
  return Uint8Array.from(bytes);
}

/** What kind of text this is, in words that give none of it away but its length. */
function describe(text: string, decoded: Uint8Array | undefined, keySize: number): string {
  if (text === '') return 'nothing';
  if (text.includes(':')) return 'several keys with colons between them';
  // A hexadecimal key is base64 too, of half as many bytes again as it stands for.
  if (/^(?:[0-9a-f]{2}){16,}$/i.test(text)) return `${text.length / 2} bytes in hexadecimal`;
  if (decoded !== undefined && /[+/=]/.test(text)) return `${decoded.length} bytes`;
  if (decoded !== undefined) {
    return `${decoded.length} bytes (${text.length} characters, perhaps a password: none is taken)`;
  }
  const standard = decodeBase64(text.replaceAll('-', '+').replaceAll('_', '/'));
  if (standard?.length === keySize) {
    return `${keySize} bytes in the URL-safe alphabet: write + for - and / for _`;
  }
  return `${text.length} characters that are not base64 (a password? none is taken)`;
}
