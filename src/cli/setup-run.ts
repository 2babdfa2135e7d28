/** What ss-setup does with its command line. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { UsageError } from '../errors.js';
import { explain, SetupError } from '../setup/error.js';
import { install } from '../setup/install.js';
import { remove } from '../setup/remove.js';
import { oneLine } from '../text.js';
import { renderCompletion } from './completions.js';
import { helpText } from './help.js';
import { parseSetupCommandLine, type SetupCommandLine } from './setup-parse.js';
import type { Program } from './options.js';

const exitFailed = 1;
const exitInternal = 70; // sysexits.h, EX_SOFTWARE

/** The root of the package: what is installed is what this is part of. */
const source = fileURLToPath(new URL('../../../', import.meta.url)).replace(/\/$/, '');

export async function runSetup(): Promise<void> {
  // Half of it would be worse than all or nothing of it.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => warn(`${signal}: in the middle of it, ends by itself`));
  // After su(1) they are not in it: nft, userdel.
  process.env['PATH'] = `${process.env['PATH'] ?? '/usr/bin:/bin'}:/usr/sbin:/sbin`;
  process.stdout.on('error', () => {}); // EPIPE: whoever asked has read enough
  process.exitCode = await exitCodeOf(process.argv.slice(2));
}

async function exitCodeOf(argv: readonly string[]): Promise<number> {
  try {
    await carryOut(parseSetupCommandLine(argv));
    return 0;
  } catch (thrown) {
    const error = explain(thrown);
    if (error instanceof UsageError || error instanceof SetupError) {
      for (const line of error.message.split('\n')) warn(line);
      return exitFailed;
    }
    const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
    warn(`internal error: ${stack.replaceAll(/\n\s*/g, ' | ')}`);
    return exitInternal;
  }
}

async function carryOut({ command, node, ...line }: SetupCommandLine): Promise<void> {
  if (command === 'help') return print(helpText('ss-setup', packageVersion()));
  if (command === 'version') return print(`ss-setup ${packageVersion()}`);
  if (command === 'remove') return await remove({ ...line, say: print, warn });
  await install({
    ...line,
    source,
    node: node ?? process.execPath,
    completion: (program, shell) => renderCompletion(program as Program, shell),
    say: print,
    warn,
  });
}

function warn(text: string): void {
  process.stderr.write(`ss-setup: ${oneLine(text)}\n`);
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

function packageVersion(): string {
  return (JSON.parse(readFileSync(`${source}/package.json`, 'utf8')) as { version: string }).version;
}
