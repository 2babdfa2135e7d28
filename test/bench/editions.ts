// The editions scenario: one method beside another, ours at both ends.
//
//   client: iperf3 -c -> gateway: nft, our ss-redir (measured) -> internet: our ss-server -> iperf3 -s
//
// Every method has an ss-redir and an ss-server of its own, which run side by side all the time; the rules give the traffic
// to one of them after the other, so that a change of the machine's speed meets all.
import type { Service } from '../../src/demo/service.js';
import { loadRules } from '../helpers/rules.js';
import { origins, redirPort, serverPort, World } from '../helpers/world.js';
import { describeMachine, mean, median, table, type Machine } from './measure.js';
import {
  combine,
  directions,
  format,
  iperfPort,
  measureTransfer,
  warmUpMiB,
  type Direction,
  type Figures,
  type ThroughputOptions,
} from './throughput.js';

interface Way {
  method: string;
  port: number;
  redir: Service;
}

interface Row {
  method: string;
  direction: Direction | 'mean';
  figures: Figures;
  /** To the first method: above 1 is faster, and dearer. */
  ratio: { speed: number; cpu: number };
}

export interface EditionsResult {
  scenario: 'editions';
  machine: Machine;
  rounds: number;
  mib: number;
  rows: Row[];
}

/** The first method is what the others are compared with. */
export async function measureEditions(options: ThroughputOptions): Promise<EditionsResult> {
  const { methods, mode, rounds, mib, connections, say, node } = options;
  const world = await World.create('editions', { checked: false });
  try {
    const receiver = await world.bed.internet.start('iperf3', ['-s', '-p', String(iperfPort)], {
      listen: iperfPort,
    });
    const ways: Way[] = [];
    for (const [i, method] of methods.entries()) ways.push(await startWay(world, method, i, options));

    const samples = new Map<string, Figures[]>();
    const transfer = async (way: Way, direction: Direction, size: number) => {
      await loadRules(world.bed.gateway, mode, way.port);
      return measureTransfer(world, way.redir, direction, { mib: size, connections });
    };
    for (const way of ways) {
      for (const direction of directions) await transfer(way, direction, Math.min(mib, warmUpMiB));
    }
    for (let round = 1; round <= rounds; round++) {
      for (const direction of directions) {
        for (const way of ways) {
          const figures = await transfer(way, direction, mib);
          say(`${direction} round ${round}/${rounds} ${way.method}: ${format(figures).join(' ')}`);
          const key = `${way.method} ${direction}`;
          samples.set(key, [...(samples.get(key) ?? []), figures]);
        }
      }
    }
    await receiver.stop();
    return {
      scenario: 'editions',
      machine: describeMachine(node),
      rounds,
      mib,
      rows: rowsOf(methods, samples),
    };
  } finally {
    await world.destroy();
  }
}

async function startWay(world: World, method: string, i: number, options: ThroughputOptions): Promise<Way> {
  const { mode, node, args } = options;
  const config = { method, password: passwordFor(method), server_port: serverPort + i };
  await world.startServer('ours', { config, node });
  const port = redirPort + i;
  const redir = await world.startRedir('ours', mode, { config: { ...config, local_port: port }, node, args });
  return { method, port, redir };
}

/** A key of the size that the method wants: any will do here. */
function passwordFor(method: string): string {
  if (!method.startsWith('2022-')) return 'correct horse';
  return Buffer.alloc(method.includes('128') ? 16 : 32, 'bench').toString('base64');
}

function rowsOf(methods: readonly string[], samples: ReadonlyMap<string, Figures[]>): Row[] {
  const figuresOf = (method: string, direction: Row['direction']): Figures => {
    if (direction !== 'mean') return combine(samples.get(`${method} ${direction}`) ?? [], median);
    return combine(
      directions.map((each) => figuresOf(method, each)),
      mean,
    );
  };
  return methods.flatMap((method) =>
    ([...directions, 'mean'] as const).map((direction) => {
      const figures = figuresOf(method, direction);
      const first = figuresOf(methods[0]!, direction);
      const ratio = {
        speed: figures.megabytesPerSecond / first.megabytesPerSecond,
        cpu: figures.cpuPerGigabyte / first.cpuPerGigabyte,
      };
      return { method, direction, figures, ratio };
    }),
  );
}

export function printEditions(result: EditionsResult, json: boolean): void {
  if (json) {
    console.log(JSON.stringify(result));
    return;
  }
  const { machine, rounds, mib, rows } = result;
  console.log(`${machine.cpu}, ${machine.cores} cores, Linux ${machine.kernel}; Node ${machine.node}`);
  console.log(
    `${origins.ipv4}, our ss-redir and ss-server, ${mib} MiB a transfer; medians of ${rounds} rounds`,
  );
  console.log(`CPU: seconds per GB (user+system) of ss-redir; ratios to ${rows[0]!.method}\n`);
  const body = rows.map(({ method, direction, figures, ratio }) =>
    [`${method} ${direction}`].concat(format(figures), ratio.speed.toFixed(2), ratio.cpu.toFixed(2)),
  );
  console.log(table([['', 'MB/s', 'CPU s/GB', 'speed', 'CPU'], ...body]));
}
