// The test's side of helpers/agent.ts: an Agent is a process in a namespace, a RemoteSocket a socket in it.
import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type {
  Bulk,
  BulkResult,
  Endpoint,
  Listen,
  Operations,
  Reply,
  Request,
  Snapshot,
  WaitFor,
} from './agent.js';

const program = fileURLToPath(new URL('agent.js', import.meta.url));

export class Agent {
  readonly #child: ChildProcess;
  readonly #pending = new Map<
    number,
    { resolve: (value: unknown) => void; reject: (error: Error) => void }
  >();
  #nextId = 1;

  /** @param namespace the network namespace to run in; none: the machine's own */
  constructor(namespace?: string) {
    const command = namespace ? ['ip', 'netns', 'exec', namespace, process.execPath] : [process.execPath];
    this.#child = spawn(command[0]!, [...command.slice(1), program], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      serialization: 'advanced',
    });
    this.#child.on('message', (reply: Reply) => {
      const pending = this.#pending.get(reply.id);
      this.#pending.delete(reply.id);
      if (reply.error === undefined) pending?.resolve(reply.result);
      else pending?.reject(new Error(reply.error));
    });
    this.#child.on('exit', (code, signal) => {
      for (const { reject } of this.#pending.values()) reject(new Error(`agent ended: ${code ?? signal}`));
      this.#pending.clear();
    });
  }

  call<Name extends keyof Operations>(
    name: Name,
    args: Parameters<Operations[Name]>[0],
  ): Promise<Awaited<ReturnType<Operations[Name]>>> {
    const request: Request = { id: this.#nextId++, name, args };
    return new Promise((resolve, reject) => {
      this.#pending.set(request.id, { resolve: resolve as (value: unknown) => void, reject });
      this.#child.send(request, (error) => {
        if (error) reject(error);
      });
    });
  }

  listen(listen: Listen): Promise<void> {
    return this.call('listen', listen);
  }

  async connect(to: Endpoint): Promise<RemoteSocket> {
    return new RemoteSocket(this, await this.call('connect', to));
  }

  async connectMany(to: Endpoint, connections: number): Promise<RemoteSocket[]> {
    const handles = await this.call('connectMany', { ...to, connections });
    return handles.map((handle) => new RemoteSocket(this, handle));
  }

  /** The next connection to a port that listens with the behaviour `manual`. */
  async accept(port: number, ms = 5000): Promise<RemoteSocket> {
    return new RemoteSocket(this, await this.call('accept', { port, ms }));
  }

  bulk(options: Bulk): Promise<BulkResult> {
    return this.call('bulk', options);
  }

  get pid(): number {
    return this.#child.pid!;
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.kill('SIGKILL');
    await ended;
  }
}

export class RemoteSocket {
  readonly #agent: Agent;
  readonly #handle: number;

  constructor(agent: Agent, handle: number) {
    this.#agent = agent;
    this.#handle = handle;
  }

  async write(data: Buffer | string): Promise<void> {
    await this.#agent.call('write', { handle: this.#handle, data });
  }

  /** Sends FIN and goes on reading. */
  end(): Promise<void> {
    return this.#agent.call('end', { handle: this.#handle });
  }

  /** Sends RST. */
  reset(): Promise<void> {
    return this.#agent.call('reset', { handle: this.#handle });
  }

  destroy(): Promise<void> {
    return this.#agent.call('destroy', { handle: this.#handle });
  }

  pause(): Promise<void> {
    return this.#agent.call('pause', { handle: this.#handle });
  }

  resume(): Promise<void> {
    return this.#agent.call('resume', { handle: this.#handle });
  }

  /** The socket's state when it is as wanted, when it is closed, or after `ms`, whichever comes first. */
  wait(want: WaitFor, ms = 5000): Promise<Snapshot> {
    return this.#agent.call('wait', { handle: this.#handle, want, ms });
  }

  snapshot(): Promise<Snapshot> {
    return this.wait({}, 0);
  }
}
