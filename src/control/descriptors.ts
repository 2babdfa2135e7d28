/** How many descriptors there are, and how many connections and UDP sessions that makes. */
import type { Config } from '../config/config.js';
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

/** What each side may have of the descriptors. */
export interface Budget {
  maxConnections: number;
  maxSessions: number;
  maxReplySockets: number;
}

type Wishes = Pick<Config, 'command' | 'tcp' | 'udp' | 'udpMaxAssociations' | 'workers' | 'maxConnections'>;

/** Without a wish, UDP sessions get this part of the descriptors, and the sockets that answer them that part. */
const sessionShare = 3 / 8;
const replyShare = 1 / 16;
const defaultMaxSessions = 16_384;
const maxReplySockets = 1024;
/** However many sessions are wished for, connections keep this part. */
const connectionShare = 1 / 4;

/**
 * The connections and UDP sessions that fit in the descriptor limit. To be asked before the workers run.
 *
 * @throws {UsageError} when not even one does.
 */
export function shareDescriptors(config: Wishes, warn: (text: string) => void): Budget {
  const { soft } = descriptorLimit();
  const needed = openDescriptors() + reserve + config.workers * perWorker;
  const left = soft - needed;
  const { maxSessions, maxReplySockets: replies } = config.udp ? shareForUdp(config, left, warn) : noUdp;
  if (!config.tcp) return { maxConnections: 1, maxSessions, maxReplySockets: replies };
  // A session of ss-server has one more where its client asks for both families: few do, and without any left the oldest goes.
  const forUdp = maxSessions + replies;
  const fitting = Math.floor((left - forUdp) / perConnection);
  const wanted = config.maxConnections;
  if (fitting < 1) {
    throw new UsageError(
      `the limit of ${soft} descriptors leaves none for connections: at least ${needed + forUdp + perConnection} are needed (ulimit -n, -n, LimitNOFILE=)`,
    );
  }
  if (fitting < wanted && !config.udp)
    warn(
      `${fitting} connections fit in the limit of ${soft} descriptors, fewer than ${wanted} (--max-connections)`,
    );
  return { maxConnections: Math.min(wanted, fitting), maxSessions, maxReplySockets: replies };
}

const noUdp = { maxSessions: 0, maxReplySockets: 0 };

function shareForUdp(
  config: Wishes,
  left: number,
  warn: (text: string) => void,
): { maxSessions: number; maxReplySockets: number } {
  const isRedir = config.command === 'ss-redir';
  const replies = isRedir ? Math.max(1, Math.min(maxReplySockets, Math.floor(left * replyShare))) : 0;
  const wanted = config.udpMaxAssociations;
  const most = Math.max(1, Math.floor(left * (config.tcp ? 1 - connectionShare : 1)) - replies);
  if (wanted !== undefined) {
    if (wanted > most)
      warn(
        `${most} UDP associations fit in the limit of descriptors, fewer than ${wanted} (--udp-max-associations)`,
      );
    return { maxSessions: Math.min(wanted, most), maxReplySockets: replies };
  }
  const share = Math.floor(left * (config.tcp ? sessionShare : 1 - replyShare));
  return { maxSessions: Math.max(1, Math.min(defaultMaxSessions, share)), maxReplySockets: replies };
}

/** The descriptor limit that is in force. */
export function descriptorsInForce(): number {
  return descriptorLimit().soft;
}
