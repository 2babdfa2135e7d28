/*
 * npm start: a LAN client reaches an internet through ss-redir, on this machine alone.
 *
 *   1. root, nftables, iproute2         4. per mode and family: a page, the large file each way, verified
 *   2. client, gateway and internet     5. the summary
 *   3. ss-server; ss-redir and rules    6. with --hold: stays up until Ctrl-C; then nothing is left
 */
import { parseArgs } from 'node:util';
import { UsageError } from '../errors.js';
import { blockSize, fileDigest } from './content.js';
import { LogLines } from './log-lines.js';
import { completePath, requireRoot, requireTools } from './needs.js';
import { Scene } from './scene.js';
import { findFault, summarise } from './summary.js';
import { targetUrl, visit, type Family, type Visit } from './visit.js';

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
    const visits = await demonstrate(scene, mebibytes * blockSize);
    console.log(summarise(visits));
    const fault = findFault(visits);
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

async function demonstrate(scene: Scene, bytes: number): Promise<Visit[]> {
  const file = { bytes, sha256: fileDigest(bytes) };
  const families: Family[] = scene.testbed.ipv6 ? ['ipv4', 'ipv6'] : ['ipv4'];
  if (!scene.testbed.ipv6) console.log('This kernel has no IPv6: IPv4 only');
  const visits: Visit[] = [];
  for (const mode of ['redirect', 'tproxy'] as const) {
    await scene.enter(mode);
    for (const family of families) visits.push(await visit(scene, mode, family, file));
  }
  return visits;
}

async function stayUp(scene: Scene, log: LogLines): Promise<void> {
  const { client, gateway, internet } = scene.testbed;
  console.log(`
Up in TPROXY mode until Ctrl-C. To look around, as root in another terminal:

  ${inside(client.name)} ${scene.webCommand.join(' ')} ${targetUrl('ipv4')}/
  ${inside(client.name)} ${scene.webCommand.join(' ')} '${targetUrl('ipv6')}/'
  ${inside(client.name)} bash
  ${inside(gateway.name)} nft list table inet ss_redir_default
  ${inside(gateway.name)} ip rule
  ${inside(gateway.name)} ip -6 route show table 8388
  ${inside(gateway.name)} ss -tnp
  ${inside(internet.name)} ss -tnlp
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
