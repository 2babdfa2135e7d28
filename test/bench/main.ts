// npm run bench: measures ss-redir against Debian's, in network namespaces on this machine.
//
//   npm run bench                         throughput: MB/s and CPU seconds per GB, one connection, both directions
//   npm run bench -- editions             our ss-redir with our ss-server, a 2022 method beside one of 2017
//   npm run bench -- udp                  echoes a second and their CPU time, offered more than the machine can do
//   npm run bench -- idle                 memory of idle connections
//   npm run bench -- --node /opt/node24/bin/node --methods aes-256-gcm --rounds 9 --json
import { parseArgs } from 'node:util';
import { benchTools, installMissing } from '../helpers/packages.js';
import { whySkipped, type Mode } from '../helpers/world.js';
import { measureEditions, printEditions } from './editions.js';
import { measureIdle, printIdle } from './idle.js';
import { measureThroughput, printThroughput } from './throughput.js';
import { measureUdp, printUdp } from './udp.js';

const help = `usage: npm run bench -- [throughput | editions | udp | idle] [options]

  --methods A,B      default aes-256-gcm,chacha20-ietf-poly1305 (throughput), aes-256-gcm (udp, idle: one),
                     aes-256-gcm,2022-blake3-aes-256-gcm (editions: the first is what the others are compared with)
  --rounds N         throughput, editions, udp: rounds of ours, theirs; medians are printed (5)
  --mib N            throughput: MiB a transfer (1024); CPU time comes in ticks of 10 ms: take a size whose CPU time is
                     a second or so, then a tick at either end is within 2 %
  --connections N    throughput: parallel connections (1); idle: connections held (2000)
  --flows A,B        udp: client sockets (1,200)
  --rate N           udp: datagrams a second, over all flows (40000)
  --seconds N        udp: length of a round (5)
  --remotes N        udp: addresses and ports that each flow sends to in turn (1)
  --server-nice N    udp: priority of ss-server, -20 to 19 (0)
  --redirect         the way in (default; udp: always TPROXY)
  --tproxy
  --node PATH        the Node binary that runs our ss-redir (default: this one)
  --workers N        our ss-redir's --workers (its default)
  --json             one JSON object in place of the table

SS_REDIR_TEST_OURS=debian puts Debian's ss-redir in the place of ours: the ratios must then be about 1.00.`;

try {
  process.exitCode = await main();
} catch (error) {
  console.error(`bench: ${(error as Error).message}`);
  process.exitCode = 1;
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      methods: { type: 'string' },
      rounds: { type: 'string', default: '5' },
      mib: { type: 'string', default: '1024' },
      connections: { type: 'string' },
      flows: { type: 'string', default: '1,200' },
      rate: { type: 'string', default: '40000' },
      seconds: { type: 'string', default: '5' },
      remotes: { type: 'string', default: '1' },
      'server-nice': { type: 'string', default: '0' },
      redirect: { type: 'boolean' },
      tproxy: { type: 'boolean' },
      node: { type: 'string', default: process.execPath },
      workers: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h' },
    },
  });
  const [scenario = 'throughput'] = positionals;
  if (values.help || !['throughput', 'editions', 'udp', 'idle'].includes(scenario)) {
    console.log(help);
    return values.help ? 0 : 1;
  }

  installMissing(benchTools, say);
  const skipped = whySkipped();
  if (skipped) throw new Error(skipped);

  const mode: Mode = values.tproxy ? 'tproxy' : 'redirect';
  const { node, json } = values;
  const args = values.workers === undefined ? [] : ['--workers', values.workers];
  const shared = { mode, node, args, say };
  if (scenario === 'idle') {
    const method = values.methods ?? 'aes-256-gcm';
    const connections = positive('--connections', values.connections ?? '2000');
    printIdle(await measureIdle({ ...shared, method, connections }), json);
    return 0;
  }
  if (scenario === 'udp') {
    const udp = {
      ...shared,
      method: values.methods ?? 'aes-256-gcm',
      flows: values.flows.split(',').map((flows) => positive('--flows', flows)),
      rate: positive('--rate', values.rate),
      seconds: positive('--seconds', values.seconds),
      rounds: positive('--rounds', values.rounds),
      remotes: positive('--remotes', values.remotes),
      serverNice: Number(values['server-nice']),
    };
    printUdp(await measureUdp(udp), json);
    return 0;
  }
  const transfers = {
    ...shared,
    rounds: positive('--rounds', values.rounds),
    mib: positive('--mib', values.mib),
    connections: positive('--connections', values.connections ?? '1'),
  };
  if (scenario === 'editions') {
    const methods = (values.methods ?? 'aes-256-gcm,2022-blake3-aes-256-gcm').split(',');
    printEditions(await measureEditions({ ...transfers, methods }), json);
    return 0;
  }
  const methods = (values.methods ?? 'aes-256-gcm,chacha20-ietf-poly1305').split(',');
  printThroughput(await measureThroughput({ ...transfers, methods }), json);
  return 0;
}

function say(line: string): void {
  console.error(`bench: ${line}`);
}

function positive(option: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1)
    throw new Error(`${option} ${text}: expected a whole number above 0`);
  return value;
}
