/** nft, ip and ss, run to their end; a failure is one line with the tool's own words. */
import { execa, ExecaError } from 'execa';
import { ToolError } from '../errors.js';
import { oneLine } from '../text.js';

const mostOutput = 256 * 1024 * 1024; // a ruleset of other people may be large

/** @throws {ToolError} */
export async function runTool(command: string, args: readonly string[], input?: string): Promise<string> {
  try {
    const { stdout } = await execa(command, args, {
      maxBuffer: mostOutput,
      env: { LC_ALL: 'C' }, // messages are read below and elsewhere
      ...(input !== undefined && { input }),
    });
    return stdout;
  } catch (error) {
    if (!(error instanceof ExecaError)) throw error;
    throw new ToolError(explain(command, error), { cause: error });
  }
}

/** A tool that goes on running, fed and heard line by line. */
export interface RunningTool {
  /** Undefined where it could not be started. */
  readonly pid: number | undefined;
  readonly write: (text: string) => void;
  readonly endInput: () => void;
  readonly kill: (signal: NodeJS.Signals) => void;
  /** Resolves when it has ended, or could not be started; never rejects. */
  readonly ended: Promise<void>;
}

/** In a process group of its own: what a terminal sends to ours does not reach it. `onText` gets its output. */
export function startTool(
  command: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  onText: (text: string) => void,
): RunningTool {
  const child = execa(command, args, {
    env,
    detached: true,
    buffer: false,
    reject: false,
    all: true,
    stdin: 'pipe',
  });
  child.all.setEncoding('utf8').on('data', onText);
  child.stdin.on('error', () => {}); // it has ended, which `ended` tells
  return {
    pid: child.pid,
    write: (text) => void child.stdin.write(text),
    endInput: () => void child.stdin.end(),
    kill: (signal) => void child.kill(signal),
    ended: child.then(({ code }) => {
      if (code === 'ENOENT') onText(`Error: ${command}: not found\n`);
    }),
  };
}

/** What a tool that may be missing says, whatever its exit status is; undefined where there is none. */
export async function askTool(command: string, args: readonly string[]): Promise<string | undefined> {
  const { stdout, code } = await execa(command, args, { reject: false, env: { LC_ALL: 'C' } });
  return code === 'ENOENT' ? undefined : stdout;
}

const debianPackages: Readonly<Record<string, string>> = {
  nft: 'nftables',
  ip: 'iproute2',
  ss: 'iproute2',
  systemctl: 'systemd',
  'systemd-sysusers': 'systemd',
  'systemd-tmpfiles': 'systemd',
  userdel: 'passwd',
  groupdel: 'passwd',
};

/** `unshare` becomes the nft that it starts, which then speaks for itself. */
function explain(command: string, error: ExecaError): string {
  if (error.code === 'ENOENT') {
    const debian = debianPackages[command];
    return `${command}: not found${debian === undefined ? '' : ` (on Debian: apt-get install ${debian})`}`;
  }
  const stderr = String(error.stderr ?? '').trim();
  if (stderr === '') return `${command}: ended with ${error.signal ?? `status ${error.exitCode}`}`;
  const isNft = command === 'nft' || (command === 'unshare' && !stderr.startsWith('unshare:'));
  return isNft ? explainNft(stderr) : `${command}: ${oneLine(stderr.replaceAll(/\s*\n\s*/g, '; '))}`;
}

/**
 * nft writes
 *
 *     /dev/stdin:7:3-12: Error: Could not process rule: No such file or directory
 *     		meta l4proto tcp tproxy ip to 127.0.0.1:1080 accept
 *     		^^^^^^^^^^
 *
 * and more of that where one error leads to another: the first is told.
 */
export function explainNft(stderr: string): string {
  const lines = stderr.split('\n');
  const at = lines.findIndex((line) => /\bError: /.test(line));
  if (at < 0) return `nft: ${oneLine(lines[0]!)}`;
  const message = lines[at]!.replace(/^.*?\bError: /, '');
  const source = lines[at + 1]?.trim() ?? '';
  const shown = source.length > 160 ? `${source.slice(0, 160)}…` : source;
  const hint = hintFor(message, source);
  return `nft: ${oneLine(message)}${shown === '' ? '' : `: ${oneLine(shown)}`}${hint === '' ? '' : ` (${hint})`}`;
}

const modules: readonly (readonly [RegExp, string])[] = [
  [/\btproxy\b/, 'nft_tproxy'],
  [/\bsocket\b/, 'nft_socket'],
  [/\bfib\b/, 'nft_fib_inet'],
  [/\bredirect\b/, 'nft_redir'],
  [/\bdnat\b|\btype nat\b/, 'nft_nat'],
  [/\breject\b/, 'nft_reject_inet'],
  [/\bct\b|\bnotrack\b/, 'nft_ct'],
];

function hintFor(message: string, source: string): string {
  if (/Operation not permitted/.test(message))
    return 'needs root or CAP_NET_ADMIN, and a table that no other process owns';
  // What the kernel cannot find is the expression's module; a set or chain that is not there is another message.
  if (!/Could not process rule: (?:No such file or directory|Operation not supported)/.test(message))
    return '';
  const missing = modules.filter(([pattern]) => pattern.test(source)).map(([, name]) => name);
  return missing.length === 0 ? '' : `is the kernel without ${missing.join(' or ')}?`;
}

/** Rules from text, in one transaction. */
export async function runNft(text: string): Promise<void> {
  await runTool('nft', ['-f', '-'], text);
}

/** What nft and the kernel say of rules that stand beside or in the place of those that are loaded. Changes no rule. */
export async function checkNft(text: string): Promise<void> {
  await runTool('nft', ['-c', '-f', '-'], text);
}

/**
 * The same for rules that need nothing of what is loaded. In a network namespace of its own: a check switches conntrack on for a
 * moment, and of a connection that it sees by then it may remember the wrong end as the one who began.
 */
export async function checkNftApart(text: string): Promise<void> {
  try {
    await runTool('unshare', ['--net', 'nft', '-c', '-f', '-'], text);
  } catch (error) {
    // In some containers no namespace can be made.
    if (!(error instanceof ToolError) || !error.message.startsWith('unshare:')) throw error;
    await checkNft(text);
  }
}
