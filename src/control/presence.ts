/** What the service manager hears of us, from serving to stopping: readiness, figures, and a watchdog fed while all is well. */
import type { Logger } from '../log.js';
import type { Notifier } from '../systemd/notify.js';
import { Watchdog } from '../systemd/watchdog.js';
import type { Supervisor } from './supervisor.js';

const statusMs = 5000;

export class Presence {
  private readonly tcp: boolean;
  private readonly udp: boolean;
  private readonly notifier: Notifier;
  private readonly supervisor: Supervisor;
  private readonly log: Logger;
  private isStopping = false;
  private said = '';
  /** Of the last reload. */
  private remark: string | undefined;
  private hanging = new Set<number>();

  constructor(
    notifier: Notifier,
    supervisor: Supervisor,
    { tcp, udp }: { readonly tcp: boolean; readonly udp: boolean },
    log: Logger,
  ) {
    this.tcp = tcp;
    this.udp = udp;
    this.notifier = notifier;
    this.supervisor = supervisor;
    this.log = log;
  }

  /** The workers serve. `watchdogMs`: the manager's patience, if it has a limit. */
  ready(watchdogMs: number | undefined): void {
    this.said = this.describe();
    this.notifier.ready(this.said);
    if (!this.notifier.connected) return;
    setInterval(() => this.tell(), statusMs).unref();
    if (watchdogMs !== undefined) this.startWatchdog(watchdogMs);
  }

  /** Runs `work` between "reloading" and "ready", whatever becomes of it. It returns what is to be told beside the figures. */
  async reloading(work: () => Promise<string | undefined>): Promise<void> {
    this.notifier.reloading();
    try {
      this.remark = await work();
    } finally {
      this.said = this.describe();
      if (!this.isStopping) this.notifier.ready(this.said);
    }
  }

  stopping(): void {
    this.isStopping = true;
    this.notifier.stopping();
  }

  private startWatchdog(periodMs: number): void {
    const { notifier, supervisor, log } = this;
    new Watchdog(periodMs, () => supervisor.turns(), {
      feed: () => notifier.watchdog(),
      onHang: (worker, seconds) => {
        log.error(`worker ${worker} has stood still for ${seconds} s: the watchdog is not fed any more`);
        this.hanging.add(worker);
        this.tell();
      },
      onRecovery: (worker) => {
        log.info(`worker ${worker} goes on`);
        this.hanging.delete(worker);
        this.tell();
      },
    }).start();
  }

  private tell(): void {
    const text = this.describe();
    if (text === this.said) return;
    this.said = text;
    this.notifier.status(text);
  }

  private describe(): string {
    if (this.hanging.size > 0) return `hanging: worker ${[...this.hanging].join(', ')}`;
    const workers = this.supervisor.turns().length;
    const { connections, associations } = this.supervisor.load();
    const served = [
      ...(this.tcp ? [counted(connections, 'TCP connection')] : []),
      ...(this.udp ? [counted(associations, 'UDP association')] : []),
    ];
    const text = `serving ${served.join(' and ')} with ${counted(workers, 'worker')}`;
    return this.remark === undefined ? text : `${text}; ${this.remark}`;
  }
}

function counted(number: number, what: string): string {
  return `${number} ${what}${number === 1 ? '' : 's'}`;
}
