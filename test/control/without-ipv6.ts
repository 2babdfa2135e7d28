/** Preloaded (node --import): from here on socket(AF_INET6) fails as it does on a kernel without IPv6, by seccomp(2). */
import { declare } from '../../src/linux/ffi.js';
import { Block } from '../../src/linux/memory.js';
import { AF_INET6 } from '../../src/linux/sockaddr.js';

const prctl = declare<(option: number, a: number, b: number, c: number, d: number) => number>(
  'int prctl(int option, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d)',
);
const PR_SET_NO_NEW_PRIVS = 38; // include/uapi/linux/prctl.h
const PR_SET_SECCOMP = 22;
const SECCOMP_MODE_FILTER = 2; // include/uapi/linux/seccomp.h
const socketCall = process.arch === 'x64' ? 41 : 198; // arch/x86/entry/syscalls, include/uapi/asm-generic/unistd.h
const EAFNOSUPPORT = 97;

// struct sock_filter: code u16, jt u8, jf u8, k u32; struct seccomp_data: number u32 at 0, first argument at 16.
const program: [code: number, jt: number, jf: number, k: number][] = [
  [0x20, 0, 0, 0], // load the number
  [0x15, 0, 3, socketCall], // not socket(): allow
  [0x20, 0, 0, 16], // load the family
  [0x15, 0, 1, AF_INET6],
  [0x06, 0, 0, 0x0005_0000 | EAFNOSUPPORT], // SECCOMP_RET_ERRNO
  [0x06, 0, 0, 0x7fff_0000], // SECCOMP_RET_ALLOW
];
const filter = Block.allocate(program.length * 8);
for (const [i, [code, jt, jf, k]] of program.entries()) {
  filter.bytes.writeUInt16LE(code, i * 8);
  filter.bytes.writeUInt8(jt, i * 8 + 2);
  filter.bytes.writeUInt8(jf, i * 8 + 3);
  filter.bytes.writeUInt32LE(k, i * 8 + 4);
}
const header = Block.allocate(16); // struct sock_fprog: length u16, pointer at 8
header.bytes.writeUInt16LE(program.length, 0);
header.bytes.writeBigUInt64LE(BigInt(filter.address), 8);
if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) !== 0) throw new Error('prctl(PR_SET_NO_NEW_PRIVS)');
if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header.address, 0, 0) !== 0) {
  throw new Error('prctl(PR_SET_SECCOMP)');
}
