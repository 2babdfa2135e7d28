import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  identitySubkey,
  parsePsk,
  parsePskChain,
  pskHash,
  sessionSubkey2022,
} from '../../src/crypto/keys-2022.js';
import { findMethod } from '../../src/crypto/methods.js';
import { ConfigError } from '../../src/errors.js';
import { fromHex, toHex, vectors } from '../helpers/vectors.js';

const aes128 = findMethod('2022-blake3-aes-128-gcm')!;
const aes256 = findMethod('2022-blake3-aes-256-gcm')!;
const chacha = findMethod('2022-blake3-chacha20-poly1305')!;

test('PSK and salt give the session subkey of the vectors, for streams and for UDP sessions', () => {
  const uses = new Set<string>();
  for (const { psk_hex, salt_hex, subkey_hex, use } of vectors.kdf.blake3_derive_key_session) {
    assert.equal(toHex(sessionSubkey2022(fromHex(psk_hex), fromHex(salt_hex))), subkey_hex, use);
    uses.add(use.slice(0, 3));
  }
  assert.deepEqual([...uses], ['tcp', 'udp']);
});

test('identity PSK and salt give the identity subkey of the vectors', () => {
  for (const { ipsk_hex, salt_hex, subkey_hex } of vectors.kdf.blake3_derive_key_identity) {
    assert.equal(toHex(identitySubkey(fromHex(ipsk_hex), fromHex(salt_hex))), subkey_hex);
  }
});

test('the hash of a PSK is that of the vectors', () => {
  for (const { psk_hex, hash16_hex } of vectors.kdf.blake3_psk_hash16) {
    assert.equal(toHex(pskHash(fromHex(psk_hex))), hash16_hex);
  }
});

const key16 = fromHex('fbefbefffefdfcfbfaf9f8f7f6f5f4f3');
const key32 = fromHex('fbefbefffefdfcfbfaf9f8f7f6f5f4f3f2f1f0efeeedecebeae9e8e7e6e5e4e3');
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
const bare = (bytes: Uint8Array): string => base64(bytes).replace(/=+$/, '');

test('a PSK is taken with and without padding, and with blanks and line ends around it', () => {
  for (const [method, key] of [
    [aes128, key16],
    [aes256, key32],
    [chacha, key32],
  ] as const) {
    for (const text of [
      base64(key),
      bare(key),
      `${base64(key)}\n`,
      ` ${base64(key)}\r\n`,
      `\t${bare(key)} `,
    ]) {
      assert.equal(toHex(parsePsk(text, method)), toHex(key), JSON.stringify(text));
    }
  }
});

/** [what is given to 2022-blake3-aes-256-gcm, what the message says came] */
const mistakes: readonly (readonly [string, RegExp])[] = [
  ['', /got nothing;/],
  [' \n', /got nothing;/],
  ['barfoo!', /got 7 characters that are not base64 \(a password\?/],
  ['correct horse battery staple correct horse', /got 42 characters that are not base64/],
  ['Zwanzig32ASCIIZeichenWieEinPassw', /got 24 bytes \(32 characters, perhaps a password: none is taken\)/],
  [toHex(key32), /got 32 bytes in hexadecimal/],
  [toHex(key32).toUpperCase(), /got 32 bytes in hexadecimal/],
  [toHex(key16), /got 16 bytes in hexadecimal/],
  [base64(key16), /got 16 bytes;/],
  [base64(key32.subarray(0, 31)), /got 31 bytes;/],
  [base64(Uint8Array.of(...key32, 7)), /got 33 bytes;/],
  [
    Buffer.from(key32).toString('base64url'),
    /got 32 bytes in the URL-safe alphabet: write \+ for - and \/ for _/,
  ],
  [`${Buffer.from(key32).toString('base64url')}=`, /got 32 bytes in the URL-safe alphabet/],
  [`${base64(key32)}=`, /got 45 characters that are not base64/],
  [`${base64(key32).slice(0, 20)}\n${base64(key32).slice(20)}`, /got 45 characters that are not base64/],
  [`${bare(key32).slice(0, -1)}/`, /got 43 characters that are not base64/], // bits that no byte takes
  [`${base64(key32)}:${base64(key32)}`, /got several keys with colons between them/],
];

test('a PSK that cannot be is refused: what was wanted, what came, and how to make one', () => {
  for (const [text, got] of mistakes) {
    assert.throws(
      () => parsePsk(text, aes256),
      (error: unknown) => {
        assert.ok(error instanceof ConfigError);
        assert.match(
          error.message,
          /^2022-blake3-aes-256-gcm wants a key of exactly 32 bytes in base64, got /,
        );
        assert.match(error.message, got);
        assert.match(error.message, /openssl rand -base64 32$/);
        return true;
      },
      text,
    );
  }
});

test('the 16-byte method asks for 16 bytes, and takes no 32', () => {
  assert.throws(
    () => parsePsk(base64(key32), aes128),
    /exactly 16 bytes.*got 32 bytes;.*openssl rand -base64 16$/,
  );
});

test('no message repeats any part of what was typed', () => {
  const texts = [...mistakes.map(([text]) => text), `${base64(key16)}:${base64(key32)}:x`];
  for (const text of texts.filter((one) => one.trim().length >= 6)) {
    for (const parse of [() => parsePsk(text, aes256), () => parsePskChain(text, aes256)]) {
      try {
        parse();
      } catch (error) {
        for (let at = 0; at + 6 <= text.length; at += 1) {
          assert.ok(!(error as Error).message.includes(text.slice(at, at + 6)), `${text} at ${at}`);
        }
      }
    }
  }
});

test('"iPSK:uPSK" is a chain of which the last key is ours', () => {
  const [one, two, three] = [key32, new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)];
  for (const [text, ...expected] of [
    [base64(one), one],
    [`${base64(one)}:${base64(two)}`, two, one],
    [`${bare(one)}:${base64(two)}:${bare(three)}\n`, three, one, two],
  ] as const) {
    const { key, identityKeys } = parsePskChain(text, aes256);
    assert.deepEqual([key, ...identityKeys].map(toHex), expected.map(toHex));
  }
});

const chainOf = (size: number): string => Array.from({ length: size }, () => base64(key32)).join(':');

test('a chain has 9 keys at most', () => {
  assert.equal(parsePskChain(chainOf(9), aes256).identityKeys.length, 8);
  assert.throws(() => parsePskChain(chainOf(10), aes256), /at most 9 keys in "iPSK:uPSK", got 10/);
});

test('a bad key in a chain is named by its place', () => {
  assert.throws(
    () => parsePskChain(`${base64(key32)}:${base64(key16)}`, aes256),
    /^ConfigError: key 2 of 2: 2022-blake3-aes-256-gcm wants a key of exactly 32 bytes in base64, got 16 bytes;/,
  );
  assert.throws(() => parsePskChain(`:${base64(key32)}`, aes256), /key 1 of 2: .*got nothing/);
  assert.throws(() => parsePskChain(`${base64(key32)}:`, aes256), /key 2 of 2: .*got nothing/);
});

test('the ChaCha20 method refuses a chain by name', () => {
  assert.throws(
    () => parsePskChain(`${base64(key32)}:${base64(key32)}`, chacha),
    /^ConfigError: 2022-blake3-chacha20-poly1305 has no identity headers.*"iPSK:uPSK"/,
  );
});
