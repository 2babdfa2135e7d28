// A service manager's end of sd_notify(3): a unix datagram socket that takes messages with descriptors.
import assert from 'node:assert/strict';
import { readlinkSync, rmSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { errno, declare } from '../../src/linux/ffi.js';
import { bind, close, socket } from '../../src/linux/libc.js';
import { Block } from '../../src/linux/memory.js';

const recvmsg = declare<(fd: number, header: number, flags: number) => number>(
  'intptr_t recvmsg(int fd, uintptr_t header, int flags)',
);
const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
const MSG_DONTWAIT = 0x40;
const MSG_CMSG_CLOEXEC = 0x40000000;

export interface Notice {
  text: string;
  /** The lines by name. */
  fields: Record<string, string>;
  descriptors: number[];
}

export class FakeManager {
  readonly address: string;
  readonly #fd: number;
  readonly #bytes = Block.allocate(4096);
  readonly #vector = Block.allocate(16);
  readonly #control = Block.allocate(64);
  readonly #header = Block.allocate(56);
  readonly notices: Notice[] = [];

  /** @param address a path, or @name. 64-bit systems only, as all that run these tests are. */
  constructor(address: string) {
    this.address = address;
    const name = Buffer.from(address.startsWith('@') ? `\0${address.slice(1)}` : address);
    const sockaddr = Block.allocate(2 + name.length);
    sockaddr.bytes.writeUInt16LE(AF_UNIX, 0);
    sockaddr.bytes.set(name, 2);
    this.#fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert.equal(bind(this.#fd, sockaddr.address, sockaddr.size), 0, `bind: errno ${errno()}`);
  }

  /** The next message, or undefined when there is none now. */
  receive(): Notice | undefined {
    const header = this.#header.bytes;
    this.#vector.bytes.writeBigUInt64LE(BigInt(this.#bytes.address), 0);
    this.#vector.bytes.writeBigUInt64LE(4096n, 8);
    header.fill(0);
    header.writeBigUInt64LE(BigInt(this.#vector.address), 16);
    header.writeBigUInt64LE(1n, 24);
    header.writeBigUInt64LE(BigInt(this.#control.address), 32);
    header.writeBigUInt64LE(64n, 40);
    const size = recvmsg(this.#fd, this.#header.address, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0) return undefined;
    const text = this.#bytes.bytes.toString('utf8', 0, size);
    const fields = Object.fromEntries(
      text.split('\n').map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
    );
    const notice = { text, fields, descriptors: this.#descriptors(Number(header.readBigUInt64LE(40))) };
    this.notices.push(notice);
    return notice;
  }

  #descriptors(controlSize: number): number[] {
    if (controlSize === 0) return [];
    const { bytes } = this.#control;
    const length = Number(bytes.readBigUInt64LE(0));
    return Array.from({ length: (length - 16) / 4 }, (_, i) => bytes.readInt32LE(16 + 4 * i));
  }

  /** The first message with this field behind `after`, or of all; it must have come within `ms`. */
  async next(field: string, after?: Notice, ms = 5000): Promise<Notice> {
    const from = after === undefined ? 0 : this.notices.indexOf(after) + 1;
    const until = performance.now() + ms;
    for (;;) {
      while (this.receive() !== undefined);
      const found = this.notices.slice(from).find(({ fields }) => field in fields);
      if (found !== undefined) return found;
      const had = this.notices.map(({ text }) => text).join(' / ');
      assert.ok(performance.now() < until, `no ${field} within ${ms} ms; there was: ${had}`);
      await delay(5);
    }
  }

  close(): void {
    while (this.receive() !== undefined);
    for (const fd of this.notices.flatMap(({ descriptors }) => descriptors)) close(fd);
    close(this.#fd);
    if (!this.address.startsWith('@')) rmSync(this.address, { force: true });
  }
}

/** What a descriptor of this process leads to, as in `socket:[1234]`. */
export function leadsTo(fd: number): string {
  return readlinkSync(`/proc/self/fd/${fd}`);
}
