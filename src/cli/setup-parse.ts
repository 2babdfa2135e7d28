/** ss-setup's command line: `install|remove [OPTION]...`. */
import { normalize } from 'node:path';
import { expectedInstance, isInstanceName } from '../config/instance.js';
import { nearestName } from '../config/nearest.js';
import { UsageError } from '../errors.js';
import { defaultPrefix } from '../setup/layout.js';
import { quote } from '../text.js';
import { optionsOf } from './options.js';
import { accept, type Given, tokenize } from './parse.js';

export const setupCommands = ['install', 'remove'] as const;
export type SetupCommand = (typeof setupCommands)[number];

export interface SetupCommandLine {
  readonly command: SetupCommand | 'help' | 'version';
  readonly prefix: string;
  readonly destdir: string;
  readonly node?: string;
  readonly instances: readonly string[];
  readonly purge: boolean;
  readonly dryRun: boolean;
}

/** @throws {UsageError} */
export function parseSetupCommandLine(argv: readonly string[]): SetupCommandLine {
  const known = optionsOf('ss-setup');
  const tokens = tokenize(known, argv);
  const asked = (long: string) => tokens.some((token) => token.kind === 'option' && token.name === long);
  const words: string[] = [];
  const given: Given[] = [];
  const shown = asked('help') || argv.length === 0 ? 'help' : asked('version') ? 'version' : undefined;
  if (shown === undefined) {
    for (const token of tokens) {
      if (token.kind === 'positional') words.push(token.value);
      if (token.kind === 'option')
        given.push(accept('ss-setup', known, token.name, token.rawName, token.value));
    }
  }
  const [verb, stray] = words;
  if (stray !== undefined)
    throw new UsageError(`argument ${quote(stray)} is one too many: install or remove`);
  const command = shown ?? readCommand(verb);
  const valuesOf = (long: string) => given.filter(({ option }) => option.long === long);
  refuseOthers(command, given);
  const node = valuesOf('node').at(-1)?.value;
  return {
    command,
    prefix: readPath(valuesOf('prefix').at(-1)) ?? defaultPrefix,
    destdir: (readPath(valuesOf('destdir').at(-1)) ?? '').replace(/^\/$/, ''),
    ...(node !== undefined && { node }),
    instances: valuesOf('rules').map(readInstance),
    purge: asked('purge'),
    dryRun: asked('dry-run'),
  };
}

function readCommand(verb: string | undefined): SetupCommand {
  const found = setupCommands.find((command) => command === verb);
  if (found !== undefined) return found;
  if (verb === undefined) throw new UsageError(`expected a command: ${setupCommands.join(' or ')}`);
  const nearest = nearestName(verb, setupCommands);
  const hint = nearest === undefined ? setupCommands.join(' or ') : `did you mean ${nearest}?`;
  throw new UsageError(`unknown command ${quote(verb)} (${hint})`);
}

const onlyOf: Readonly<Record<string, SetupCommand>> = { node: 'install', rules: 'install', purge: 'remove' };

function refuseOthers(command: string, given: readonly Given[]): void {
  for (const { option, name } of given) {
    const only = onlyOf[option.long];
    if (only !== undefined && only !== command)
      throw new UsageError(`option ${name} is for ${only}, and the command is ${command}`);
  }
}

/** It comes to stand in units and first lines of programs, where a blank would end it. */
function readPath(given: Given | undefined): string | undefined {
  if (given?.value === undefined) return undefined;
  const path = normalize(given.value).replace(/(?<=.)\/$/, '');
  if (/^\/[\w./+@~-]*$/.test(path) && !path.includes('/../')) return path;
  throw new UsageError(
    `option ${given.name}: expected an absolute path of letters, digits and . _ + @ ~ -, got ${quote(given.value)}`,
  );
}

function readInstance({ name, value = '' }: Given): string {
  if (isInstanceName(value)) return value;
  throw new UsageError(`option ${name}: expected ${expectedInstance}, got ${quote(value)}`);
}
