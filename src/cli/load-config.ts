import { buildConfig } from '../config/build.js';
import type { Command, Config } from '../config/config.js';
import { findDefaultFile, findInstanceFile, readConfigFile } from '../config/load.js';
import { parseCommandLine } from './parse.js';
import type { CommandLine } from './parse.js';

/**
 * Everything a command runs with. A default file is looked for only when the command line gives no setting, as
 * shadowsocks-libev does it without arguments.
 *
 * @throws {UsageError | ConfigError} one line that names option or file and key.
 */
export function loadConfig(
  command: Command,
  argv: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
  foundFile?: string,
): Config {
  const commandLine = parseCommandLine(command, argv);
  const { settings, instance, rules, fail } = commandLine;
  const path = foundFile ?? findFile(commandLine, env);
  return buildConfig(command, {
    commandLine: settings,
    ...(path !== undefined && { file: readConfigFile(path) }),
    ...(instance !== undefined && { instance }),
    makesRules: rules,
    ...(fail !== undefined && { fail }),
    env,
  });
}

function findFile(
  { command, configFile, instance, settings }: CommandLine,
  env: NodeJS.ProcessEnv,
): string | undefined {
  if (configFile !== undefined) return configFile;
  if (instance !== undefined) return findInstanceFile(instance);
  return settings.size === 0 ? findDefaultFile(command, env) : undefined;
}
