/**
 * Starts the workers, carries messages between them and the main thread, and ends them. A worker that fails ends the
 * program: what broke is ours, and systemd starts a clean one.
 */
import { Worker } from 'node:worker_threads';
import { controlWord, createWorkerControl } from '../engine/worker.js';
import { raiseWakeup } from '../linux/epoll.js';
import type { FromWorker, NewPlan, Plan, ServerAddress, ToWorker } from '../relay/plan.js';
import type { LogLevel } from '../relay/worker-log.js';
import type { Dns } from './dns.js';
import type { Load } from './report.js';

/** How long a worker may take to see that it shall stop, before the process goes without waiting. */
const stopMs = 400;

export interface SupervisorEvents {
  onLog(level: LogLevel, text: string): void;
  /** A worker ended without being told to. */
  onFatal(error: Error): void;
}

interface Plane {
  worker: Worker;
  plan: Plan;
  ended: Promise<void>;
}

export class Supervisor {
  private readonly planes: Plane[] = [];
  private dns: Dns;
  private readonly events: SupervisorEvents;
  private stopping = false;

  constructor(dns: Dns, events: SupervisorEvents) {
    this.dns = dns;
    this.events = events;
    process.on('exit', () => this.tellToStop()); // whoever calls process.exit: it waits for the threads
  }

  /** Starts one worker a plan; resolves when all of them serve. */
  async start(plans: readonly NewPlan[]): Promise<void> {
    // One after another: each opens dozens of files for a moment, and descriptors may be few.
    for (const plan of plans) await this.startOne(plan);
  }

  /** After a reload: connections and sessions go on with what they have, new ones begin with this. */
  reload(plans: readonly NewPlan[], servers: readonly ServerAddress[], dns: Dns): void {
    this.dns = dns;
    for (const [i, plane] of this.planes.entries())
      this.tell(plane, { type: 'plan', plan: plans[i]!, servers });
  }

  /** Which servers there are. A worker that is starting has it among its first messages. */
  setServers(servers: readonly ServerAddress[]): void {
    for (const plane of this.planes) this.tell(plane, { type: 'servers', servers });
  }

  /** How often each worker's loop has turned: one that hangs shows the same number again and again. */
  turns(): number[] {
    return this.planes.map(({ plan }) => new Int32Array(plan.control.stop)[controlWord.turns]!);
  }

  /** TCP connections and UDP associations that the workers hold. */
  load(): Load {
    const sum = (word: number): number =>
      this.planes.reduce((total, { plan }) => total + new Int32Array(plan.control.stop)[word]!, 0);
    return { connections: sum(controlWord.connections), associations: sum(controlWord.associations) };
  }

  /** Resolves when all workers have ended, or after a moment: the process can go then. */
  async stop(): Promise<void> {
    this.tellToStop();
    const late = new Promise<void>((resolve) => {
      setTimeout(resolve, stopMs).unref();
    });
    await Promise.race([Promise.all(this.planes.map((plane) => plane.ended)), late]);
  }

  private startOne(plan: NewPlan): Promise<void> {
    const control = createWorkerControl();
    const workerData: Plan = { ...plan, control };
    const worker = new Worker(new URL('../relay/data-plane.js', import.meta.url), { workerData });
    return new Promise((ready) => {
      const ended = new Promise<void>((resolve) => {
        worker.once('exit', (code) => {
          resolve();
          if (!this.stopping) this.events.onFatal(new Error(`a worker ended with status ${code}`));
        });
      });
      const plane = { worker, plan: workerData, ended };
      this.planes.push(plane);
      worker.on('error', (error) => this.events.onFatal(error as Error));
      worker.on('message', (message: FromWorker) => {
        if (message.type === 'ready') ready();
        else this.onMessage(plane, message);
      });
    });
  }

  private onMessage(plane: Plane, message: FromWorker): void {
    if (message.type === 'log') this.events.onLog(message.level, message.text);
    else if (message.type === 'resolve') void this.answer(plane, message.id, message.host);
  }

  private async answer(plane: Plane, id: number, host: string): Promise<void> {
    try {
      const { addresses } = await this.dns.resolve(host);
      this.tell(plane, { type: 'resolved', id, resolution: { addresses } });
    } catch (error) {
      this.tell(plane, { type: 'resolved', id, resolution: { failure: (error as Error).message } });
    }
  }

  private tell(plane: Plane, message: ToWorker): void {
    plane.worker.postMessage(message);
    raiseWakeup(plane.plan.control.wakeup);
  }

  private tellToStop(): void {
    this.stopping = true;
    for (const { plan } of this.planes) {
      Atomics.store(new Int32Array(plan.control.stop), controlWord.stop, 1);
      raiseWakeup(plan.control.wakeup);
    }
  }
}
