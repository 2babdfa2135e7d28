/** The limit on open descriptors: struct rlimit { rlim_cur, rlim_max }, two unsigned longs (getrlimit(2)). */
import { readdirSync } from 'node:fs';
import { errno } from './ffi.js';
import { Block } from './memory.js';
import { syscallError } from './errno.js';
import { getrlimit, setrlimit } from './libc.js';

const RLIMIT_NOFILE = 7; // include/uapi/asm-generic/resource.h
const long = process.arch === 'arm' || process.arch === 'ia32' ? 4 : 8;
const limits = Block.allocate(2 * long);

export interface DescriptorLimit {
  soft: number;
  hard: number;
}

export function descriptorLimit(): DescriptorLimit {
  if (getrlimit(RLIMIT_NOFILE, limits.address) !== 0) throw syscallError('getrlimit(RLIMIT_NOFILE)', errno());
  return { soft: readLong(0), hard: readLong(long) };
}

/** @throws {SyscallError} EPERM when `hard` is above the present one and the process is not privileged. */
export function setDescriptorLimit({ soft, hard }: DescriptorLimit): void {
  writeLong(0, soft);
  writeLong(long, hard);
  if (setrlimit(RLIMIT_NOFILE, limits.address) !== 0) throw syscallError('setrlimit(RLIMIT_NOFILE)', errno());
}

/** Descriptors that this process has open now. */
export function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length - 1; // the one that lists them
}

function readLong(at: number): number {
  return long === 4 ? limits.bytes.readUInt32LE(at) : Number(limits.bytes.readBigUInt64LE(at));
}

function writeLong(at: number, value: number): void {
  if (long === 4) limits.bytes.writeUInt32LE(value, at);
  else limits.bytes.writeBigUInt64LE(BigInt(value), at);
}
