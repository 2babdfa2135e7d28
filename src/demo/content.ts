/*
 * The demo's large file: any number of MiB, the same bytes every time, no two MiB alike. Each MiB begins with its number
 * (u32be), so that a block lost, doubled or moved changes the digest.
 */
import { createHash } from 'node:crypto';

export const blockSize = 1024 * 1024;

export function* fileBlocks(bytes: number): Generator<Buffer> {
  if (bytes % blockSize !== 0) throw new RangeError(`file of ${bytes} bytes, expected whole MiB`);
  const pattern = createHash('shake256', { outputLength: blockSize }).update('ss-redir demo').digest();
  for (let index = 0; index < bytes / blockSize; index++) {
    const block = Buffer.from(pattern); // a copy: the last one may still wait in a socket
    block.writeUInt32BE(index);
    yield block;
  }
}

export function fileDigest(bytes: number): string {
  const hash = createHash('sha256');
  for (const block of fileBlocks(bytes)) hash.update(block);
  return hash.digest('hex');
}
