/** What the counters say, one line each: at the end, and whenever SIGUSR1 asks. */
import type { Logger } from '../log.js';
import type { Plan } from '../relay/plan.js';
import { UdpCounters } from '../relay/udp-counters.js';
import { readUserTraffic } from '../relay/user-counters.js';
import { oneLine } from '../text.js';

type Counted = Pick<Plan, 'udp' | 'credentials' | 'userMemory'>;

export function report(plans: readonly Counted[], log: Logger): void {
  const udp = plans.find((plan) => plan.udp !== undefined)?.udp;
  const dropped = udp && new UdpCounters(udp.counters).describe();
  if (dropped !== undefined) log.info(`udp dropped: ${dropped}`);
  for (const line of describeUsers(plans)) log.info(line);
}

function describeUsers(plans: readonly Counted[]): string[] {
  const memories = plans.map((plan) => plan.userMemory).filter((memory) => memory !== undefined);
  return (plans[0]?.credentials.users ?? []).map(({ name }, i) => {
    const { connections, up, down } = readUserTraffic(memories, i);
    return `user ${oneLine(name)}: ${connections} connections, ${up} bytes up, ${down} bytes down`;
  });
}
