// ss-nft as an administrator runs it, inside the testbed's gateway.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Netns } from '../../src/demo/netns.js';

const program = fileURLToPath(new URL('../../src/bin/ss-nft.js', import.meta.url));

export interface Outcome {
  status: number | undefined;
  stdout: string;
  stderr: string;
}

export class NftCommand {
  readonly directory = mkdtempSync(join(tmpdir(), 'ss-redir-nft-'));
  readonly #netns: Netns;

  constructor(netns: Netns) {
    this.#netns = netns;
  }

  /** Runs it to its end, whatever that is. `tools` is a folder that comes first in PATH, or with `alone` is all of it. */
  async run(args: readonly string[], tools = '', { alone = false } = {}): Promise<Outcome> {
    const path = alone ? tools : `${tools}:${process.env['PATH']}`;
    const words = [`PATH=${path}`, process.execPath, program, ...args];
    const result = await this.#netns.run('env', words, { reject: false });
    return { status: result.exitCode, stdout: String(result.stdout), stderr: String(result.stderr) };
  }

  /** The same, and anything but success throws what it said. */
  async ok(...args: string[]): Promise<string> {
    const { status, stdout, stderr } = await this.run(args);
    if (status !== 0) throw new Error(`ss-nft ${args.join(' ')}: status ${status}: ${stderr}${stdout}`);
    return stdout;
  }

  file(name: string, content: string): string {
    const path = join(this.directory, name);
    writeFileSync(path, content);
    return path;
  }

  /** A folder with a shell script in the place of a tool; in it, `$real` is the tool itself. */
  replaceTool(name: string, script: string): string {
    const directory = mkdtempSync(join(this.directory, 'tools-'));
    const path = join(directory, name);
    const real = `real=$(PATH=\${PATH#*:} command -v ${name})`;
    writeFileSync(path, `#!/bin/sh\n${real}\n${script}\n`);
    chmodSync(path, 0o755);
    return directory;
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** The plain case of the testbed: its LAN, its server. */
export const plainArgs = ['-s', '45.9.9.2', '-s', '2a09:9::2', '-l', '1080', '-I', 'l0'];
