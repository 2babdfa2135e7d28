import { runNft } from './tools.js';

/** Who brings transactions into the kernel. After a failure nothing is changed. */
export interface Writer {
  /** Whether the rules' table is its own: nobody else can change or flush it, and it goes with the writer. */
  readonly owns: boolean;
  /** @throws {ToolError} with nft's own words. */
  readonly apply: (text: string) => Promise<void>;
}

/** nft, once for each transaction: what it makes stays until somebody removes it. */
export const plainWriter: Writer = { owns: false, apply: runNft };
