// The throughput scenario:
//
//   client: iperf3 -c -> gateway: nft, ss-redir (measured) -> internet: Debian's ss-server -> iperf3 -s
//
// Ours and Debian's ss-redir run side by side all the time and the rules give the traffic to one of them: ours, theirs,
// ours, theirs ... so that a change of the machine's speed meets both. Congestion control is reno (the testbed sets it):
// bbr paces, which makes the CPU time per GB of one and the same program jump.
import { setTimeout as delay } from 'node:timers/promises';
import type { Service } from '../../src/demo/service.js';
import { loadRules } from '../helpers/rules.js';
import { origins, redirPort, World, type Kind } from '../helpers/world.js';
import { describeMachine, mean, median, table, type Machine, type Shared } from './measure.js';

export const iperfPort = 5201;
export const warmUpMiB = 256; // each way, so that our code is compiled and both programs' heaps have grown
const settleMs = 100; // for what a program still does after its last byte

export const directions = ['down', 'up'] as const;
export type Direction = (typeof directions)[number];

export interface ThroughputOptions extends Shared {
  methods: string[];
  rounds: number;
  mib: number;
  connections: number;
}

export interface Figures {
  megabytesPerSecond: number;
  userPerGigabyte: number;
  systemPerGigabyte: number;
  cpuPerGigabyte: number;
}

interface Row {
  method: string;
  direction: Direction | 'mean';
  ours: Figures;
  theirs: Figures;
  ratio: { speed: number; cpu: number };
}

export interface ThroughputResult {
  scenario: 'throughput';
  machine: Machine;
  mode: string;
  rounds: number;
  mib: number;
  connections: number;
  rows: Row[];
}

export async function measureThroughput(options: ThroughputOptions): Promise<ThroughputResult> {
  const { methods, mode, rounds, mib, connections } = options;
  const world = await World.create('bench', { checked: false });
  const rows: Row[] = [];
  try {
    const receiver = await world.bed.internet.start('iperf3', ['-s', '-p', String(iperfPort)], {
      listen: iperfPort,
    });
    for (const method of methods) rows.push(...(await measureMethod(world, method, options)));
    await receiver.stop();
  } finally {
    await world.destroy();
  }
  return {
    scenario: 'throughput',
    machine: describeMachine(options.node),
    mode,
    rounds,
    mib,
    connections,
    rows,
  };
}

async function measureMethod(world: World, method: string, options: ThroughputOptions): Promise<Row[]> {
  const { mode, node, args, rounds, mib, say } = options;
  await world.startServer('debian', { config: { method } });
  const start = (kind: Kind, port: number) =>
    world.startRedir(kind, mode, {
      config: { method, local_port: port },
      node,
      ...(kind === 'ours' && { args }),
    });
  const proxies = [
    { kind: 'ours', port: redirPort, service: await start('ours', redirPort) },
    { kind: 'debian', port: redirPort + 1, service: await start('debian', redirPort + 1) },
  ] as const;

  const samples = new Map<string, Figures[]>();
  const transferOne = async (proxy: (typeof proxies)[number], direction: Direction, size: number) => {
    await loadRules(world.bed.gateway, mode, proxy.port);
    return measureTransfer(world, proxy.service, direction, { ...options, mib: size });
  };
  for (const proxy of proxies) {
    for (const direction of directions) await transferOne(proxy, direction, Math.min(mib, warmUpMiB));
  }
  for (let round = 1; round <= rounds; round++) {
    for (const direction of directions) {
      for (const proxy of proxies) {
        const figures = await transferOne(proxy, direction, mib);
        say(`${method} ${direction} round ${round}/${rounds} ${proxy.kind}: ${format(figures).join(' ')}`);
        const key = `${proxy.kind} ${direction}`;
        samples.set(key, [...(samples.get(key) ?? []), figures]);
      }
    }
  }
  await world.reset();

  const both = directions.map((direction) => {
    const ours = combine(samples.get(`ours ${direction}`) ?? [], median);
    return row(method, direction, ours, combine(samples.get(`debian ${direction}`) ?? [], median));
  });
  const average = (side: 'ours' | 'theirs') =>
    combine(
      both.map((one) => one[side]),
      mean,
    );
  return [...both, row(method, 'mean', average('ours'), average('theirs'))];
}

export async function measureTransfer(
  world: World,
  proxy: Service,
  direction: Direction,
  { mib, connections }: Pick<ThroughputOptions, 'mib' | 'connections'>,
): Promise<Figures> {
  const bytes = Math.ceil(mib / connections) * 1_048_576;
  const command = ['-c', origins.ipv4, '-p', iperfPort, '-n', bytes, '-P', connections, '-J'].map(String);
  if (direction === 'down') command.push('-R');

  const before = proxy.usage();
  const { stdout } = await world.bed.client.run('iperf3', command, { reject: false });
  await delay(settleMs);
  const after = proxy.usage();

  const report = JSON.parse(String(stdout)) as IperfReport;
  if (report.error !== undefined || !report.end?.sum_received) {
    throw new Error(
      `${proxy.label}, ${direction}: iperf3: ${report.error ?? 'no result'}; ${proxy.output.slice(-500)}`,
    );
  }
  const { bytes: moved, seconds } = report.end.sum_received;
  const perGigabyte = (cpuSeconds: number) => cpuSeconds / (moved / 1e9);
  const user = perGigabyte(after.userSeconds - before.userSeconds);
  const system = perGigabyte(after.systemSeconds - before.systemSeconds);
  return {
    megabytesPerSecond: moved / 1e6 / seconds,
    userPerGigabyte: user,
    systemPerGigabyte: system,
    cpuPerGigabyte: user + system,
  };
}

interface IperfReport {
  error?: string;
  end?: { sum_received?: { bytes: number; seconds: number } };
}

export function combine(samples: readonly Figures[], how: (values: readonly number[]) => number): Figures {
  return {
    megabytesPerSecond: how(samples.map((one) => one.megabytesPerSecond)),
    userPerGigabyte: how(samples.map((one) => one.userPerGigabyte)),
    systemPerGigabyte: how(samples.map((one) => one.systemPerGigabyte)),
    cpuPerGigabyte: how(samples.map((one) => one.cpuPerGigabyte)),
  };
}

function row(method: string, direction: Row['direction'], ours: Figures, theirs: Figures): Row {
  const ratio = {
    speed: ours.megabytesPerSecond / theirs.megabytesPerSecond,
    cpu: ours.cpuPerGigabyte / theirs.cpuPerGigabyte,
  };
  return { method, direction, ours, theirs, ratio };
}

export function format({
  megabytesPerSecond,
  userPerGigabyte,
  systemPerGigabyte,
  cpuPerGigabyte,
}: Figures): string[] {
  return [
    megabytesPerSecond.toFixed(0),
    `${cpuPerGigabyte.toFixed(2)} (${userPerGigabyte.toFixed(2)}+${systemPerGigabyte.toFixed(2)})`,
  ];
}

export function printThroughput(result: ThroughputResult, json: boolean): void {
  if (json) {
    console.log(JSON.stringify(result));
    return;
  }
  const { machine, rounds, mib, mode, connections, rows } = result;
  console.log(
    `${machine.cpu}, ${machine.cores} cores, Linux ${machine.kernel}; ours on Node ${machine.node}`,
  );
  console.log(
    `${mode}, ${connections} connection(s), ${mib} MiB a transfer, reno; medians of ${rounds} rounds`,
  );
  console.log(
    'CPU: seconds per GB (user+system) of the whole ss-redir process; its clock ticks every 10 ms\n',
  );
  const header = ['', 'ours MB/s', 'CPU s/GB', 'debian MB/s', 'CPU s/GB', 'speed', 'CPU'];
  const body = rows.map(({ method, direction, ours, theirs, ratio }) =>
    [`${method} ${direction}`].concat(
      format(ours),
      format(theirs),
      ratio.speed.toFixed(2),
      ratio.cpu.toFixed(2),
    ),
  );
  console.log(table([header, ...body]));
}
