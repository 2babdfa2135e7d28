/**
 * What each user of ss-server has moved (SIP023). Every worker counts in a memory of its own, which the main thread reads
 * while the worker writes, so neither ever waits:
 *
 *     | user 0: connections, bytes up, bytes down | user 1: … |     Float64 each: exact up to 2^53
 *
 * A connection is one of TCP, or a UDP session; up is what the client said, down what it was answered, without the
 * protocol's own bytes.
 */
export interface UserTraffic {
  readonly connections: number;
  readonly up: number;
  readonly down: number;
}

const words = 3;

/** One worker's memory. */
export function createUserMemory(users: number): SharedArrayBuffer {
  return new SharedArrayBuffer(users * words * 8);
}

export class UserCounters {
  private readonly numbers: Float64Array;

  constructor(memory: SharedArrayBuffer) {
    this.numbers = new Float64Array(memory);
  }

  /** @param user index in Credentials.users; -1, which nobody is, is not counted. */
  connected(user: number): void {
    if (user >= 0) this.numbers[user * words]! += 1;
  }

  add(user: number, up: number, down: number): void {
    if (user < 0) return;
    this.numbers[user * words + 1]! += up;
    this.numbers[user * words + 2]! += down;
  }
}

/** Of one user, in all workers together. */
export function readUserTraffic(memories: readonly SharedArrayBuffer[], user: number): UserTraffic {
  const sum = [0, 0, 0];
  for (const memory of memories) {
    const numbers = new Float64Array(memory, user * words * 8, words);
    for (let i = 0; i < words; i++) sum[i]! += numbers[i]!;
  }
  return { connections: sum[0]!, up: sum[1]!, down: sum[2]! };
}
