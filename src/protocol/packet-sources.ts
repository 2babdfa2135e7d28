/** What packet codecs do not compute: the clock, random bytes and padding. Tests put their own in the place of these. */
import { fillRandom } from '../crypto/random.js';

export interface PacketSources {
  /** Unix time in whole seconds. */
  unixSeconds(): number;
  /** Writes `size` fresh random bytes to `target[at..]`. */
  fillRandom(target: Uint8Array, at: number, size: number): void;
  /** Bytes of padding for a packet from or to this port, 0 to `room`, which is 1 or more. */
  paddingSize(port: number, payloadSize: number, room: number): number;
  /** Writes the padding to `target[from..to)`. */
  fillPadding(target: Uint8Array, from: number, to: number): void;
}

const dnsPort = 53;
const drawn = new Uint8Array(2);

export const systemSources: PacketSources = {
  unixSeconds: () => Math.floor(Date.now() / 1000),
  fillRandom,

  /** The sizes of DNS messages tell names apart, and an empty payload tells itself. All else goes without. */
  paddingSize(port, payloadSize, room) {
    if (port !== dnsPort && payloadSize > 0) return 0;
    fillRandom(drawn, 0, 2);
    return 1 + (((drawn[0]! << 8) | drawn[1]!) % room);
  },

  /** Nobody sees it. What stood there before may be another client's, though, so it must not leave. */
  fillPadding(target, from, to) {
    target.fill(0, from, to);
  },
};
