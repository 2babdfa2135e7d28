/** The Node that the programs run with: it must be where the user of the units can reach it. */
import { realpathSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { runTool } from '../nft/tools.js';
import { SetupError } from './error.js';

/** What a unit does not see: ProtectHome= and PrivateTmp=, systemd.exec(5). */
const hidden = ['/home', '/root', '/run/user', '/tmp', '/var/tmp'];

/** package.json, engines. */
const oldest = [20, 19] as const;

/** Linux takes 255 bytes of a first line (BINPRM_BUF_SIZE, include/uapi/linux/binfmts.h). */
const longestInterpreter = 200;

/** @throws {SetupError} for a place that the sandbox of the units hides. */
export function checkVisible(path: string, what: string, instead: string): void {
  const folder = hidden.find((start) => path === start || path.startsWith(`${start}/`));
  if (folder === undefined) return;
  throw new SetupError(`${what} ${path}: ${folder} is hidden from the units (ProtectHome=): ${instead}`);
}

/** @throws {SetupError | ToolError} */
export async function checkNode(node: string): Promise<void> {
  const instead =
    'install Node for all users (on Debian: apt-get install nodejs), or give one by --node FILE';
  if (/\s/.test(node) || node.length > longestInterpreter)
    throw new SetupError(`node ${node}: expected at most ${longestInterpreter} characters and no blank`);
  checkVisible(node, 'node', instead);
  const closed = firstClosed(node);
  if (closed !== undefined)
    throw new SetupError(`node ${node}: ${closed} is closed to the user ss-redir: ${instead}`);
  const version = await runTool(node, ['--version']);
  const [, major = 0, minor = 0] = (/^v(\d+)\.(\d+)\./.exec(version) ?? []).map(Number);
  if (major > oldest[0] || (major === oldest[0] && minor >= oldest[1])) return;
  throw new SetupError(`node ${node}: expected ${oldest.join('.')} or later, got ${version.trim()}`);
}

/** The first part of the path, links followed, that others than its owner cannot pass or run. */
function firstClosed(node: string): string | undefined {
  let path: string;
  try {
    path = realpathSync(node);
  } catch {
    return `${node}, which does not exist,`;
  }
  checkVisible(path, 'node', 'give another one by --node FILE');
  const parts = [path];
  for (let folder = dirname(path); folder !== '/'; folder = dirname(folder)) parts.unshift(folder);
  return parts.find((part) => (statSync(part).mode & 0o001) === 0);
}
