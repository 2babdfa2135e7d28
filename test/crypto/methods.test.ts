import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  defaultMethodName,
  explainUnknownMethod,
  findMethod,
  methodNames,
  methods,
  retiredMethods,
} from '../../src/crypto/methods.js';

test('sizes of the methods are those of SIP004 and SIP022', () => {
  const sizes = methods.map(({ name, keySize, saltSize, nonceSize }) => [name, keySize, saltSize, nonceSize]);
  assert.deepEqual(sizes, [
    ['aes-128-gcm', 16, 16, 12],
    ['aes-192-gcm', 24, 24, 12],
    ['aes-256-gcm', 32, 32, 12],
    ['chacha20-ietf-poly1305', 32, 32, 12],
    ['xchacha20-ietf-poly1305', 32, 32, 24],
    ['2022-blake3-aes-128-gcm', 16, 16, 12],
    ['2022-blake3-aes-256-gcm', 32, 32, 12],
    ['2022-blake3-chacha20-poly1305', 32, 32, 12],
  ]);
});

test('the methods of the 2022 edition are those that begin with 2022-, and two of them have identity headers', () => {
  for (const { name, edition } of methods)
    assert.equal(edition, name.startsWith('2022-') ? '2022' : 'aead', name);
  const names = methods.filter((method) => method.hasIdentityHeaders).map((method) => method.name);
  assert.deepEqual(names, ['2022-blake3-aes-128-gcm', '2022-blake3-aes-256-gcm']);
});

test('capitals and blanks around a method name do not matter', () => {
  assert.equal(findMethod(' AES-256-GCM\n')?.name, 'aes-256-gcm');
  assert.equal(findMethod('ChaCha20-IETF-Poly1305')?.name, 'chacha20-ietf-poly1305');
});

test('the default method is one we have', () => {
  assert.equal(findMethod(defaultMethodName)?.name, 'chacha20-ietf-poly1305');
});

test('no other name finds a method, and the reason lists every valid one', () => {
  const names = [
    ...retiredMethods,
    'chacha20-poly1305',
    'aes_256_gcm',
    'aes-256',
    '',
    'toString',
    '__proto__',
  ];
  for (const name of names) {
    assert.equal(findMethod(name), undefined, name);
    for (const valid of methodNames) assert.ok(explainUnknownMethod(name).includes(valid), name);
  }
});

test('a stream cipher is refused as what it is', () => {
  const names = [
    'rc4-md5',
    'AES-256-CFB',
    'aes-128-ctr',
    'camellia-192-cfb',
    'bf-cfb',
    'salsa20',
    'chacha20',
    'chacha20-ietf',
  ];
  for (const name of names) assert.match(explainUnknownMethod(name), /retired stream cipher/, name);
  for (const name of ['none', 'plain', 'table'])
    assert.match(explainUnknownMethod(name), /does not encrypt/, name);
});

test('a near miss is answered with the method that was meant', () => {
  const pairs = [
    ['chacha20-poly1305', 'chacha20-ietf-poly1305'],
    ['xchacha20-poly1305', 'xchacha20-ietf-poly1305'],
    ['AEAD_AES_256_GCM', 'aes-256-gcm'],
    ['aes_128_gcm', 'aes-128-gcm'],
    ['aes256gcm', 'aes-256-gcm'],
  ] as const;
  for (const [typed, meant] of pairs) {
    assert.ok(explainUnknownMethod(typed).includes(`did you mean "${meant}"`), typed);
  }
});

test('the methods of the 2022 edition that are not offered are refused as that', () => {
  for (const name of ['2022-blake3-chacha8-poly1305', '2022-BLAKE3-chacha12-poly1305']) {
    assert.equal(findMethod(name), undefined);
    assert.match(
      explainUnknownMethod(name),
      /optional in the 2022 edition and not offered here; valid/,
      name,
    );
  }
  assert.match(explainUnknownMethod('2022-blake3-aes-192-gcm'), /^unknown method/);
  assert.match(
    explainUnknownMethod('2022-blake3-chacha20-ietf-poly1305'),
    /mean "2022-blake3-chacha20-poly1305"/,
  );
});
