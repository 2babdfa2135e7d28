import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ProtocolError } from '../../src/errors.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import {
  addressSize,
  minAddressSize,
  maxAddressSize,
  readAddress,
  writeAddress,
  writeIpAddress,
} from '../../src/protocol/address.js';
import { fromHex, toHex, vectors } from '../helpers/vectors.js';

// Vectors that we treat otherwise on purpose: a mapped address is IPv4 to us, and nobody can connect to port 0.
const isMapped = (host: string): boolean => host.startsWith('::ffff:');

test('addresses are written as in the vectors', () => {
  for (const { host, port, encoded_hex } of vectors.socks_address.valid) {
    if (!isMapped(host)) assert.equal(toHex(writeAddress({ host, port })), encoded_hex, host);
  }
});

test('addresses are read as in the vectors', () => {
  for (const { host, port, encoded_hex } of vectors.socks_address.valid) {
    if (port === 0 || isMapped(host)) continue;
    const bytes = fromHex(encoded_hex);
    const address = readAddress(bytes, 0, bytes.length);
    assert.equal(address?.host, host);
    assert.equal(address.port, port);
    assert.equal(address.end, bytes.length);
  }
});

test('the invalid vectors give no address: refused, or incomplete', () => {
  for (const { encoded_hex, reason } of vectors.socks_address.invalid) {
    const bytes = fromHex(encoded_hex);
    const isCut = /without|half|shorter|empty/.test(reason);
    if (isCut) assert.equal(readAddress(bytes, 0, bytes.length), undefined, reason);
    else refused(encoded_hex, /expected/);
  }
});

test('an address cut at any byte is incomplete, and bytes around it do not matter', () => {
  for (const { port, encoded_hex } of vectors.socks_address.valid) {
    if (port === 0) continue;
    const address = fromHex(encoded_hex);
    const bytes = Uint8Array.from([9, 9, 9, ...address, 9, 9]);
    const end = 3 + address.length;
    for (let to = 3; to < end; to += 1)
      assert.equal(readAddress(bytes, 3, to), undefined, `${encoded_hex} to ${to}`);
    assert.equal(readAddress(bytes, 3, end)?.end, end);
    assert.equal(readAddress(bytes, 3, end + 2)?.end, end);
  }
});

test('a Buffer of the data plane is copied from, not kept', () => {
  const bytes = Buffer.from('01c00002010050', 'hex');
  const address = readAddress(bytes, 0, bytes.length);
  bytes.fill(0);
  assert.equal(address?.endpoint?.toString(), '192.0.2.1:80');
});

test('an address type other than 1, 3 and 4 is refused at its first byte', () => {
  for (let atyp = 0; atyp < 256; atyp += 1) {
    const hex = atyp.toString(16).padStart(2, '0');
    if ([1, 3, 4].includes(atyp)) assert.equal(readAddress(fromHex(hex), 0, 1), undefined);
    else refused(hex, new RegExp(`address type ${atyp}, expected 1, 3 or 4`));
  }
});

test('port 0 is refused in each form, port 1 and 65535 are taken', () => {
  for (const host of ['01c0000201', `0420010db8${'00'.repeat(12)}`, '030161']) {
    refused(`${host}0000`, /port 0, expected 1\.\.65535/);
    assert.equal(readHex(`${host}0001`).port, 1);
    assert.equal(readHex(`${host}ffff`).port, 65535);
  }
});

test('names have 1 to 255 bytes', () => {
  refused('0300', /name of length 0/);
  assert.equal(readHex(`0301${'61'}0050`).host, 'a');
  assert.equal(readHex(`03ff${'61'.repeat(255)}0050`).host, 'a'.repeat(255));
  assert.equal(writeAddress({ host: 'a'.repeat(255), port: 80 }).length, maxAddressSize);
  assert.throws(() => writeAddress({ host: 'a'.repeat(256), port: 80 }), RangeError);
  assert.throws(() => writeAddress({ host: '', port: 80 }), RangeError);
});

test('a name with NUL, a control character, a blank, a zone or bad UTF-8 is refused', () => {
  const names = [
    'a\0b',
    '127.0.0.1\0.example',
    'a\nb',
    'a\x7fb',
    'a b',
    'a\u00a0b',
    'a\u0085b',
    'a\u2028b',
    'fe80::1%eth0',
    'fe80::1%1',
  ];
  for (const name of names) refused(nameHex(Buffer.from(name)), /name of \d+ bytes with/);
  for (const hex of ['ff', '61c3', 'c0af', 'eda080', 'f4908080']) refused(nameHex(fromHex(hex)), /not UTF-8/);
});

test('a name in UTF-8 is kept as it is', () => {
  assert.equal(readHex(nameHex(Buffer.from('bücher.example'))).host, 'bücher.example');
  assert.equal(readHex(nameHex(Buffer.from('bücher.example'))).endpoint, undefined);
});

test('a name that is an IP address in text is read as that address', () => {
  const pairs = [
    ['127.0.0.1', '127.0.0.1'],
    ['::1', '::1'],
    ['2001:DB8:0:0:0:0:0:1', '2001:db8::1'],
    ['::ffff:127.0.0.1', '127.0.0.1'],
    ['::FFFF:7f00:1', '127.0.0.1'],
  ] as const;
  for (const [name, host] of pairs) {
    const address = readHex(nameHex(Buffer.from(name)));
    assert.equal(address.host, host);
    assert.equal(address.endpoint?.host, host);
  }
});

test('IPv4-mapped addresses become IPv4, read or written, from bytes or text', () => {
  const mapped = `${'00'.repeat(10)}ffffc0000201`;
  assert.equal(readHex(`04${mapped}0035`).host, '192.0.2.1');
  assert.equal(readHex(`04${mapped}0035`).endpoint?.address.length, 4);
  assert.equal(toHex(writeAddress({ host: '::ffff:192.0.2.1', port: 53 })), '01c00002010035');
  assert.equal(toHex(writeAddress({ host: '[::ffff:c000:201]', port: 53 })), '01c00002010035');
  assert.equal(toHex(writeIpAddress(fromHex(mapped), 53)), '01c00002010035');
  // One bit beside the prefix is another address.
  assert.equal(readHex(`04${'00'.repeat(9)}01ffffc00002010035`).endpoint?.address.length, 16);
  assert.equal(toHex(writeIpAddress(fromHex(`${'00'.repeat(10)}fffec0000201`), 53)).slice(0, 2), '04');
});

test('raw address bytes are written as the same address in text is', () => {
  for (const host of ['192.0.2.1', '0.0.0.0', '2001:db8::8a2e:370:7334', '::', '::1', '1:2:3:4:5:6:7:8']) {
    const endpoint = Endpoint.parse(host, 8388)!;
    assert.equal(
      toHex(writeIpAddress(endpoint.address, 8388)),
      toHex(writeAddress({ host, port: 8388 })),
      host,
    );
    assert.equal(
      toHex(writeAddress({ host: `[${host}]`, port: 8388 })),
      toHex(writeAddress({ host, port: 8388 })),
    );
  }
});

test('what no address can hold is a RangeError when written', () => {
  for (const port of [-1, 65536, 1.5, Number.NaN]) {
    assert.throws(() => writeAddress({ host: 'a.example', port }), RangeError, String(port));
    assert.throws(() => writeIpAddress(new Uint8Array(4), port), RangeError, String(port));
  }
  assert.throws(() => writeIpAddress(new Uint8Array(5), 80), RangeError);
  assert.throws(() => writeAddress({ host: 'fe80::1%eth0', port: 80 }), RangeError);
});

function readHex(hex: string) {
  const bytes = fromHex(hex);
  const address = readAddress(bytes, 0, bytes.length);
  assert.ok(address !== undefined, `${hex} is complete`);
  return address;
}

function nameHex(name: Uint8Array): string {
  return `03${name.length.toString(16).padStart(2, '0')}${toHex(name)}0050`;
}

function refused(hex: string, message: RegExp): void {
  const bytes = fromHex(hex);
  assert.throws(
    () => readAddress(bytes, 0, bytes.length),
    (error: unknown) =>
      error instanceof ProtocolError && error.code === 'BAD_ADDRESS' && message.test(error.message),
    hex,
  );
}

test('the size of an address is where reading it ends; of what is none, -1', () => {
  for (const { encoded_hex: hex } of vectors.socks_address.valid) {
    const bytes = fromHex(`eeee${hex}eeee`);
    const end = bytes.length - 2;
    assert.equal(addressSize(bytes, 2, bytes.length), end - 2, hex);
    for (let to = 2; to < end; to += 1) assert.equal(addressSize(bytes, 2, to), -1, `${hex} cut at ${to}`);
    assert.equal(addressSize(bytes, 2, end), end - 2, hex);
  }
  for (const { encoded_hex: hex, reason } of vectors.socks_address.invalid)
    assert.equal(addressSize(fromHex(hex), 0, hex.length / 2), -1, reason);
});

test('every address type but 1, 3 and 4 has no size, nor has a name of length 0', () => {
  const bytes = new Uint8Array(300).fill(9);
  for (let atyp = 0; atyp < 256; atyp += 1) {
    bytes[0] = atyp;
    const expected = { 1: 7, 3: 13, 4: 19 }[atyp] ?? -1;
    assert.equal(addressSize(bytes, 0, 300), expected, `ATYP ${atyp}`);
  }
  bytes[0] = 3;
  bytes[1] = 0;
  assert.equal(addressSize(bytes, 0, 300), -1);
  bytes[1] = 1;
  assert.equal(addressSize(bytes, 0, 300), minAddressSize);
  bytes[1] = 255;
  assert.equal(addressSize(bytes, 0, 300), maxAddressSize);
});
