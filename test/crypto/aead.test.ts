import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { selectBackend, type AeadBackend } from '../../src/crypto/aead.js';
import { methods, tagSize, type Cipher, type Method } from '../../src/crypto/methods.js';
import { counterNonce, nobleBackend } from '../../src/crypto/noble.js';
import { opensslBackend } from '../../src/crypto/openssl.js';
import { declareOptional } from '../../src/linux/ffi.js';
import { Block, checked } from '../../src/linux/memory.js';
import { fromHex, toHex, vectors } from '../helpers/vectors.js';

const openssl = opensslBackend();
const outsideChecked = checked ? false : 'SS_REDIR_CHECKED=1 is not set';

const peekError = declareOptional<() => number>('unsigned long ERR_peek_error()') ?? (() => 0);

/** Where a block cipher, a hash or an unrolled loop may go wrong: around every multiple of its step. */
const edges = [16, 32, 48, 64, 96, 128, 192, 256, 288, 320, 512, 768, 1024, 4096, 8192, 16383];
const sizes = [...new Set([1, 2, 3, ...edges.flatMap((size) => [size - 1, size, size + 1])])];

test('this Node has an OpenSSL that we can use, and it is preferred without a warning', () => {
  assert.ok(openssl !== undefined);
  const backend = selectBackend((message) => assert.fail(message));
  assert.equal(backend.name, 'openssl');
});

test('the nonce counts as in the vectors', () => {
  for (const vector of vectors.nonce) {
    const nonce = counterNonce(vector.operations_done, vector.nonce_length);
    assert.equal(toHex(nonce), vector.next_nonce_hex, `${vector.operations_done} operations`);
  }
});

test('the nonce carries into its second word', () => {
  assert.equal(toHex(counterNonce(2 ** 32 + 5, 12)), '050000000100000000000000');
});

for (const method of methods) {
  test(`${method.name}: OpenSSL and noble seal the same bytes at every size`, () => {
    const subkey = randomBytes(method.keySize);
    const sealers = [openssl!.sealer(method, subkey), nobleBackend.sealer(method, subkey)];
    for (const size of sizes) {
      const plaintext = randomBytes(size);
      const sealed = sealers.map((sealer) => sealAt(sealer.seal.bind(sealer), plaintext, 5));
      assert.equal(sealed[0], sealed[1], `${size} bytes`);
    }
  });

  for (const [sealing, opening] of [
    [openssl!, nobleBackend],
    [nobleBackend, openssl!],
    [openssl!, openssl!],
  ] as const) {
    test(`${method.name}: ${opening.name} opens what ${sealing.name} seals, into another block and in place`, () => {
      const subkey = randomBytes(method.keySize);
      const sealer = sealing.sealer(method, subkey);
      const opener = opening.opener(method, subkey);
      for (const [i, size] of sizes.entries()) {
        const plaintext = randomBytes(size);
        const source = Block.allocate(3 + size + tagSize);
        source.bytes.set(plaintext, 3);
        sealer.seal(source, 3, size);
        const inPlace = i % 2 === 1;
        const target = inPlace ? source : Block.allocate(size + 7);
        const at = inPlace ? 3 : 7;
        assert.ok(opener.open(source, 3, size, target, at), `${size} bytes`);
        assert.equal(target.bytes.toString('hex', at, at + size), plaintext.toString('hex'));
      }
    });
  }

  for (const backend of [openssl!, nobleBackend]) {
    test(`${method.name}, ${backend.name}: a flipped bit at any byte is noticed, and the nonce stays`, () => {
      const { source, opener, size } = sealedOnce(backend, method, 20);
      const target = Block.allocate(size);
      for (let i = 0; i < size + tagSize; i += 1) {
        source.bytes[i]! ^= 1 << (i % 8);
        assert.equal(opener.open(source, 0, size, target, 0), false, `byte ${i}`);
        source.bytes[i]! ^= 1 << (i % 8);
      }
      assert.equal(opener.open(source, 0, size, target, 0), true);
      assert.equal(
        opener.open(source, 0, size, target, 0),
        false,
        'the same ciphertext under the next nonce',
      );
    });

    test(`${method.name}, ${backend.name}: streams that take turns keep their own key and nonce`, () => {
      const streams = Array.from({ length: 5 }, () => {
        const subkey = randomBytes(method.keySize);
        return {
          sealer: backend.sealer(method, subkey),
          opener: backend.opener(method, subkey),
          reference: nobleBackend.sealer(method, subkey),
        };
      });
      for (let turn = 0; turn < 60; turn += 1) {
        const stream = streams[(turn * turn + (turn >> 2)) % 5]!;
        const plaintext = randomBytes(1 + (turn % 40));
        const sealed = sealAt(stream.sealer.seal.bind(stream.sealer), plaintext, 0);
        assert.equal(
          sealed,
          sealAt(stream.reference.seal.bind(stream.reference), plaintext, 0),
          `turn ${turn}`,
        );
        const source = blockOf(fromHex(sealed));
        assert.ok(stream.opener.open(source, 0, plaintext.length, source, 0), `turn ${turn}`);
        assert.equal(source.bytes.toString('hex', 0, plaintext.length), plaintext.toString('hex'));
      }
    });

    test(`${method.name}, ${backend.name}: an empty plaintext opens, and is nothing`, () => {
      const subkey = randomBytes(method.keySize);
      const source = Block.allocate(tagSize);
      nobleBackend.sealer(method, subkey).seal(source, 0, 0);
      assert.ok(backend.opener(method, subkey).open(source, 0, 0, Block.allocate(1), 0));
      source.bytes[0]! ^= 1;
      assert.equal(backend.opener(method, subkey).open(source, 0, 0, Block.allocate(1), 0), false);
    });
  }

  test(`${method.name}: a forged tag leaves nothing in the error queue that node:crypto reads`, () => {
    const { source, opener, size } = sealedOnce(openssl!, method, 20);
    source.bytes[0]! ^= 1;
    assert.equal(peekError(), 0);
    assert.equal(opener.open(source, 0, size, source, 0), false);
    assert.equal(peekError(), 0);
  });

  test(`${method.name}: the nonce goes on past 2^32 operations`, () => {
    const subkey = randomBytes(method.keySize);
    const [fast, reference] = [openssl!.sealer(method, subkey), nobleBackend.sealer(method, subkey)];
    const opener = openssl!.opener(method, subkey);
    for (const subject of [fast, reference, opener]) Object.assign(subject, { counter: 2 ** 32 - 1 });
    for (let i = 0; i < 3; i += 1) {
      const sealed = sealAt(fast.seal.bind(fast), Buffer.from('text'), 0);
      assert.equal(sealed, sealAt(reference.seal.bind(reference), Buffer.from('text'), 0));
      const source = blockOf(fromHex(sealed));
      assert.ok(opener.open(source, 0, 4, source, 0));
    }
  });

  test(
    `${method.name}: an operation that threw does not leave one stream's key to another`,
    { skip: outsideChecked },
    () => {
      const [first, second] = [randomBytes(method.keySize), randomBytes(method.keySize)];
      const sealers = [openssl!.sealer(method, first), openssl!.sealer(method, second)] as const;
      sealAt(sealers[0].seal.bind(sealers[0]), Buffer.from('first'), 0);
      assert.throws(() => sealers[1].seal(Block.allocate(4), 0, 4), RangeError);
      const sealed = sealAt(sealers[1].seal.bind(sealers[1]), Buffer.from('second'), 0);
      const reference = nobleBackend.sealer(method, second);
      assert.equal(sealed, sealAt(reference.seal.bind(reference), Buffer.from('second'), 0));
    },
  );

  test(
    `${method.name}: in checked mode nothing outside the block is touched`,
    { skip: outsideChecked },
    () => {
      const block = Block.allocate(32);
      const sealer = openssl!.sealer(method, randomBytes(method.keySize));
      const opener = openssl!.opener(method, randomBytes(method.keySize));
      assert.throws(() => sealer.seal(block, 0, 17), RangeError);
      assert.throws(() => sealer.seal(block, -1, 2), RangeError);
      assert.throws(() => opener.open(block, 15, 2, block, 15), RangeError);
      assert.throws(() => opener.open(block, 0, 16, Block.allocate(15), 0), RangeError);
    },
  );
}

const packetCiphers: [Cipher, keySize: number, nonceSize: number][] = [
  ['aes-128-gcm', 16, 12],
  ['aes-192-gcm', 24, 12],
  ['aes-256-gcm', 32, 12],
  ['chacha20-poly1305', 32, 12],
  ['xchacha20-poly1305', 32, 24],
];

for (const [cipher, keySize, nonceSize] of packetCiphers) {
  test(`${cipher}: packets under nonces of their own are the same from OpenSSL and noble, at every size`, () => {
    const key = randomBytes(keySize);
    const ciphers = [openssl!.packetCipher(cipher, key), nobleBackend.packetCipher(cipher, key)] as const;
    const nonces = Block.allocate(3 + nonceSize);
    for (const size of sizes) {
      const plaintext = randomBytes(size);
      nonces.bytes.set(randomBytes(nonceSize), 3);
      const [sealed, reference] = ciphers.map((each) =>
        sealAt((block, offset, length) => each.seal(block, offset, length, nonces, 3), plaintext, 5),
      );
      assert.equal(sealed, reference, `${size} bytes`);
      for (const each of ciphers) {
        const block = blockOf(fromHex(`ee${sealed}ee`));
        assert.ok(each.open(block, 1, size, nonces, 3), `${size} bytes`);
        assert.equal(block.bytes.toString('hex', 0, 1 + size), `ee${plaintext.toString('hex')}`);
        assert.equal(block.bytes.at(-1), 0xee);
      }
    }
  });

  for (const backend of [openssl!, nobleBackend]) {
    test(`${cipher}, ${backend.name}: a packet with a bit flipped anywhere, or under another nonce, is refused`, () => {
      const subject = backend.packetCipher(cipher, randomBytes(keySize));
      const nonces = blockOf(randomBytes(nonceSize));
      const sealed = blockOf(randomBytes(20 + tagSize));
      subject.seal(sealed, 0, 20, nonces, 0);
      const attempt = () => subject.open(blockOf(sealed.bytes), 0, 20, nonces, 0);
      for (let i = 0; i < 20 + tagSize; i += 1) {
        sealed.bytes[i]! ^= 1 << (i % 8);
        assert.equal(attempt(), false, `byte ${i}`);
        sealed.bytes[i]! ^= 1 << (i % 8);
      }
      for (let i = 0; i < nonceSize; i += 1) {
        nonces.bytes[i]! ^= 1 << (i % 8);
        assert.equal(attempt(), false, `byte ${i} of the nonce`);
        nonces.bytes[i]! ^= 1 << (i % 8);
      }
      assert.equal(attempt(), true);
    });

    test(`${cipher}, ${backend.name}: packets and streams that take turns keep their own keys, also when those change`, () => {
      const method = methods.find((each) => each.cipher === cipher)!;
      const streamKey = randomBytes(keySize);
      const stream = backend.sealer(method, streamKey);
      const streamReference = nobleBackend.sealer(method, streamKey);
      const pairs = Array.from({ length: 3 }, () => {
        const key = randomBytes(keySize);
        return [backend.packetCipher(cipher, key), nobleBackend.packetCipher(cipher, key)] as const;
      });
      for (let turn = 0; turn < 80; turn += 1) {
        const [subject, reference] = pairs[(turn * turn + (turn >> 2)) % 3]!;
        if (turn % 5 === 0) {
          const key = randomBytes(keySize);
          subject.changeKey(key);
          reference.changeKey(key);
        }
        const nonces = blockOf(randomBytes(nonceSize));
        const [sealed, expected] = [blockOf(randomBytes(30 + tagSize)), Block.allocate(30 + tagSize)];
        const plaintext = toHex(sealed.bytes.subarray(0, 30));
        expected.bytes.set(sealed.bytes);
        subject.seal(sealed, 0, 30, nonces, 0);
        reference.seal(expected, 0, 30, nonces, 0);
        assert.equal(toHex(sealed.bytes), toHex(expected.bytes), `turn ${turn}`);
        if (turn % 3 === 0) {
          const text = Buffer.from('stream');
          const bytes = sealAt(stream.seal.bind(stream), text, 0);
          assert.equal(bytes, sealAt(streamReference.seal.bind(streamReference), text, 0), `turn ${turn}`);
        }
        assert.ok(subject.open(sealed, 0, 30, nonces, 0), `turn ${turn}`);
        assert.equal(toHex(sealed.bytes.subarray(0, 30)), plaintext);
      }
    });

    test(`${cipher}, ${backend.name}: a key that was overwritten counts from \`changeKey\` on`, () => {
      const key = new Uint8Array(keySize);
      const subject = backend.packetCipher(cipher, key);
      const nonces = Block.allocate(nonceSize);
      const seal = (block: Block, offset: number, length: number): void =>
        subject.seal(block, offset, length, nonces, 0);
      const before = sealAt(seal, Buffer.from('text'), 0);
      key.fill(1);
      subject.changeKey(key);
      const after = sealAt(seal, Buffer.from('text'), 0);
      assert.notEqual(after, before);
      const reference = nobleBackend.packetCipher(cipher, new Uint8Array(keySize).fill(1));
      assert.ok(reference.open(blockOf(fromHex(after)), 0, 4, nonces, 0));
    });
  }

  test(
    `${cipher}: in checked mode packets are held to the bounds of blocks and nonces`,
    { skip: outsideChecked },
    () => {
      for (const backend of [openssl!, nobleBackend]) {
        const subject = backend.packetCipher(cipher, randomBytes(keySize));
        const nonces = Block.allocate(nonceSize);
        assert.throws(() => subject.seal(Block.allocate(32), 0, 17, nonces, 0), RangeError);
        assert.throws(() => subject.seal(Block.allocate(32), -1, 2, nonces, 0), RangeError);
        assert.throws(() => subject.seal(Block.allocate(32), 0, 2, nonces, 1), RangeError);
        assert.throws(() => subject.open(Block.allocate(32), 0, 17, nonces, 0), RangeError);
        assert.throws(() => subject.open(Block.allocate(32), 0, 2, nonces, 1), RangeError);
      }
    },
  );
}

test('a block cipher takes keys of 16 and of 32 bytes', () => {
  for (const size of [0, 15, 24, 33])
    assert.throws(() => openssl!.blockCipher(new Uint8Array(size)), RangeError);
});

// NIST SP 800-38A, F.1.1 and F.1.5: ECB-AES128 and ECB-AES256, block 1.
for (const [key, ciphertext] of [
  ['2b7e151628aed2a6abf7158809cf4f3c', '3ad77bb40d7a3660a89ecaf32466ef97'],
  ['603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4', 'f3eed1bdb5d2a03c064b5a7e3db181f8'],
] as const) {
  for (const backend of [openssl!, nobleBackend]) {
    test(`AES-${key.length * 4}, ${backend.name}: the block of SP 800-38A, and nothing around it`, () => {
      const plaintext = '6bc1bee22e409f96e93d7e117393172a';
      const block = blockOf(fromHex(`ee${plaintext}ee`));
      const cipher = backend.blockCipher(fromHex(key));
      for (let turn = 0; turn < 3; turn += 1) {
        cipher.encrypt(block, 1);
        assert.equal(toHex(block.bytes), `ee${ciphertext}ee`);
        cipher.decrypt(block, 1);
        assert.equal(toHex(block.bytes), `ee${plaintext}ee`);
      }
    });
  }
}

for (const keySize of [16, 32]) {
  test(`AES-${keySize * 8}: keys that take turns stay apart, and both backends agree`, () => {
    const keys = Array.from({ length: 4 }, () => randomBytes(keySize));
    const ciphers = keys.map((key) => [openssl!.blockCipher(key), nobleBackend.blockCipher(key)] as const);
    for (let turn = 0; turn < 100; turn += 1) {
      const [fast, reference] = ciphers[(turn * turn + (turn >> 2)) % 4]!;
      const [one, other] = [blockOf(randomBytes(16)), Block.allocate(16)];
      const plaintext = toHex(one.bytes);
      other.bytes.set(one.bytes);
      fast.encrypt(one, 0);
      reference.encrypt(other, 0);
      assert.equal(toHex(one.bytes), toHex(other.bytes), `turn ${turn}`);
      fast.decrypt(one, 0);
      reference.decrypt(other, 0);
      assert.equal(toHex(one.bytes), plaintext, `turn ${turn}`);
      assert.equal(toHex(other.bytes), plaintext, `turn ${turn}`);
    }
  });
}

test('in checked mode a block cipher touches nothing outside the block', { skip: outsideChecked }, () => {
  for (const backend of [openssl!, nobleBackend]) {
    const cipher = backend.blockCipher(randomBytes(16));
    assert.throws(() => cipher.encrypt(Block.allocate(15), 0), RangeError);
    assert.throws(() => cipher.decrypt(Block.allocate(16), 1), RangeError);
  }
});

/** Seals with a margin before and behind, which must stay as it was. Ciphertext and tag in hex. */
function sealAt(
  seal: (block: Block, offset: number, length: number) => void,
  plaintext: Uint8Array,
  at: number,
) {
  const block = Block.allocate(at + plaintext.length + tagSize + 9);
  block.bytes.fill(0xee);
  block.bytes.set(plaintext, at);
  seal(block, at, plaintext.length);
  const end = at + plaintext.length + tagSize;
  assert.equal(block.bytes.toString('hex', 0, at), 'ee'.repeat(at));
  assert.equal(block.bytes.toString('hex', end), 'ee'.repeat(9));
  return block.bytes.toString('hex', at, end);
}

function sealedOnce(backend: AeadBackend, method: Method, size: number) {
  const subkey = randomBytes(method.keySize);
  const source = blockOf(randomBytes(size + tagSize));
  backend.sealer(method, subkey).seal(source, 0, size);
  return { source, size, opener: backend.opener(method, subkey) };
}

function blockOf(bytes: Uint8Array): Block {
  const block = Block.allocate(bytes.length);
  block.bytes.set(bytes);
  return block;
}
