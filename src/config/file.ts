/** What both formats of the configuration file come to. */
import type { Setting, Settings } from './setting.js';

/** Keys that belong together: a server, the gateway, the log. */
export interface Section {
  /** `FILE:7: [server paris]`, or `FILE:3:5: "servers" item 2`: the beginning of messages about it. */
  readonly origin: string;
  /** INI: what stands behind the kind of section. */
  readonly name?: string;
  readonly settings: Settings;
}

export interface ParsedFile {
  readonly format: 'json' | 'ini';
  /** JSON: members of the object. INI: keys of [redir], and those before the first section. */
  readonly settings: ReadonlyMap<string, Setting>;
  readonly servers: readonly Section[];
  readonly gateway?: Section;
  readonly log?: Section;
  readonly warnings: readonly string[];
}

/** A configuration file that has been read. */
export interface ConfigFile extends ParsedFile {
  readonly path: string;
  /** The permission bits when others than owner and group have some. */
  readonly openMode?: number;
}
