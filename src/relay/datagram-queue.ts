/** What waits to be sent at the end of a batch: for each sending socket a chain of slots, without an object. */

import { Block } from '../linux/memory.js';
import { nameStride, type SendBatch } from '../linux/messages.js';
import { batchSize } from './udp-context.js';

/** Who sends: its first and last slot of the present batch, -1 without. */
export interface Sender {
  firstQueued: number;
  lastQueued: number;
}

export class DatagramQueue<T extends Sender> {
  /** Those with something queued: `senders[0 .. senderCount)`. */
  readonly senders: (T | undefined)[] = Array.from({ length: batchSize });
  senderCount = 0;
  /** Where the datagram of a slot goes: a sockaddr at `slot * nameStride`, to be written before `put`. */
  readonly names = Block.allocate(batchSize * nameStride);
  private readonly block: Block;
  private readonly next = new Int32Array(batchSize);
  private readonly starts = new Int32Array(batchSize);
  private readonly ends = new Int32Array(batchSize);
  private readonly nameSlots = new Int32Array(batchSize);
  private readonly nameSizes = new Int32Array(batchSize);

  constructor(block: Block) {
    this.block = block;
  }

  /** Queues `block[start..end)`. @param nameSize of the sockaddr in `names`; 0 on a connected socket. */
  put(sender: T, slot: number, start: number, end: number, nameSize: number): void {
    this.starts[slot] = start;
    this.ends[slot] = end;
    this.next[slot] = -1;
    this.nameSizes[slot] = nameSize;
    const last = sender.lastQueued;
    this.nameSlots[slot] = last >= 0 && this.sameName(last, slot) ? this.nameSlots[last]! : slot;
    if (last >= 0) this.next[last] = slot;
    else {
      sender.firstQueued = slot;
      this.senders[this.senderCount++] = sender;
    }
    sender.lastQueued = slot;
  }

  /** Moves what `sender` has queued to `sends`. */
  take(sender: T, sends: SendBatch): void {
    for (let slot = sender.firstQueued; slot >= 0; slot = this.next[slot]!) {
      const start = this.starts[slot]!;
      const size = this.ends[slot]! - start;
      const nameSize = this.nameSizes[slot]!;
      const name = nameSize === 0 ? 0 : this.names.at(this.nameSlots[slot]! * nameStride, nameSize);
      sends.add(this.block.at(start, size), size, name, nameSize);
    }
  }

  /** One place for one destination: that is how SendBatch sees that datagrams go the same way. */
  private sameName(a: number, b: number): boolean {
    const size = this.nameSizes[b]!;
    if (size !== this.nameSizes[a]) return false;
    const { bytes } = this.names;
    const from = this.nameSlots[a]! * nameStride;
    const to = b * nameStride;
    for (let i = 0; i < size; i++) if (bytes[from + i] !== bytes[to + i]) return false;
    return true;
  }
}
