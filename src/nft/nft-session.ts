/**
 * An nft that stays: `nft -i` behind a pipe. A table with `flags owner` belongs to the netlink socket of the process that made
 * it, so it takes one process to hold and to change it.
 *
 *     include "FILE"                    one transaction; says nothing when it has worked
 *     list table inet ACKNOWLEDGEMENT   a table that is not there: the error is the answer, behind those of the transaction
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ToolError } from '../errors.js';
import { explainNft, startTool, type RunningTool } from './tools.js';
import type { Writer } from './writer.js';

/** 10,000 prefixes take a tenth of a second. */
const patienceMs = 60_000;
const endMs = 3000;
const mostErrors = 64 * 1024; // characters

export class NftSession implements Writer {
  readonly owns = true;
  /** Resolves when nft has ended, for whatever reason: what it owned is gone. */
  readonly ended: Promise<void>;
  readonly #nft: RunningTool;
  readonly #directory: string;
  #heard = '';
  #onHeard = () => {};
  #transactions = 0;
  #isOver = false;

  /** @param directory for what nft reads; it is made, and goes with the session. What is there already goes before. */
  constructor(directory: string) {
    this.#directory = directory;
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory, { mode: 0o700 });
    // It would keep a history in the home directory, and Ctrl-C at a terminal is for its parent, who then ends it.
    const env = { HOME: this.#directory, LC_ALL: 'C' };
    this.#nft = startTool('nft', ['-i'], env, (text) => {
      this.#heard = (this.#heard + text).slice(-mostErrors);
      this.#onHeard();
    });
    this.ended = this.#nft.ended.then(() => {
      this.#isOver = true;
      this.#onHeard();
      rmSync(this.#directory, { recursive: true, force: true });
    });
  }

  readonly apply = async (text: string): Promise<void> => {
    if (this.#isOver) throw this.#gone();
    const number = ++this.#transactions;
    const file = join(this.#directory, `${number}.nft`);
    const acknowledgement = `ss_redir_acknowledgement_${number}`;
    writeFileSync(file, text, { mode: 0o600 });
    this.#heard = '';
    this.#nft.write(`include "${file}"\nlist table inet ${acknowledgement}\n`);
    try {
      const errors = await this.#answer(acknowledgement);
      if (/\bError: /.test(errors)) throw new ToolError(explainNft(errors));
    } finally {
      rmSync(file, { force: true });
    }
  };

  /** What nft has said of the transaction. */
  #answer(acknowledgement: string): Promise<string> {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        this.#nft.kill('SIGKILL'); // what it does of this nobody knows: better without it
        reject(new ToolError(`nft: no answer in ${patienceMs / 1000} s`));
      }, patienceMs);
      const end = new RegExp(`^Error: [^\\n]*\\nlist table inet ${acknowledgement}\\n[ ^~]*\\n`, 'm');
      const look = () => {
        const found = end.exec(this.#heard);
        if (found === null && !this.#isOver) return;
        clearTimeout(late);
        this.#onHeard = () => {};
        if (found === null) reject(this.#gone());
        else resolve(this.#heard.slice(0, found.index));
      };
      this.#onHeard = look;
      look();
    });
  }

  #gone(): ToolError {
    const last = this.#heard.trim();
    return new ToolError(last === '' ? 'nft: ended' : explainNft(last));
  }

  /** With it goes what it owns. */
  async close(): Promise<void> {
    this.#nft.endInput();
    const late = setTimeout(() => this.#nft.kill('SIGKILL'), endMs);
    await this.ended;
    clearTimeout(late);
  }
}
