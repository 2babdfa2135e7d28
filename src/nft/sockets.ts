/** Who listens on a port, and whether TPROXY can hand over to it. */
import { readFileSync } from 'node:fs';
import { ToolError } from '../errors.js';
import { runTool } from './tools.js';

export interface Listener {
  readonly protocol: 'tcp' | 'udp';
  /** As ss writes it, `*:1080` or `127.0.0.1:1080`. */
  readonly address: string;
  readonly pid?: number;
  readonly command?: string;
  /** IP_TRANSPARENT; undefined where ss (before 5.10) or the kernel does not tell. */
  readonly isTransparent?: boolean;
}

export async function findListeners(protocol: 'tcp' | 'udp', port: number): Promise<Listener[]> {
  const flags = `-Hnlp${protocol === 'tcp' ? 't' : 'u'}`;
  const filter = `sport = :${port}`;
  let text: string;
  try {
    text = await runTool('ss', [flags, '--inet-sockopt', filter]);
  } catch (error) {
    if (!(error instanceof ToolError) || !/option/.test(error.message)) throw error;
    text = await runTool('ss', [flags, filter]);
  }
  // A socket has a line, and perhaps an indented one that goes with it.
  return text
    .replaceAll(/\n\s+/g, ' ')
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => readListener(protocol, line));
}

function readListener(protocol: 'tcp' | 'udp', line: string): Listener {
  const address = line.trim().split(/\s+/)[3] ?? '';
  const pid = /\bpid=(\d+)/.exec(line)?.[1];
  const options = /inet-sockopt: \(([^)]*)\)/.exec(line)?.[1];
  return {
    protocol,
    address,
    ...(pid !== undefined && { pid: Number(pid), command: commandOf(Number(pid)) }),
    ...(options !== undefined && { isTransparent: options.split(' ').includes('transparent') }),
  };
}

/** A script's interpreter says nothing: the first word that ends in a name of ours, or else argv[0]. */
function commandOf(pid: number): string {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    const names = words.map((word) => word.replace(/^.*\//, '').replace(/\.js$/, ''));
    return names.find((name) => /^ss-\w+$/.test(name)) ?? names[0] ?? 'unknown';
  } catch {
    return 'unknown';
  }
}

/** `nginx (pid 12) at *:1080`. */
export function describeListener({ command = 'a process', pid, address }: Listener): string {
  return `${command}${pid === undefined ? '' : ` (pid ${pid})`} at ${address}`;
}
