/** What the counters say, one line each: at the end, and whenever SIGUSR1 asks. */
import type { Logger } from '../log.js';
import type { Plan } from '../relay/plan.js';
import { UdpCounters } from '../relay/udp-counters.js';
import { readUserTraffic } from '../relay/user-counters.js';
import { oneLine } from '../text.js';

export interface Load {
  readonly connections: number;
  readonly associations: number;
}

type Counted = Pick<Plan, 'udp' | 'credentials' | 'userMemory'>;

/** @param plans of all reloads, the latest last: what users have moved before counts too. */
export function report(plans: readonly Counted[], { connections, associations }: Load, log: Logger): void {
  log.info(`${connections} TCP connections, ${associations} UDP associations`);
  const udp = plans.find((plan) => plan.udp !== undefined)?.udp;
  const dropped = udp && new UdpCounters(udp.counters).describe();
  if (dropped !== undefined) log.info(`udp dropped: ${dropped}`);
  for (const line of describeUsers(plans)) log.info(line);
}

function describeUsers(plans: readonly Counted[]): string[] {
  const memories = new Map<SharedArrayBuffer, readonly string[]>();
  for (const { userMemory, credentials } of plans) {
    if (userMemory !== undefined)
      memories.set(
        userMemory,
        credentials.users.map(({ name }) => name),
      );
  }
  const names = new Set([...memories.values()].flat());
  return [...names].map((name) => {
    const sum = { connections: 0, up: 0, down: 0 };
    for (const [memory, users] of memories) {
      if (!users.includes(name)) continue;
      const { connections, up, down } = readUserTraffic([memory], users.indexOf(name));
      sum.connections += connections;
      sum.up += up;
      sum.down += down;
    }
    return `user ${oneLine(name)}: ${sum.connections} connections, ${sum.up} bytes up, ${sum.down} bytes down`;
  });
}
