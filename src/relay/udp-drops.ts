/** Counts what a codec refused, and tells of it in one line now and then. */
import type { PacketOpener, PacketVerdict } from '../protocol/packet.js';
import type { UdpContext } from './udp-context.js';

const reasons: Readonly<Record<Exclude<PacketVerdict, 'accepted' | 'stale'>, string>> = {
  short: 'too short for a packet',
  forged: 'the tag does not match: other password, other method, or changed on the way',
  repeated: 'it was here before: a replay, or doubled on the way',
  malformed: 'authentic, but not what a peer may send',
  'unknown-session': 'of a session that is not known here',
  'no-room': 'too many new sessions of its user, or of its network where there are no users, within 65 s',
};

/** @param sender makes its name for the line; not asked when there is none. */
export function drop(
  { counters, log }: UdpContext,
  verdict: Exclude<PacketVerdict, 'accepted'>,
  opener: PacketOpener,
  sender: () => string,
): void {
  counters.count(verdict);
  const kind = `udp-${verdict}`;
  if (!log.isDue(kind)) return;
  const reason = verdict === 'stale' ? clockDiffers(opener.skewSeconds) : reasons[verdict];
  log.limited(kind, `udp: dropped a packet from ${sender()}: ${reason}`);
}

function clockDiffers(skewSeconds: number): string {
  const how = skewSeconds > 0 ? 'ahead of' : 'behind';
  return `its clock is ${Math.abs(skewSeconds)} s ${how} ours, at most 30 s are allowed: check the clocks of both hosts`;
}
