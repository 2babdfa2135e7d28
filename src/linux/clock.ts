/** Whether somebody keeps this host's clock right, as the kernel has been told. */
import { declareOptional } from './ffi.js';
import { Block } from './memory.js';

const TIME_ERROR = 5; // include/uapi/linux/timex.h: the clock is not synchronized
/** struct timex has 208 bytes at most. `modes`, its first word, is 0: nothing is changed. */
const timexSize = 512;

const adjtimex = declareOptional<(timex: number) => number>('int adjtimex(uintptr_t timex)');

/** Undefined where the kernel does not say. */
export function isClockSynchronized(): boolean | undefined {
  const state = adjtimex?.(Block.allocate(timexSize).address) ?? -1;
  return state < 0 ? undefined : state !== TIME_ERROR;
}
