/*
 * One visit of the client: a page, then the large file each way, every byte verified. And one by UDP: a question to a name
 * server, then a burst of datagrams there and back.
 */
import type { Burst } from './datagrams.js';
import { megabytesPerSecond, ProgressBar } from './progress.js';
import { acts, actTitle, targets, type Act, type Scene, type Sight } from './scene.js';
import type { Outcome, Progress } from './traffic.js';

export type Family = 'ipv4' | 'ipv6';

export interface Visit {
  act: Act;
  family: Family;
  /** Whom the web server saw. */
  peer: string;
  download: Outcome;
  upload: Outcome;
  sight: Sight;
}

export interface UdpVisit {
  act: Act;
  family: Family;
  /** Whom the name server saw. */
  peer: string;
  burst: Burst;
  sight: Sight;
}

export interface File {
  bytes: number;
  sha256: string;
}

export function targetUrl(family: Family): string {
  return family === 'ipv4' ? `http://${targets.ipv4}` : `http://[${targets.ipv6}]`;
}

export async function visit(scene: Scene, act: Act, family: Family, file: File): Promise<Visit> {
  const url = targetUrl(family);
  const title = titleOf(act, family);
  await scene.look(); // starts the counters anew
  await greet(scene, url);
  const download = await transfer(scene, `${title} down`, file, ['download', `${url}/file/${file.bytes}`]);
  const upload = await transfer(scene, `${title} up  `, file, ['upload', `${url}/file`, String(file.bytes)]);
  return { act, family, peer: download.peer, download, upload, sight: await scene.look() };
}

export async function visitByUdp(scene: Scene, act: Act, family: Family, count: number): Promise<UdpVisit> {
  const target = targets[family];
  const title = titleOf(act, family);
  await scene.look();
  const peer = await scene.runDatagrams('whoami', target);
  console.log(`  ${title} name server ${target} was asked by ${peer}`);
  const burst = JSON.parse(await scene.runDatagrams('burst', target, String(count))) as Burst;
  const { echoed, bytes, seconds } = burst;
  const took = `${seconds.toFixed(1)} s`;
  console.log(`  ${title} ${echoed} of ${count} datagrams of ${bytes} bytes there and back in ${took}`);
  return { act, family, peer, burst, sight: await scene.look() };
}

function titleOf(act: Act, family: Family): string {
  const width = Math.max(...acts.map((one) => actTitle(one).length));
  return `${actTitle(act).padEnd(width)} ${family === 'ipv4' ? 'IPv4' : 'IPv6'}`;
}

async function greet(scene: Scene, url: string): Promise<void> {
  const client = await scene.startClient('get', `${url}/`);
  const { code } = await client.exited;
  if (code !== 0 || !client.output.includes(' greets ')) {
    throw new Error(`GET ${url}/ through the proxy failed: ${client.output.trim()}`);
  }
}

async function transfer(scene: Scene, title: string, file: File, args: string[]): Promise<Outcome> {
  const bar = new ProgressBar(title, file.bytes);
  const client = await scene.startClient(...args);
  const timer = setInterval(() => bar.update(lastBytes(client.output)), 100);
  const { code } = await client.exited;
  clearInterval(timer);
  if (code !== 0) throw new Error(`${args.join(' ')}: status ${code}: ${client.output.trim()}`);
  const outcome = JSON.parse(lastLine(client.output)) as Outcome;
  if (outcome.bytes !== file.bytes || outcome.sha256 !== file.sha256) {
    throw new Error(
      `${title}: ${outcome.bytes} bytes with SHA-256 ${outcome.sha256} arrived, expected ${file.bytes} with ${file.sha256}`,
    );
  }
  const mebibytes = file.bytes / 1024 / 1024;
  const rate = megabytesPerSecond(outcome.bytes, outcome.seconds);
  bar.finish(`${mebibytes} MiB in ${outcome.seconds.toFixed(1)} s, ${rate}, SHA-256 matches`);
  return outcome;
}

function lastLine(output: string): string {
  return output.trimEnd().split('\n').at(-1) ?? '';
}

function lastBytes(output: string): number {
  // The last line may be cut.
  const numbers = output.slice(-200).match(/"bytes":\d+\}/g);
  return numbers === null ? 0 : (JSON.parse(`{${numbers.at(-1)}`) as Progress).bytes;
}
