/** How many descriptors there are, and how many connections that makes. */
import { SyscallError, UsageError } from '../errors.js';
import { descriptorLimit, openDescriptors, setDescriptorLimit } from '../linux/rlimit.js';

/** For log, name queries, files read now and then, and the workers' own. */
const reserve = 24;
/** A worker's event loop, epoll set, eventfd, and the modules it reads at its start. */
const perWorker = 8;
const perConnection = 2;

/** Applies `-n`. Node has raised the soft limit to the hard one already, so a lower number lowers it. */
export function applyDescriptorLimit(wanted: number, warn: (text: string) => void): void {
  const { soft, hard } = descriptorLimit();
  try {
    setDescriptorLimit({ soft: wanted, hard: Math.max(wanted, hard) });
  } catch (error) {
    if (!(error instanceof SyscallError)) throw error;
    const most = Math.min(wanted, hard);
    setDescriptorLimit({ soft: most, hard });
    warn(
      `descriptor limit ${wanted} (-n): ${error.message}: ${most} is in force (the hard limit is ${hard}, the soft one was ${soft})`,
    );
  }
}

/**
 * The connections that fit in the descriptor limit, at most `wanted`. To be asked before the workers run.
 *
 * @throws {UsageError} when not even one does.
 */
export function connectionLimit(wanted: number, workers: number, warn: (text: string) => void): number {
  const { soft } = descriptorLimit();
  const needed = openDescriptors() + reserve + workers * perWorker;
  const fitting = Math.floor((soft - needed) / perConnection);
  if (fitting < 1) {
    throw new UsageError(
      `the limit of ${soft} descriptors leaves none for connections: at least ${needed + perConnection} are needed (ulimit -n, -n, LimitNOFILE=)`,
    );
  }
  if (fitting < wanted)
    warn(
      `${fitting} connections fit in the limit of ${soft} descriptors, fewer than ${wanted} (--max-connections)`,
    );
  return Math.min(wanted, fitting);
}

/** The descriptor limit that is in force. */
export function descriptorsInForce(): number {
  return descriptorLimit().soft;
}
