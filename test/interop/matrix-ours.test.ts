import { aeadMethods, allDatagrams, describeMatrix, rows2022 } from './matrix.js';

describeMatrix({
  peer: 'ours',
  rows: [...aeadMethods.map((method) => ({ method })), ...rows2022],
  datagrams: allDatagrams,
});
