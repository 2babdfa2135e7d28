/** The limit on open descriptors: struct rlimit { rlim_cur, rlim_max }, two u64 (getrlimit(2)). */
import { readdirSync } from 'node:fs';
import { errno } from './ffi.js';
import { Block } from './memory.js';
import { syscallError } from './errno.js';
import { getrlimit, setrlimit } from './libc.js';

const RLIMIT_NOFILE = 7; // include/uapi/asm-generic/resource.h
const limits = Block.allocate(8 + 8);

export interface DescriptorLimit {
  soft: number;
  hard: number;
}

export function descriptorLimit(): DescriptorLimit {
  if (getrlimit(RLIMIT_NOFILE, limits.address) !== 0) throw syscallError('getrlimit(RLIMIT_NOFILE)', errno());
  const { bytes } = limits;
  return { soft: Number(bytes.readBigUInt64LE(0)), hard: Number(bytes.readBigUInt64LE(8)) };
}

/** @throws {SyscallError} EPERM when `hard` is above the present one and the process is not privileged. */
export function setDescriptorLimit({ soft, hard }: DescriptorLimit): void {
  limits.bytes.writeBigUInt64LE(BigInt(soft), 0);
  limits.bytes.writeBigUInt64LE(BigInt(hard), 8);
  if (setrlimit(RLIMIT_NOFILE, limits.address) !== 0) throw syscallError('setrlimit(RLIMIT_NOFILE)', errno());
}

/** Descriptors that this process has open now. */
export function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length - 1; // the one that lists them
}
