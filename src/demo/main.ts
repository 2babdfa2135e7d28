/*
 * npm start: a LAN client reaches an internet through ss-redir, on this machine alone.
 *
 *   1. root, nftables, iproute2         4. per act and family: a page, the large file each way; with TPROXY a DNS query
 *   2. client, gateway and internet        and a burst of datagrams; all verified
 *   3. ss-server; ss-redir and rules    5. the summary
 *                                       6. with --hold: stays up until Ctrl-C; then nothing is left
 */
import { parseArgs } from 'node:util';
import { UsageError } from '../errors.js';
import { blockSize, fileDigest } from './content.js';
import { LogLines } from './log-lines.js';
import { completePath, requireRoot, requireTools } from './needs.js';
import { acts, Scene, targets } from './scene.js';
import { findFault, summarise, type Shown } from './summary.js';
import { targetUrl, visit, visitByUdp, type Family } from './visit.js';

/** In a burst: enough to fill every buffer on the way many times over. */
const datagrams = 2000;

const usage = `usage: npm start [-- --hold] [--mib SIZE]
  --hold       keep everything up after the demonstration, to look around, until Ctrl-C
  --mib SIZE   size of the large file in MiB (default: 256)`;

// process.exit runs the exit handlers, and these remove namespaces, processes and the configuration.
let interruptStatus = 130; // 128 + SIGINT; 0 once Ctrl-C is the end that was asked for
process.once('SIGINT', () => leave('SIGINT', interruptStatus));
process.once('SIGTERM', () => leave('SIGTERM', 143));
process.once('SIGHUP', () => leave('SIGHUP', 129));

try {
  await main(process.argv.slice(2));
} catch (error) {
  console.error(`npm start: ${describe(error)}`);
  process.exit(1);
}

async function main(args: string[]): Promise<void> {
  const { hold, help, mebibytes } = parseArguments(args);
  if (help) {
    console.log(usage);
    return;
  }
  completePath();
  requireRoot();
  await requireTools((line) => console.log(line));

  const log = new LogLines();
  console.log('Network namespaces: client --- gateway --- internet, no way out of this machine');
  const scene = await Scene.create((line) => log.add(line));
  try {
    const shown = await demonstrate(scene, mebibytes * blockSize);
    console.log(summarise(shown));
    const fault = findFault(shown);
    if (fault !== undefined) throw new Error(fault);
    if (hold) await stayUp(scene, log);
  } catch (error) {
    for (const line of log.recent) console.error(line);
    throw error;
  } finally {
    await scene.destroy();
  }
}

interface Arguments {
  hold: boolean;
  help: boolean;
  mebibytes: number;
}

function parseArguments(args: string[]): Arguments {
  const options = {
    hold: { type: 'boolean', default: false },
    help: { type: 'boolean', short: 'h', default: false },
    mib: { type: 'string', default: '256' },
  } as const;
  try {
    const { hold, help, mib } = parseArgs({ args, options }).values;
    if (!/^[1-9]\d{0,3}$/.test(mib)) throw new UsageError(`--mib ${mib}, expected 1..9999`);
    return { hold, help, mebibytes: Number(mib) };
  } catch (error) {
    throw new UsageError(`${describe(error)}\n${usage}`, { cause: error });
  }
}

async function demonstrate(scene: Scene, bytes: number): Promise<Shown> {
  const file = { bytes, sha256: fileDigest(bytes) };
  const families: Family[] = scene.testbed.ipv6 ? ['ipv4', 'ipv6'] : ['ipv4'];
  if (!scene.testbed.ipv6) console.log('This kernel has no IPv6: IPv4 only');
  const shown: Shown = { visits: [], udpVisits: [] };
  for (const act of acts) {
    await scene.enter(act);
    for (const family of families) {
      shown.visits.push(await visit(scene, act, family, file));
      if (act.mode === 'tproxy') shown.udpVisits.push(await visitByUdp(scene, act, family, datagrams));
    }
  }
  return shown;
}

async function stayUp(scene: Scene, log: LogLines): Promise<void> {
  const { client, gateway, internet, ipv6 } = scene.testbed;
  const families: Family[] = ipv6 ? ['ipv4', 'ipv6'] : ['ipv4'];
  const visits = families.flatMap((family) => [
    `${inside(client.name)} ${scene.webCommand.join(' ')} '${targetUrl(family)}/'`,
    `${inside(client.name)} ${scene.whoamiCommand.join(' ')} ${targets[family]}`,
  ]);
  console.log(`
Up in TPROXY mode with the 2022 edition until Ctrl-C. To look around, as root in another terminal (the first ones are a page
over TCP and a DNS query over UDP; both print whom the far end saw):

  ${visits.join('\n  ')}
  ${inside(client.name)} bash
  ${inside(gateway.name)} nft list table inet ss_redir_default
  ${inside(gateway.name)} nft list counters table inet ss_redir_default
  ${inside(gateway.name)} ip rule
  ${inside(gateway.name)} ip -6 route show table 8388
  ${inside(gateway.name)} ss -tulnp
  ${inside(internet.name)} ss -tulnp
`);
  interruptStatus = 0;
  log.onLine = (line) => console.log(line);
  // A timer, since a promise alone does not keep the process.
  await new Promise(() => setInterval(() => undefined, 60_000));
}

function inside(namespace: string): string {
  return `ip netns exec ${namespace}`;
}

function leave(signal: string, status: number): void {
  console.error(`\nnpm start: ${signal}: removing namespaces and processes`);
  process.exit(status);
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { shortMessage, stderr } = error as { shortMessage?: string; stderr?: string };
  if (shortMessage !== undefined) return `${shortMessage}: ${stderr?.trim() ?? ''}`;
  return error.message;
}
