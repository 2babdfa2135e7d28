// sing-box, whose Shadowsocks was written from the specification (sing-shadowsocks and sing-shadowsocks2).
import { allDatagrams, describeMatrix, rows2022 } from './matrix.js';

describeMatrix({
  peer: 'sing-box',
  rows: rows2022,
  // It drops empty datagrams, and cuts those that do not fit into its buffers of 16 KiB.
  datagrams: allDatagrams.filter((size) => size > 0 && size < 16_384),
});
