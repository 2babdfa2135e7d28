/** What the bins import: nothing here needs a package, so that it can say in one line when the packages are not there. */
import type { Command } from '../config/config.js';

export function start(command: Command): Promise<void> {
  return startProgram(command, async () => {
    const { run } = await import('./run.js');
    return () => run(command);
  });
}

export function startNft(): Promise<void> {
  return startProgram('ss-nft', async () => (await import('./nft-run.js')).runNft);
}

export function startSetup(): Promise<void> {
  return startProgram('ss-setup', async () => (await import('./setup-run.js')).runSetup);
}

async function startProgram(program: string, load: () => Promise<() => Promise<void>>): Promise<void> {
  process.on('SIGUSR1', () => {}); // first of all: Node would open its debugger
  let run: () => Promise<void>;
  try {
    run = await load();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    const [what] = (error as Error).message.split(' imported from');
    process.stderr.write(`${program}: ${what}: the npm packages are not installed, run "npm ci"\n`);
    process.exit(1);
  }
  await run();
}
