import { aeadMethods, describeMatrix } from './matrix.js';

describeMatrix({
  peer: 'debian',
  rows: aeadMethods.map((method) => ({ method })),
  // libev forbids the kernel to cut datagrams: the last one fills the MTU of 1,500 bytes by IPv6
  // (40 bytes IPv6, 8 UDP, 32 salt, 19 address, 16 tag).
  datagrams: [0, 1, 128, 1200, 1385],
});
