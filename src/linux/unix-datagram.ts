/**
 * Datagrams to a unix socket, with open descriptors beside the text (SCM_RIGHTS).
 *
 *     sockaddr_un | family u16 | path, or NUL and a name without an end |     at most 2 + 108, include/uapi/linux/un.h
 *     msghdr      | name | name length u32 | iovec | iovec count | control | control length | flags u32 |
 *     cmsghdr     | length | level u32 | type u32 | descriptors u32 … |
 *
 * with pointers, counts and lengths of one machine word, each at a multiple of its size (include/linux/socket.h).
 */
import { EAGAIN, ENOBUFS, syscallError } from './errno.js';
import { errno } from './ffi.js';
import { sendmsg, socket } from './libc.js';
import { Block } from './memory.js';

const AF_UNIX = 1; // include/linux/socket.h
const SOCK_DGRAM = 2; // include/linux/net.h
const SOCK_CLOEXEC = 0o2000000; // include/uapi/asm-generic/fcntl.h: O_CLOEXEC
const MSG_DONTWAIT = 0x40; // include/linux/socket.h
const MSG_NOSIGNAL = 0x4000;
const SOL_SOCKET = 1;
const SCM_RIGHTS = 1;

const long = process.arch === 'arm' || process.arch === 'ia32' ? 4 : 8;
const familySize = 2;
const maxPath = 108; // include/uapi/linux/un.h, UNIX_PATH_MAX
const headerSize = 7 * long;
const controlHeaderSize = long + 4 + 4;
const controlSize = controlHeaderSize + Math.max(4, long); // one descriptor, aligned
const maxText = 4096;

/** What became of a datagram: `full` when the receiver has no room now, `gone` when there is nobody. */
export type Sent = 'sent' | 'full' | 'gone';

export class UnixDatagramSender {
  private readonly fd: number;
  private readonly name = Block.allocate(familySize + maxPath);
  private readonly nameSize: number;
  private readonly text = Block.allocate(maxText);
  private readonly vector = Block.allocate(2 * long);
  private readonly control = Block.allocate(controlSize);
  private readonly header = Block.allocate(headerSize);

  /**
   * @param address a path, or `@name` in the abstract namespace (unix(7)).
   * @throws {RangeError} when it is too long, {SyscallError} of socket().
   */
  constructor(address: string) {
    const size = Buffer.byteLength(address);
    if (size > maxPath) throw new RangeError(`unix socket address of ${size} bytes, expected 1..${maxPath}`);
    const isAbstract = address.startsWith('@');
    this.name.bytes.writeUInt16LE(AF_UNIX, 0);
    this.name.bytes.write(isAbstract ? `\0${address.slice(1)}` : address, familySize);
    this.nameSize = familySize + size;
    this.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (this.fd < 0) throw syscallError('socket(AF_UNIX)', errno());
  }

  /** Never waits. The receiver gets its own copy of `descriptor`. */
  send(text: string, descriptor?: number): Sent {
    const size = this.text.bytes.write(text);
    writeWord(this.vector, 0, this.text.address);
    writeWord(this.vector, long, size);
    writeWord(this.header, 0, this.name.address);
    this.header.bytes.writeUInt32LE(this.nameSize, long);
    writeWord(this.header, 2 * long, this.vector.address);
    writeWord(this.header, 3 * long, 1);
    this.putControl(descriptor);
    if (sendmsg(this.fd, this.header.address, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 'sent';
    const number = errno();
    return number === EAGAIN || number === ENOBUFS ? 'full' : 'gone';
  }

  private putControl(descriptor: number | undefined): void {
    const { bytes } = this.control;
    const length = descriptor === undefined ? 0 : controlHeaderSize + 4;
    writeWord(this.header, 4 * long, descriptor === undefined ? 0 : this.control.address);
    writeWord(this.header, 5 * long, length === 0 ? 0 : controlSize);
    if (descriptor === undefined) return;
    writeWord(this.control, 0, length);
    bytes.writeInt32LE(SOL_SOCKET, long);
    bytes.writeInt32LE(SCM_RIGHTS, long + 4);
    bytes.writeInt32LE(descriptor, controlHeaderSize);
  }
}

function writeWord(block: Block, at: number, value: number): void {
  if (long === 8) block.bytes.writeBigUInt64LE(BigInt(value), at);
  else block.bytes.writeUInt32LE(value, at);
}
