/**
 * Capabilities of this thread, capabilities(7): a thread that is started later inherits them, one that runs keeps its own.
 *
 *     header   | version u32 | pid i32 |                                         include/uapi/linux/capability.h
 *     data     | effective u32 | permitted u32 | inheritable u32 |  two of them: capabilities 0 to 31, and 32 to 63
 */
import { declare, errno } from './ffi.js';
import { syscallError } from './errno.js';
import { Block } from './memory.js';
import { prctl } from './process.js';

export const CAP_NET_BIND_SERVICE = 10; // include/uapi/linux/capability.h
export const CAP_NET_ADMIN = 12;
export const CAP_NET_RAW = 13;

const _LINUX_CAPABILITY_VERSION_3 = 0x2008_0522;
const PR_CAPBSET_READ = 23; // include/uapi/linux/prctl.h
const PR_CAPBSET_DROP = 24;
const dataSize = 2 * 3 * 4;

const capget = declare<(header: number, data: number) => number>(
  'int capget(uintptr_t header, uintptr_t data)',
);
const capset = declare<(header: number, data: number) => number>(
  'int capset(uintptr_t header, uintptr_t data)',
);
const header = Block.allocate(4 + 4);
const data = Block.allocate(dataSize);
const wordOf = { effective: 0, permitted: 4, inheritable: 8 } as const;

export type CapabilitySet = keyof typeof wordOf;

export function hasCapability(set: CapabilitySet, capability: number): boolean {
  readAll();
  return (data.bytes.readUInt32LE(placeOf(set, capability)) & bitOf(capability)) !== 0;
}

/**
 * Makes `kept` the permitted and effective set, and nothing inheritable: a program that we start has none.
 *
 * @throws {SyscallError} EPERM for one that is not permitted now.
 */
export function keepOnly(kept: readonly number[]): void {
  data.bytes.fill(0);
  for (const capability of kept) {
    for (const set of ['effective', 'permitted'] as const) add(set, capability);
  }
  writeAll();
}

/** Leaves the permitted set as it is. */
export function makeEffective(effective: readonly number[]): void {
  readAll();
  for (const at of [0, dataSize / 2]) data.bytes.writeUInt32LE(0, at + wordOf.effective);
  for (const capability of effective) add('effective', capability);
  writeAll();
}

/** Everything permitted. */
export function makeAllEffective(): void {
  readAll();
  for (const at of [0, dataSize / 2]) {
    data.bytes.copy(data.bytes, at + wordOf.effective, at + wordOf.permitted, at + wordOf.permitted + 4);
  }
  writeAll();
}

/** No program that we start can get others than these, whatever its file has. Needs CAP_SETPCAP; without it nothing is done. */
export function limitBounding(kept: readonly number[]): void {
  for (let capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++) {
    if (kept.includes(capability)) continue;
    if (prctl(PR_CAPBSET_DROP, capability) !== 0) return;
  }
}

function add(set: CapabilitySet, capability: number): void {
  const at = placeOf(set, capability);
  data.bytes.writeUInt32LE((data.bytes.readUInt32LE(at) | bitOf(capability)) >>> 0, at);
}

function placeOf(set: CapabilitySet, capability: number): number {
  return (capability < 32 ? 0 : dataSize / 2) + wordOf[set];
}

function bitOf(capability: number): number {
  return 1 << (capability % 32);
}

function readAll(): void {
  prepareHeader();
  if (capget(header.address, data.address) !== 0) throw syscallError('capget()', errno());
}

function writeAll(): void {
  prepareHeader();
  if (capset(header.address, data.address) !== 0) throw syscallError('capset()', errno());
}

function prepareHeader(): void {
  header.bytes.writeUInt32LE(_LINUX_CAPABILITY_VERSION_3, 0);
  header.bytes.writeInt32LE(0, 4); // this thread
}
