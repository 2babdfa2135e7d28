import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { hkdf } from '@noble/hashes/hkdf.js';
import { sha1 } from '@noble/hashes/legacy.js';
import {
  masterKeyFromBase64,
  masterKeyFromPassword,
  sessionSubkey,
  sessionSubkeyInto,
} from '../../src/crypto/keys.js';
import { ConfigError } from '../../src/errors.js';
import { fromHex, toHex, vectors } from '../helpers/vectors.js';

test('a password gives the master key of the vectors', () => {
  for (const vector of vectors.kdf.evp_bytes_to_key_md5) {
    assert.equal(
      toHex(masterKeyFromPassword(vector.password, vector.key_length)),
      vector.key_hex,
      vector.password,
    );
  }
});

test('master key and salt give the subkey of the vectors', () => {
  for (const vector of vectors.kdf.hkdf_sha1_ss_subkey) {
    assert.equal(toHex(sessionSubkey(fromHex(vector.key_hex), fromHex(vector.salt_hex))), vector.subkey_hex);
  }
});

test('the subkey is that of noble for 300 random keys of mixed sizes', () => {
  for (let i = 0; i < 300; i += 1) {
    const size = [16, 24, 32][(i * 7) % 3]!; // a shorter one must not see what a longer one left behind
    const key = randomBytes(size);
    const salt = randomBytes(size);
    const expected = hkdf(sha1, key, salt, Buffer.from('ss-subkey'), size);
    assert.equal(toHex(sessionSubkey(key, salt)), toHex(expected), `${size} bytes`);
  }
});

test('a subkey from a salt amid other bytes is the same, and nothing else is written', () => {
  for (const size of [32, 16, 24]) {
    const key = randomBytes(size);
    const bytes = randomBytes(100);
    const before = toHex(bytes);
    const target = new Uint8Array(size);
    sessionSubkeyInto(target, key, bytes, 37);
    assert.equal(toHex(target), toHex(sessionSubkey(key, bytes.subarray(37, 37 + size))));
    assert.equal(toHex(bytes), before);
  }
});

test('a subkey is not changed by the ones derived after it', () => {
  const first = sessionSubkey(new Uint8Array(32), new Uint8Array(32));
  const before = toHex(first);
  sessionSubkey(new Uint8Array(32).fill(1), new Uint8Array(32).fill(2));
  assert.equal(toHex(first), before);
});

const rawKey = fromHex('fbefbefffefdfcfbfaf9f8f7f6f5f4f3f2f1f0efeeedecebeae9e8e7e6e5e4e3');

test('a base64 key is taken in both alphabets, with and without padding', () => {
  const standard = Buffer.from(rawKey).toString('base64');
  const urlSafe = Buffer.from(rawKey).toString('base64url');
  assert.match(standard, /[+/].*=$/);
  assert.match(urlSafe, /[-_]/);
  for (const text of [standard, standard.replace('=', ''), urlSafe, `${urlSafe}=`]) {
    assert.equal(toHex(masterKeyFromBase64(text, 32)), toHex(rawKey), text);
  }
});

test('a base64 key may be longer than the method wants, not shorter', () => {
  const text = Buffer.from(rawKey).toString('base64url');
  assert.equal(toHex(masterKeyFromBase64(text, 31)), toHex(rawKey.subarray(0, 31)));
  assert.equal(toHex(masterKeyFromBase64(text, 32)), toHex(rawKey));
  assert.throws(() => masterKeyFromBase64(text, 33), /expected base64 of a 33-byte key, got one of 32 bytes/);
  assert.throws(() => masterKeyFromBase64('', 16), /got one of 0 bytes/);
});

test('what is not base64 is refused, and never repeated in the message', () => {
  const good = Buffer.from(rawKey).toString('base64url');
  const bad = [
    `${good}\n`,
    ` ${good}`,
    `${good.slice(0, 20)} ${good.slice(20)}`,
    `${good}==`,
    `${good}===`,
    `${good.slice(0, 20)}=${good.slice(21)}`,
    good.slice(0, -2), // 41 characters are no whole number of bytes
    `${good.slice(0, -1)}_`, // bits that no byte takes
    `${good.slice(0, -1)}é`,
    'correct horse battery staple correct horse',
  ];
  for (const text of bad) {
    assert.throws(
      () => masterKeyFromBase64(text, 16),
      (error: unknown) => error instanceof ConfigError && !error.message.includes(text.trim().slice(0, 8)),
      text,
    );
  }
});
