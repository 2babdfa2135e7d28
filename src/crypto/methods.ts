/** The one table of encryption methods, and what is known of the names that are not in it. */

export type Cipher =
  'aes-128-gcm' | 'aes-192-gcm' | 'aes-256-gcm' | 'chacha20-poly1305' | 'xchacha20-poly1305';

export interface Method {
  readonly name: string;
  readonly keySize: number;
  /** Equal to the key size in every method (SIP004, SIP022). */
  readonly saltSize: number;
  /** Of the stream's counter nonce. */
  readonly nonceSize: number;
  /** Of TCP streams. In UDP packets 2022-blake3-chacha20-poly1305 uses XChaCha20 (SIP022, section 3.2). */
  readonly cipher: Cipher;
  /** Which wire format the method speaks: `aead` is SIP004 with SIP007 keys, `2022` is SIP022. */
  readonly edition: Edition;
  /** Whether a client may name a user among several (SIP023): in the AES methods of the 2022 edition. */
  readonly hasIdentityHeaders: boolean;
}

export type Edition = 'aead' | '2022';

/** Every AEAD of every method has a tag of this size, behind the ciphertext, and no associated data (SIP004). */
export const tagSize = 16;

const table = [
  ['aes-128-gcm', 16, 12, 'aes-128-gcm', 'aead'],
  ['aes-192-gcm', 24, 12, 'aes-192-gcm', 'aead'],
  ['aes-256-gcm', 32, 12, 'aes-256-gcm', 'aead'],
  ['chacha20-ietf-poly1305', 32, 12, 'chacha20-poly1305', 'aead'],
  ['xchacha20-ietf-poly1305', 32, 24, 'xchacha20-poly1305', 'aead'],
  ['2022-blake3-aes-128-gcm', 16, 12, 'aes-128-gcm', '2022'],
  ['2022-blake3-aes-256-gcm', 32, 12, 'aes-256-gcm', '2022'],
  ['2022-blake3-chacha20-poly1305', 32, 12, 'chacha20-poly1305', '2022'],
] as const;

export const methods: readonly Method[] = table.map(([name, keySize, nonceSize, cipher, edition]) =>
  Object.freeze({
    name,
    keySize,
    saltSize: keySize,
    nonceSize,
    cipher,
    edition,
    hasIdentityHeaders: edition === '2022' && cipher !== 'chacha20-poly1305',
  }),
);

export const methodNames: readonly string[] = methods.map((method) => method.name);

/** What shadowsocks-libev 3.3.5 documents and uses when no method is given. */
export const defaultMethodName = 'chacha20-ietf-poly1305';

/** The method of this name; capitals and spaces around it do not matter. */
export function findMethod(name: string): Method | undefined {
  const wanted = normalize(name);
  return methods.find((method) => method.name === wanted);
}

const unencrypted: ReadonlySet<string> = new Set(['none', 'plain', 'table', 'dummy']);

/**
 * Ciphers that authenticate nothing. Other Shadowsocks programs had or have them; we refuse them: whoever is on the path
 * can change what they carry, and learn where it goes.
 */
export const retiredMethods: ReadonlySet<string> = new Set([
  ...unencrypted,
  'rc4',
  'rc4-md5',
  'rc4-md5-6',
  ...['128', '192', '256'].flatMap((bits) =>
    ['cfb', 'cfb1', 'cfb8', 'ofb', 'ctr'].map((mode) => `aes-${bits}-${mode}`),
  ),
  ...['128', '192', '256'].flatMap((bits) =>
    ['cfb', 'cfb1', 'cfb8', 'ofb', 'ctr'].map((mode) => `camellia-${bits}-${mode}`),
  ),
  'bf-cfb',
  'cast5-cfb',
  'des-cfb',
  'idea-cfb',
  'rc2-cfb',
  'seed-cfb',
  'salsa20',
  'chacha20',
  'chacha20-ietf',
  'xchacha20',
]);

/** Names that other programs give to our methods, or that lack a part of the name. */
const otherNames: ReadonlyMap<string, string> = new Map([
  ['chacha20-poly1305', 'chacha20-ietf-poly1305'],
  ['ietf-chacha20-poly1305', 'chacha20-ietf-poly1305'],
  ['aead_chacha20_poly1305', 'chacha20-ietf-poly1305'],
  ['xchacha20-poly1305', 'xchacha20-ietf-poly1305'],
  ['aead_aes_128_gcm', 'aes-128-gcm'],
  ['aead_aes_192_gcm', 'aes-192-gcm'],
  ['aead_aes_256_gcm', 'aes-256-gcm'],
  ['2022-blake3-chacha20-ietf-poly1305', '2022-blake3-chacha20-poly1305'],
]);

/** Methods of the 2022 edition that its text leaves to the implementer, with fewer rounds than anything else here. */
const reducedRounds: ReadonlySet<string> = new Set([
  '2022-blake3-chacha8-poly1305',
  '2022-blake3-chacha12-poly1305',
]);

/**
 * Why a name that `findMethod` does not know is refused, in one sentence without a full stop: to be put behind the name
 * of the file and key.
 */
export function explainUnknownMethod(name: string): string {
  const wanted = normalize(name);
  const valid = `valid methods: ${methodNames.join(', ')}`;
  if (wanted === '') return `the method is empty; ${valid}`;
  if (unencrypted.has(wanted)) return `method "${wanted}" does not encrypt; ${valid}`;
  if (retiredMethods.has(wanted)) {
    return `method "${wanted}" is a retired stream cipher without authentication; ${valid}`;
  }
  if (reducedRounds.has(wanted)) {
    return `method "${wanted}" is optional in the 2022 edition and not offered here; ${valid}`;
  }
  const meant = otherNames.get(wanted) ?? methodNames.find((known) => strip(known) === strip(wanted));
  if (meant !== undefined) return `unknown method "${wanted}", did you mean "${meant}"? ${valid}`;
  return `unknown method "${wanted}"; ${valid}`;
}

function normalize(name: string): string {
  return name.trim().toLowerCase();
}

/** `aes_256_gcm`, `aes256gcm` and `AES-256-GCM` are one name to whoever typed them. */
function strip(name: string): string {
  return name.replaceAll(/[^a-z0-9]/g, '');
}
