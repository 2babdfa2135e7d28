// The bytes that test transfers carry: the same endless stream on both ends, so each end can compute the hash the other
// must have seen.
import { createHash } from 'node:crypto';

const period = 1_048_573; // bytes until the stream repeats: a prime, so that no lost or doubled record hides in it
const block = fillBlock();
const hashes = new Map<number, string>();

/** The stream's bytes from `position` on: at least one, at most `limit`. */
export function payloadAt(position: number, limit: number): Buffer {
  const start = position % period;
  return block.subarray(start, Math.min(start + limit, period));
}

/** SHA-256 of the stream's first `length` bytes, in hex. */
export function payloadHash(length: number): string {
  const known = hashes.get(length);
  if (known !== undefined) return known;

  const hash = createHash('sha256');
  for (let position = 0; position < length;) {
    const bytes = payloadAt(position, length - position);
    hash.update(bytes);
    position += bytes.length;
  }
  const digest = hash.digest('hex');
  hashes.set(length, digest);
  return digest;
}

// xorshift32 (Marsaglia 2003): the same on every machine and incompressible, which is all that is asked of it.
function fillBlock(): Buffer {
  const bytes = Buffer.allocUnsafe(period);
  let state = 0x9e3779b9;
  for (let index = 0; index < period; index++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    bytes[index] = state & 0xff;
  }
  return bytes;
}
