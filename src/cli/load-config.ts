import { buildConfig } from '../config/build.js';
import type { FileSettings } from '../config/build.js';
import type { Command, Config } from '../config/config.js';
import { findDefaultFile, readConfigFile } from '../config/load.js';
import { parseCommandLine } from './parse.js';

const noFile: FileSettings = { settings: new Map(), warnings: [] };

/**
 * Everything a command runs with. A default file is looked for only when there is no argument but --check, as
 * shadowsocks-libev does.
 *
 * @throws {UsageError | ConfigError} one line that names option or file and key.
 */
export function loadConfig(
  command: Command,
  argv: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): Config {
  const { configFile, settings } = parseCommandLine(command, argv);
  const bare = argv.every((argument) => argument === '--check');
  const path = configFile ?? (bare ? findDefaultFile(command, env) : undefined);
  return buildConfig(command, settings, path === undefined ? noFile : readConfigFile(path));
}
