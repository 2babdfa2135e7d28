/** What the counters say, one line each: at the end, and whenever SIGUSR1 asks. */
import type { Logger } from '../log.js';
import type { Plan } from '../relay/plan.js';
import { UdpCounters } from '../relay/udp-counters.js';

export function report(plans: readonly Pick<Plan, 'udp'>[], log: Logger): void {
  const udp = plans.find((plan) => plan.udp !== undefined)?.udp;
  const dropped = udp && new UdpCounters(udp.counters).describe();
  if (dropped !== undefined) log.info(`udp dropped: ${dropped}`);
}
