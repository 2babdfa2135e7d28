/** A configuration in a file of its own, for tests of what it may say. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { inspect } from 'node:util';
import { loadConfig } from '../../src/cli/load-config.js';
import type { Command, Config } from '../../src/config/config.js';
import { ConfigError, type UsageError } from '../../src/errors.js';

/** Never in a message, a warning or what a Config shows of itself. */
export const secret = 'correct-horse-42';

export class ConfigFolder {
  readonly path = mkdtempSync(join(tmpdir(), 'config-'));

  constructor() {
    after(() => rmSync(this.path, { recursive: true }));
  }

  write(name: string, content: string, mode = 0o600): string {
    const file = join(this.path, name);
    rmSync(file, { force: true });
    writeFileSync(file, content, { mode });
    return file;
  }

  load(
    name: string,
    content: string,
    command: Command = 'ss-redir',
    args: readonly string[] = [],
    env: NodeJS.ProcessEnv = {},
  ): Config {
    return loadConfig(command, ['-c', this.write(name, content), ...args], env);
  }
}

/** The one line that a configuration is refused with. */
export function refusal(
  attempt: () => unknown,
  kind: typeof ConfigError | typeof UsageError = ConfigError,
): string {
  let caught: unknown;
  try {
    attempt();
  } catch (error) {
    caught = error;
  }
  assert.ok(caught instanceof kind, `expected ${kind.name}, got ${inspect(caught)}`);
  assert.ok(!/[\r\n]/.test(caught.message), 'more than one line');
  assert.ok(!inspect(caught, { showHidden: true, depth: 9 }).includes(secret), 'the secret is in the error');
  return caught.message;
}

/** All of a Config, secrets included, to compare; file names and places aside. */
export function everything(config: Config): object {
  const { configFile: _, warnings, gateway, servers, ...rest } = config;
  return {
    ...rest,
    credentials: config.credentials,
    servers: servers.map((server) => [{ ...server }, server.credentials]),
    gateway: gateway && [...gateway].map(([key, setting]) => [key, setting.value]),
    warnings: warnings.map((line) => line.replace(/^\S+: (?:"servers" item \d+|\[[^\]]*\]): /, '')),
  };
}
