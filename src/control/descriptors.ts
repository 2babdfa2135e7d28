/** How many descriptors there are, and how many connections that makes. */
import { SyscallError } from '../errors.js';
import { descriptorLimit, openDescriptors, setDescriptorLimit } from '../linux/rlimit.js';

/** For log, name queries, files read now and then, and the workers' own. */
const reserve = 32;
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

/** The connections that fit in the descriptor limit, at most `wanted`. */
export function connectionLimit(wanted: number, warn: (text: string) => void): number {
  const { soft } = descriptorLimit();
  const fitting = Math.max(1, Math.floor((soft - openDescriptors() - reserve) / perConnection));
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
