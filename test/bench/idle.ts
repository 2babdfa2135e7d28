// The idle scenario: what an established connection costs in memory while nothing moves, after 128 KiB each way.
// A first round of connections warms the program up (code, heap, pools) and stays open; only what the others add counts.
import { setTimeout as delay } from 'node:timers/promises';
import type { Service } from '../../src/demo/service.js';
import { originPorts, origins, World, type Kind } from '../helpers/world.js';
import { describeMachine, type Machine, type Shared } from './measure.js';

const warmUpConnections = 200;
const kibEachWay = 128;
const settleMs = 3000; // a garbage collector and a pool give back what they do not need after a while

export interface IdleOptions extends Shared {
  method: string;
  connections: number;
}

export interface IdleResult {
  scenario: 'idle';
  machine: Machine;
  method: string;
  connections: number;
  kibPerConnection: Record<Kind, number>;
}

export async function measureIdle(options: IdleOptions): Promise<IdleResult> {
  const { method, mode, node, args, connections, say } = options;
  const world = await World.create('idle', { checked: false });
  const kibPerConnection = { ours: NaN, debian: NaN };
  try {
    for (const kind of ['ours', 'debian'] as const) {
      await world.startServer('debian', { config: { method } });
      const redir = await world.startRedir(kind, mode, {
        config: { method },
        node,
        ...(kind === 'ours' && { args }),
      });
      kibPerConnection[kind] = (await idleBytes(world, redir, connections)) / 1024;
      say(`${kind}: ${kibPerConnection[kind].toFixed(1)} KiB a connection`);
      await world.reset();
    }
  } finally {
    await world.destroy();
  }
  return { scenario: 'idle', machine: describeMachine(node), method, connections, kibPerConnection };
}

/** RSS in bytes that each of `connections` idle connections adds to `redir`. */
export async function idleBytes(world: World, redir: Service, connections: number): Promise<number> {
  await holdOpen(world, warmUpConnections);
  await delay(settleMs);
  const before = redir.usage().rssBytes;
  await holdOpen(world, connections);
  await delay(settleMs);
  return (redir.usage().rssBytes - before) / connections;
}

async function holdOpen(world: World, connections: number): Promise<void> {
  const { completed, failures } = await world.client.bulk({
    host: origins.ipv4,
    port: originPorts.transfer,
    connections,
    atOnce: 100,
    down: kibEachWay * 1024,
    up: kibEachWay * 1024,
    keep: true,
  });
  if (completed < connections)
    throw new Error(`${connections - completed} connections failed: ${JSON.stringify(failures)}`);
}

export function printIdle(result: IdleResult, json: boolean): void {
  if (json) {
    console.log(JSON.stringify(result));
    return;
  }
  const { machine, method, connections, kibPerConnection } = result;
  console.log(
    `${machine.cpu}, ${machine.cores} cores, Linux ${machine.kernel}; ours on Node ${machine.node}`,
  );
  console.log(`${method}: ${connections} idle connections after ${kibEachWay} KiB each way, RSS of ss-redir`);
  for (const [kind, kib] of Object.entries(kibPerConnection))
    console.log(`${kind}: ${kib.toFixed(1)} KiB each`);
}
