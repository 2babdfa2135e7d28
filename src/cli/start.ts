/** What the bins import: nothing here needs a package, so that it can say in one line when the packages are not there. */
import type { Command } from '../config/config.js';

export async function start(command: Command): Promise<void> {
  process.on('SIGUSR1', () => {}); // first of all: Node would open its debugger
  let run: (command: Command) => Promise<void>;
  try {
    ({ run } = await import('./run.js'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    const [what] = (error as Error).message.split(' imported from');
    process.stderr.write(`${command}: ${what}: the npm packages are not installed, run "npm ci"\n`);
    process.exit(1);
  }
  await run(command);
}
