/** From argv to settings. What a value means is the configuration's business; here is only whose value it is. */
import { parseArgs } from 'node:util';
import type { Command } from '../config/config.js';
import { expectedInstance, isInstanceName } from '../config/instance.js';
import { nearestName } from '../config/nearest.js';
import { notYet } from '../config/schema.js';
import { Setting } from '../config/setting.js';
import type { Settings } from '../config/setting.js';
import { UsageError } from '../errors.js';
import { oneLine, quote } from '../text.js';
import { options, optionsOf } from './options.js';
import type { Option, Program } from './options.js';

export interface CommandLine {
  readonly command: Command;
  readonly help: boolean;
  readonly version: boolean;
  readonly check: boolean;
  readonly configFile?: string;
  /** Whose configuration it is, and whose rules. */
  readonly instance?: string;
  /** To look for what is wrong, and how to tell. */
  readonly doctor: boolean;
  readonly json: boolean;
  /** To bring the rules along. */
  readonly rules: boolean;
  /** What the rules do while nobody serves. */
  readonly fail?: Setting;
  /** To serve in the background. */
  readonly pidFile?: string;
  /** By configuration key. */
  readonly settings: Settings;
}

export interface Given {
  readonly option: Option;
  /** As typed, `-p` or `--server-port`. */
  readonly name: string;
  readonly value: string | undefined;
}

/**
 * As getopt_long takes it: `-p8388`, `-p 8388`, `-uv`, `--mtu=1400`, `--mtu 1400`; an argument may begin with a dash.
 * With --help or --version nothing else is looked at.
 *
 * @throws {UsageError} that names the option and never repeats a value: a stray word may be half of a password.
 */
export function parseCommandLine(command: Command, argv: readonly string[]): CommandLine {
  const known = optionsOf(command);
  const tokens = tokenize(known, argv);
  const asked = (long: string): boolean =>
    tokens.some((token) => token.kind === 'option' && token.name === long);
  const nothing = {
    command,
    help: false,
    version: false,
    check: false,
    doctor: false,
    json: false,
    rules: false,
    settings: new Map(),
  };
  if (asked('help')) return { ...nothing, help: true };
  if (asked('version')) return { ...nothing, version: true };

  const given: Given[] = [];
  for (const token of tokens) {
    if (token.kind === 'option-terminator') continue;
    if (token.kind === 'positional') throw strayWord(token.index, argv.length);
    given.push(accept(command, known, token.name, token.rawName, token.value));
  }
  const last = (long: string) => given.findLast(({ option }) => option.long === long)?.value;
  const configFile = last('config');
  const rules = asked('rules');
  const fail = last('fail');
  if (fail !== undefined && !rules)
    throw new UsageError('option --fail: is for the rules that --rules makes');
  const json = asked('json');
  if (json && !asked('doctor')) throw new UsageError('option --json: is for --doctor');
  const pidFile = last('pid-file');
  const instance = last('instance');
  if (instance !== undefined && !isInstanceName(instance))
    throw new UsageError(`option --instance: expected ${expectedInstance}, got ${quote(instance)}`);
  return {
    ...nothing,
    check: asked('check'),
    doctor: asked('doctor'),
    json,
    rules,
    ...(fail !== undefined && { fail: Setting.fromOption('--fail', fail) }),
    ...(configFile !== undefined && { configFile }),
    ...(pidFile !== undefined && { pidFile }),
    ...(instance !== undefined && { instance }),
    settings: collect(given),
  };
}

export function tokenize(known: readonly Option[], argv: readonly string[]) {
  const declared = known.map(({ long, short, argument, repeat }) => [
    long,
    {
      type: argument === undefined ? ('boolean' as const) : ('string' as const),
      multiple: repeat === true,
      ...(short !== undefined && { short }),
    },
  ]);
  // Not strict: its own errors quote values, and it refuses a password that begins with a dash.
  return parseArgs({
    args: [...argv],
    options: Object.fromEntries(declared),
    strict: false,
    allowPositionals: true,
    tokens: true,
  }).tokens;
}

function strayWord(index: number, count: number): UsageError {
  const hint = count === 1 ? ' (a configuration file is given with -c FILE)' : '';
  return new UsageError(`argument ${index + 1} belongs to no option${hint}`);
}

export function accept(
  command: Program,
  known: readonly Option[],
  long: string,
  name: string,
  value: string | undefined,
): Given {
  const option = known.find((candidate) => candidate.long === long);
  if (option === undefined) throw unknownOption(command, known, long, name);
  if (option.refused !== undefined) throw new UsageError(`option ${name}: ${option.refused}`);
  if (option.later !== undefined) throw new UsageError(`option ${name}: ${notYet(option.later)}`);
  if (option.argument === undefined && value !== undefined)
    throw new UsageError(`option ${name} takes no argument`);
  if (option.argument !== undefined && value === undefined) {
    throw new UsageError(`option ${name} needs an argument: ${name} ${option.argument}`);
  }
  return { option, name, value };
}

function unknownOption(command: Program, known: readonly Option[], long: string, name: string): UsageError {
  const isShort = !name.startsWith('--');
  const elsewhere = options.find((option) => (isShort ? option.short : option.long) === long);
  if (elsewhere !== undefined) {
    return new UsageError(`option ${name} is not for ${command} but for ${elsewhere.commands.join(', ')}`);
  }
  const nearest = isShort
    ? undefined
    : nearestName(
        long,
        known.map((option) => option.long),
      );
  const hint = nearest === undefined ? `see ${command} --help` : `did you mean --${nearest}?`;
  return new UsageError(`unknown option ${oneLine(name)} (${hint})`);
}

export function collect(given: readonly Given[]): Settings {
  const settings = new Map<string, Setting>();
  const lists = new Map<string, string[]>();
  for (const { option, name, value } of given) {
    if (option.key === undefined) continue;
    if (option.repeat !== true || value === undefined) {
      settings.set(option.key, Setting.fromOption(name, value ?? option.sets ?? true));
      continue;
    }
    const list = lists.get(option.key) ?? [];
    list.push(value);
    lists.set(option.key, list);
    settings.set(option.key, Setting.fromOption(name, list));
  }
  return settings;
}
