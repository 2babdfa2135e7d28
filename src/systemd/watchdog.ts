/**
 * Feeds the manager's watchdog while every worker's loop turns. A loop wakes twice a second by itself, so a worker whose turns
 * stand still from one look to the next hangs; if the main thread hangs, nobody feeds at all. In between, one missed look is
 * nothing: four of them fit into the manager's patience.
 */
const looksPerPeriod = 4;

export interface WatchdogEvents {
  feed(): void;
  /** Once, when a worker has stood still for half of the period: `worker` counts from 1. */
  onHang(worker: number, seconds: number): void;
  onRecovery(worker: number): void;
}

interface Seen {
  turns: number;
  sinceMs: number;
  told: boolean;
}

export class Watchdog {
  private readonly periodMs: number;
  private readonly turns: () => readonly number[];
  private readonly events: WatchdogEvents;
  private readonly seen: Seen[] = [];

  constructor(periodMs: number, turns: () => readonly number[], events: WatchdogEvents) {
    this.periodMs = periodMs;
    this.turns = turns;
    this.events = events;
  }

  /** Feeds now, and then as long as all is well. The timer keeps no process alive. */
  start(): void {
    this.events.feed();
    setInterval(() => this.look(performance.now()), this.periodMs / looksPerPeriod).unref();
  }

  look(nowMs: number): void {
    const standing = this.turns().filter((turns, i) => !this.hasMoved(i, turns, nowMs));
    if (standing.length === 0) this.events.feed();
  }

  private hasMoved(index: number, turns: number, nowMs: number): boolean {
    const seen = this.seen[index];
    if (seen === undefined || seen.turns !== turns) {
      if (seen?.told === true) this.events.onRecovery(index + 1);
      this.seen[index] = { turns, sinceMs: nowMs, told: false };
      return true;
    }
    const standsMs = nowMs - seen.sinceMs;
    if (standsMs >= this.periodMs / 2 && !seen.told) {
      seen.told = true;
      this.events.onHang(index + 1, Math.round(standsMs / 1000));
    }
    return false;
  }
}

/** The manager's patience in milliseconds, from $WATCHDOG_USEC if it is meant for process `pid`; taken from the environment. */
export function takeWatchdogPeriod(env: NodeJS.ProcessEnv, pid: number): number | undefined {
  const { WATCHDOG_USEC: period, WATCHDOG_PID: whom } = env;
  delete env['WATCHDOG_USEC'];
  delete env['WATCHDOG_PID'];
  if (period === undefined || !/^\d+$/.test(period) || Number(period) === 0) return undefined;
  return whom === undefined || whom === String(pid) ? Number(period) / 1000 : undefined;
}
