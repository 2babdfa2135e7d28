/** Sizes of the blocks that streams are sealed, opened and kept in, in whole pages of 4 KiB. */
import type { Edition } from '../crypto/methods.js';

const pageSize = 4096;

/**
 * Room for a batch: 2017 the headroom of 320 bytes and 4 × (2 + 16 + 16383 + 16); 2022 the headroom of 1408 and
 * 2 + 16 + 65535 + 16.
 */
export const blockSize = 17 * pageSize;

/** Records read and sealed in one go. */
export const recordsPerBatch: Readonly<Record<Edition, number>> = { aead: 4, '2022': 1 };

/** Room for any record but its last byte: 32 + 2 + 16 + 16383 + 16, and 65535 + 16. */
export const restSize: Readonly<Record<Edition, number>> = { aead: 5 * pageSize, '2022': 17 * pageSize };
