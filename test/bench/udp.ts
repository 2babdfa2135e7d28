// The UDP scenario:
//
//   client: udp-blaster -> gateway: nft, ss-redir (measured) -> internet: Debian's ss-server -> udp-echo
//
// Datagrams of 512 bytes are offered at a steady rate, whether or not echoes come. Ours and Debian's ss-redir run side by side
// all the time and the rules give the traffic to one of them, in turns, so that a change of the machine's speed meets both.
// Where the rate is more than the machine can do, something loses datagrams, and every place is counted by itself: a round in
// which the load's own sockets lost some, or the client offered less than it should, says little about ss-redir.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { internetAddresses } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { loadRules } from '../helpers/rules.js';
import { redirPort, World, type Kind } from '../helpers/world.js';
import { describeMachine, median, table, type Machine, type Shared } from './measure.js';
import type { Blast, BlastResult } from './udp-blaster.js';
import { lostAtPorts, lostInBacklogs, lostInSockets } from './udp-losses.js';

const datagramSize = 512;
const echoPort = 7000; // and the next ones, where there are more remotes than addresses
const warmUpSeconds = 2; // so that our code is compiled
const settleMs = 100;

export interface UdpOptions extends Shared {
  method: string;
  /** A table row each: how many client sockets send. */
  flows: number[];
  /** Datagrams a second, over all flows. */
  rate: number;
  seconds: number;
  rounds: number;
  /** Addresses and ports that each flow sends to in turn. With one, the client's sockets are connected. */
  remotes: number;
  /** Of the server. Below 0 it loses less, and costs ss-redir its share of a saturated machine. */
  serverNice: number;
}

const places = ['gateway', 'client', 'server', 'echo', 'queues', 'elsewhere'] as const;
type Place = (typeof places)[number];

const workers = ['redir', 'server', 'client', 'echo', 'others'] as const;
type Worker = (typeof workers)[number];

interface Figures {
  sentPerSecond: number;
  echoes: number;
  echoesPerSecond: number;
  userMicros: number;
  systemMicros: number;
  echoesPerCpuSecond: number;
  /** CPU of ss-redir for each datagram that it took, in either direction, whether or not its echo came back. */
  microsPerDatagram: number;
  /** Datagrams, of the round. */
  lost: Record<Place, number>;
  /** Processors in use. `others` had no part in it: where they are many, the round says little. */
  load: Record<Worker, number>;
}

interface Ratio {
  perCpuSecond: number;
  /** Of single rounds, the lowest and the highest. */
  perCpuSecondRange: [number, number];
  perSecond: number;
  perSecondRange: [number, number];
}

interface Row {
  flows: number;
  ours: Figures;
  theirs: Figures;
  /** Above 1 is better. */
  ratio: Ratio;
}

export interface UdpResult {
  scenario: 'udp';
  machine: Machine;
  method: string;
  rate: number;
  seconds: number;
  rounds: number;
  remotes: number;
  serverNice: number;
  rows: Row[];
}

export async function measureUdp(options: UdpOptions): Promise<UdpResult> {
  const { method, flows, rate, seconds, rounds, remotes, serverNice, node } = options;
  const world = await World.create('udp', { checked: false });
  const rows: Row[] = [];
  try {
    const range = await Range.create(world, options);
    for (const count of flows) rows.push(await measureFlows(range, count, options));
  } finally {
    await world.destroy();
  }
  const machine = describeMachine(node);
  return { scenario: 'udp', machine, method, rate, seconds, rounds, remotes, serverNice, rows };
}

async function measureFlows(range: Range, flows: number, options: UdpOptions): Promise<Row> {
  const { rate, seconds, rounds, say } = options;
  const blaster = range.startBlaster(flows);
  const samples: Record<Kind, Figures[]> = { ours: [], debian: [] };
  for (const kind of kinds) await range.measure(blaster, kind, { rate, seconds: warmUpSeconds });
  for (let round = 1; round <= rounds; round++) {
    // Each goes first in every other round.
    for (const kind of round % 2 === 1 ? kinds : kinds.toReversed()) {
      const figures = await range.measure(blaster, kind, { rate, seconds });
      samples[kind].push(figures);
      say(`${flows} flow(s) round ${round}/${rounds} ${kind}: ${describe(figures)}`);
    }
  }
  blaster.kill();
  const ours = combine(samples.ours);
  const theirs = combine(samples.debian);
  return { flows, ours, theirs, ratio: compare(samples, ours, theirs) };
}

const kinds: readonly Kind[] = ['ours', 'debian'];

/** What stays up for the whole measurement: both ss-redir, the server, the echo. */
class Range {
  private readonly world: World;
  private readonly remotes: readonly string[];
  private readonly redirs: Record<Kind, { port: number; service: Service }>;
  private readonly server: Service;
  private readonly echo: Service;
  private round = 0;

  private constructor(
    world: World,
    remotes: readonly string[],
    redirs: Range['redirs'],
    server: Service,
    echo: Service,
  ) {
    this.world = world;
    this.remotes = remotes;
    this.redirs = redirs;
    this.server = server;
    this.echo = echo;
  }

  static async create(world: World, options: UdpOptions): Promise<Range> {
    const { method, node, args, remotes, serverNice } = options;
    const endpoints = Array.from({ length: remotes }, (_, i) => {
      const hosts = internetAddresses.ipv4;
      return `${hosts[i % hosts.length]}:${echoPort + Math.floor(i / hosts.length)}`;
    });
    const echo = await world.bed.internet.start(process.execPath, [program('udp-echo.js'), ...endpoints], {
      label: 'udp-echo',
    });
    await echo.waitForOutput(/ready/);

    const common = { method, mode: 'tcp_and_udp' };
    const prefix = ['nice', '-n', String(serverNice)];
    const server = await world.startServer('debian', { config: common, prefix });
    const start = async (kind: Kind, port: number) => {
      // libev takes the destination of IPv4 datagrams on an IPv4 socket only.
      const config = { ...common, local_address: '0.0.0.0', local_port: port };
      const own = kind === 'ours' && { args };
      return { port, service: await world.startRedir(kind, 'tproxy', { config, node, ...own }) };
    };
    const redirs = { ours: await start('ours', redirPort), debian: await start('debian', redirPort + 1) };
    return new Range(world, endpoints, redirs, server, echo);
  }

  startBlaster(flows: number): ChildProcess {
    const { name } = this.world.bed.client;
    const command = [process.execPath, program('udp-blaster.js'), flows, datagramSize, ...this.remotes];
    return spawn('ip', ['netns', 'exec', name, ...command.map(String)], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
  }

  async measure(blaster: ChildProcess, kind: Kind, blast: Omit<Blast, 'round'>): Promise<Figures> {
    const { port, service } = this.redirs[kind];
    await loadRules(this.world.bed.gateway, 'tproxy', port, { protocols: ['tcp', 'udp'] });
    const before = this.read(service, blaster.pid!);
    const result = await order(blaster, { ...blast, round: ++this.round });
    await delay(settleMs);
    const after = this.read(service, blaster.pid!);
    if (result.echoes === 0) {
      throw new Error(
        `${service.label}: no echo of ${result.sent} datagrams, ${result.unsent} more could not be sent; ${service.output.slice(-500)}`,
      );
    }
    return figuresOf(result, before, after);
  }

  private read(redir: Service, blaster: number): Reading {
    const ports = new Set(this.remotes.map((remote) => Number(remote.split(':')[1])));
    const inInternet = lostInSockets(this.server.pid);
    const echo = lostAtPorts(this.echo.pid, ports);
    return {
      seconds: performance.now() / 1000,
      machine: machineCpuSeconds(),
      redir: redir.usage(),
      server: cpuOf(this.server),
      echo: cpuOf(this.echo),
      lost: {
        gateway: lostInSockets(redir.pid),
        client: lostInSockets(blaster),
        server: inInternet - echo,
        echo,
        queues: lostInBacklogs(),
      },
    };
  }
}

/** CPU and wall clock in seconds, datagrams. */
interface Reading {
  seconds: number;
  machine: number;
  redir: { userSeconds: number; systemSeconds: number };
  server: number;
  echo: number;
  lost: Record<Exclude<Place, 'elsewhere'>, number>;
}

function program(name: string): string {
  return fileURLToPath(new URL(name, import.meta.url));
}

function cpuOf(service: Service): number {
  const { userSeconds, systemSeconds } = service.usage();
  return userSeconds + systemSeconds;
}

/** CPU time of all processors that was not idle; what a hypervisor took from us is in it. */
function machineCpuSeconds(): number {
  // proc(5): cpu user nice system idle iowait irq softirq steal ..., in ticks of 10 ms
  const [, user, nice, system, , , irq, softirq, steal] = readFileSync('/proc/stat', 'utf8')
    .split('\n', 1)[0]!
    .split(/\s+/)
    .map(Number);
  return (user! + nice! + system! + irq! + softirq! + steal!) / 100;
}

async function order(blaster: ChildProcess, blast: Blast): Promise<BlastResult> {
  const ended = new AbortController();
  const onExit = () => ended.abort();
  blaster.once('exit', onExit);
  try {
    blaster.send(blast);
    const [result] = await once(blaster, 'message', { signal: ended.signal });
    return result as BlastResult;
  } catch (cause) {
    throw new Error('udp-blaster ended before its result', { cause });
  } finally {
    blaster.off('exit', onExit);
  }
}

function figuresOf(result: BlastResult, before: Reading, after: Reading): Figures {
  const { sent, echoes, sendSeconds, echoSeconds, cpuSeconds } = result;
  const user = after.redir.userSeconds - before.redir.userSeconds;
  const system = after.redir.systemSeconds - before.redir.systemSeconds;
  const cpu = {
    redir: user + system,
    server: after.server - before.server,
    client: cpuSeconds,
    echo: after.echo - before.echo,
    others: 0,
  };
  cpu.others = after.machine - before.machine - cpu.redir - cpu.server - cpu.client - cpu.echo;
  const lost = {} as Figures['lost'];
  let known = 0;
  for (const place of places) {
    if (place === 'elsewhere') continue;
    lost[place] = after.lost[place] - before.lost[place];
    known += lost[place];
  }
  lost.elsewhere = sent - echoes - known;
  return {
    sentPerSecond: sent / sendSeconds,
    echoes,
    echoesPerSecond: echoes / echoSeconds,
    userMicros: (user * 1e6) / echoes,
    systemMicros: (system * 1e6) / echoes,
    echoesPerCpuSecond: echoes / (user + system),
    microsPerDatagram: ((user + system) * 1e6) / (sent - lost.client - lost.gateway + echoes),
    lost,
    load: byWorker((worker) => cpu[worker] / (after.seconds - before.seconds)),
  };
}

function combine(samples: readonly Figures[]): Figures {
  const middle = (of: (one: Figures) => number) => median(samples.map(of));
  const lost = {} as Figures['lost'];
  for (const place of places) lost[place] = middle((one) => one.lost[place]);
  return {
    sentPerSecond: middle((one) => one.sentPerSecond),
    echoes: middle((one) => one.echoes),
    echoesPerSecond: middle((one) => one.echoesPerSecond),
    userMicros: middle((one) => one.userMicros),
    systemMicros: middle((one) => one.systemMicros),
    echoesPerCpuSecond: middle((one) => one.echoesPerCpuSecond),
    microsPerDatagram: middle((one) => one.microsPerDatagram),
    // The worst round: a loss in the gateway must not hide behind a median.
    lost: { ...lost, gateway: Math.max(...samples.map((one) => one.lost.gateway)) },
    load: byWorker((worker) => middle((one) => one.load[worker])),
  };
}

function byWorker(of: (worker: Worker) => number): Record<Worker, number> {
  return Object.fromEntries(workers.map((worker) => [worker, of(worker)])) as Record<Worker, number>;
}

function compare(samples: Record<Kind, Figures[]>, ours: Figures, theirs: Figures): Ratio {
  const range = (of: (one: Figures) => number): [number, number] => {
    const ratios = samples.ours.map((one, i) => of(one) / of(samples.debian[i]!));
    return [Math.min(...ratios), Math.max(...ratios)];
  };
  return {
    perCpuSecond: ours.echoesPerCpuSecond / theirs.echoesPerCpuSecond,
    perCpuSecondRange: range((one) => one.echoesPerCpuSecond),
    perSecond: ours.echoesPerSecond / theirs.echoesPerSecond,
    perSecondRange: range((one) => one.echoesPerSecond),
  };
}

function describe({ sentPerSecond, echoesPerSecond, userMicros, systemMicros, lost, load }: Figures): string {
  const losses = places.filter((place) => lost[place] !== 0).map((place) => `${place} ${lost[place]}`);
  const loads = Object.entries(load).map(([name, share]) => `${name} ${share.toFixed(2)}`);
  return [
    `${sentPerSecond.toFixed(0)} sent/s, ${echoesPerSecond.toFixed(0)} echoes/s`,
    `${micros(userMicros, systemMicros)} µs`,
    `CPU ${loads.join(' ')}`,
    `lost: ${losses.join(', ') || 'none'}`,
  ].join('; ');
}

function micros(user: number, system: number): string {
  return `${(user + system).toFixed(1)} (${user.toFixed(1)}+${system.toFixed(1)})`;
}

/** What ours is held to. */
const perCpuSecondTargets = new Map([
  [1, 2],
  [200, 1.5],
]);
const perSecondTarget = 1.2;

export function printUdp(result: UdpResult, json: boolean): void {
  if (json) {
    console.log(JSON.stringify(result));
    return;
  }
  const { machine, method, rate, seconds, rounds, remotes, serverNice, rows } = result;
  console.log(
    `${machine.cpu}, ${machine.cores} cores, Linux ${machine.kernel}; ours on Node ${machine.node}`,
  );
  console.log(
    `tproxy, ${method}, ${datagramSize} bytes, ${rate}/s offered for ${seconds} s, ${remotes} remote(s), server at nice ${serverNice}; medians of ${rounds} rounds`,
  );
  console.log(
    'CPU: µs (user+system) of the whole ss-redir process for each datagram that came back, and for each that it',
  );
  console.log('took in either direction, which counts those that were lost behind it, too;');
  console.log('lost: datagrams a round, by whose sockets; in the gateway the worst round\n');
  const header = ['', 'sent/s', 'echoes/s', 'CPU µs/echo', 'echoes/CPU s', 'µs/datagram', ...places];
  const line = (name: string, one: Figures) =>
    [
      name,
      one.sentPerSecond.toFixed(0),
      one.echoesPerSecond.toFixed(0),
      micros(one.userMicros, one.systemMicros),
      one.echoesPerCpuSecond.toFixed(0),
      one.microsPerDatagram.toFixed(1),
    ].concat(places.map((place) => one.lost[place].toFixed(0)));
  const body = rows.flatMap(({ flows, ours, theirs }) => [
    line(`${flows} flow(s) ours`, ours),
    line(`${flows} flow(s) debian`, theirs),
  ]);
  console.log(table([header, ...body]));
  console.log();
  for (const row of rows) for (const verdict of verdicts(row)) console.log(verdict);
}

function verdicts({ flows, ours, ratio }: Row): string[] {
  const about = (name: string, value: number, [low, high]: [number, number], target: number | undefined) => {
    const times = `${flows} flow(s): ${name} ${value.toFixed(2)} times Debian's (rounds ${low.toFixed(2)} to ${high.toFixed(2)})`;
    if (target === undefined) return times;
    return `${times}, wanted ${target.toFixed(1)}: ${value >= target ? 'met' : 'NOT met'}`;
  };
  const { gateway } = ours.lost;
  return [
    about(
      'echoes per CPU second',
      ratio.perCpuSecond,
      ratio.perCpuSecondRange,
      perCpuSecondTargets.get(flows),
    ),
    about('echoes per second', ratio.perSecond, ratio.perSecondRange, perSecondTarget),
    `${flows} flow(s): lost in the gateway's own sockets ${gateway}, wanted 0: ${gateway === 0 ? 'met' : 'NOT met'}`,
  ];
}
