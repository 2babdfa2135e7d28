/** What the main thread gives a worker at its start, and what the two say to each other afterwards. */
import type { Credentials } from '../crypto/credentials.js';
import type { WorkerControl } from '../engine/worker.js';
import type { Timeouts } from './context.js';
import type { Resolution } from './names.js';
import type { ServerSalts } from './streams.js';
import type { UdpPlan } from './udp-plane.js';
import type { LogLevel } from './worker-log.js';

export interface ListenerPlan {
  /** A listening socket of this process. */
  fd: number;
  port: number;
  /** Type of service of the connections made on behalf of this listener's clients (key dscp), 0 for none. */
  tos: number;
  /** Other workers accept from this very socket, too. */
  shared?: boolean;
}

export interface Plan {
  control: WorkerControl;
  command: 'ss-redir' | 'ss-server';
  listeners: readonly ListenerPlan[];
  tproxy: boolean;
  methodName: string;
  credentials: Credentials;
  /** ss-redir: what those servers have that have a method or keys of their own. */
  otherKeys?: readonly ServerKeys[];
  /** ss-server: the salts seen, one memory for all workers. */
  salts: ServerSalts | undefined;
  /** ss-server with users: this worker's createUserMemory(). */
  userMemory: SharedArrayBuffer | undefined;
  /** For the one worker that has the UDP side. */
  udp: UdpPlan | undefined;
  timeouts: Timeouts;
  maxConnections: number;
  verbose: boolean;
  noDelay: boolean;
  fastOpen: boolean;
  mptcp: boolean;
  mark: number;
  outgoingSendBuffer: number;
  outgoingReceiveBuffer: number;
  /** Numeric source addresses and interface of outgoing connections. */
  bind4: string | undefined;
  bind6: string | undefined;
  interface: string | undefined;
}

export interface ServerKeys {
  methodName: string;
  credentials: Credentials;
}

/** What is said of a server beside where it is. */
export interface ServerTraits {
  /** Index in the plan's otherKeys; absent for the method and keys of the plan itself. */
  keys?: number;
  /** A protocol that is relayed, and not by this server. */
  without?: 'tcp' | 'udp';
}

/** A resolved server: a numeric address and a port. */
export interface ServerAddress extends ServerTraits {
  address: string;
  port: number;
}

/** Of a reload: all but `control`, the listeners and what is bound to them, which stay. */
export type NewPlan = Omit<Plan, 'control'>;

export type ToWorker =
  | { type: 'plan'; plan: NewPlan; servers: readonly ServerAddress[] }
  | { type: 'servers'; servers: readonly ServerAddress[] }
  | { type: 'resolved'; id: number; resolution: Resolution };

export type FromWorker =
  | { type: 'ready' }
  | { type: 'log'; level: LogLevel; text: string }
  | { type: 'resolve'; id: number; host: string };
