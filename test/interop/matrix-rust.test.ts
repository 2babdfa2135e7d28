// shadowsocks-rust, the reference of the 2022 edition; its older methods are the three that it builds by default.
import { allDatagrams, describeMatrix, rows2022 } from './matrix.js';

const aeadMethods = ['aes-128-gcm', 'aes-256-gcm', 'chacha20-ietf-poly1305'];

describeMatrix({
  peer: 'rust',
  rows: [...aeadMethods.map((method) => ({ method })), ...rows2022],
  // It takes an empty datagram for a broken socket and drops it, as client and as server.
  datagrams: allDatagrams.filter((size) => size > 0),
});
