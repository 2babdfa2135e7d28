/** Completion for bash, zsh and fish, from the option table: every option that is not refused, and what its argument may be. */
import { methodNames } from '../crypto/methods.js';
import type { Shell } from '../setup/contents.js';
import { documentedOptions } from './man.js';
import { nftCommands } from './nft-parse.js';
import type { Option, Program } from './options.js';
import { setupCommands } from './setup-parse.js';

/** What a shell itself knows how to list. */
type Kind = 'file' | 'directory' | 'user' | 'interface' | 'instance';

/** What may stand for an argument: of some nothing is known but that it is one. */
type Values = readonly string[] | Kind | 'anything';

const commandsOf: Readonly<Partial<Record<Program, readonly string[]>>> = {
  'ss-nft': nftCommands,
  'ss-setup': setupCommands,
};

/** Behind the command an instance may be named. */
const takesInstance: ReadonlySet<Program> = new Set(['ss-nft']);

const byArgument: Readonly<Record<string, Values>> = {
  FILE: 'file',
  DIRECTORY: 'directory',
  USER: 'user',
  METHOD: methodNames,
  POLICY: ['bypass', 'forward', 'checkdst'],
};

const byOption: Readonly<Record<string, Values>> = {
  interface: 'interface',
  instance: 'instance',
  rules: 'instance',
  'dst-default': ['bypass', 'forward'],
};

/** Undefined of a switch. */
function valuesOf({ long, argument }: Option): Values | undefined {
  if (argument === undefined) return undefined;
  const known = byOption[long] ?? byArgument[argument];
  if (known !== undefined) return known;
  // `closed|open` are words as they stand, `NUMBER` stands for one.
  const words = argument.split('|').filter((word) => /^[a-z]/.test(word));
  return words.length > 0 ? words : 'anything';
}

export function renderCompletion(program: Program, shell: Shell): string {
  const options = documentedOptions(program);
  return { bash: renderBash, zsh: renderZsh, fish: renderFish }[shell](program, options);
}

function namesOf({ short, long }: Option): string[] {
  return [...(short === undefined ? [] : [`-${short}`]), `--${long}`];
}

const instanceFiles = ['/etc/ss-redir/*.conf', '/etc/ss-redir/*.json', '/etc/shadowsocks-libev/*.json'];

// bash: the words of --option=value come apart at the equals sign.

function renderBash(program: Program, options: readonly Option[]): string {
  const name = `_${program.replaceAll('-', '_')}`;
  const commands = commandsOf[program];
  const taking = options.filter(({ argument }) => argument !== undefined).flatMap(namesOf);
  const byValues = new Map<string, string[]>();
  for (const option of options) {
    const values = valuesOf(option);
    if (values === undefined) continue;
    const reply = bashValues(values);
    byValues.set(reply, [...(byValues.get(reply) ?? []), ...namesOf(option)]);
  }
  const cases = [...byValues].flatMap(([reply, names]) => [
    `    ${names.join(' | ')})`,
    `      ${reply}`,
    '      return',
    '      ;;',
  ]);
  const words = commands === undefined ? [] : bashWords(program, commands, taking);
  return lines(
    `# ${program}(${sectionOf(program)}), for bash`,
    `${name}() {`,
    '  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}',
    '  if [[ $current == = ]]; then',
    '    current=',
    '  elif [[ $before == = ]]; then',
    '    before=${COMP_WORDS[COMP_CWORD - 2]}',
    '  fi',
    '  COMPREPLY=()',
    '  case $before in',
    ...cases,
    '  esac',
    '  if [[ $current == -* ]]; then',
    `    mapfile -t COMPREPLY < <(compgen -W '${options.flatMap(namesOf).join(' ')}' -- "$current")`,
    '    return',
    '  fi',
    ...words,
    '}',
    `complete -F ${name} ${program}`,
  );
}

function bashValues(values: Values): string {
  if (values === 'anything') return ':';
  if (typeof values !== 'string') return bashReplies(`compgen -W '${values.join(' ')}'`);
  const filenames = 'compopt -o filenames';
  if (values === 'file') return `${filenames}; ${bashReplies('compgen -f')}`;
  if (values === 'directory') return `${filenames}; ${bashReplies('compgen -d')}`;
  if (values === 'user') return bashReplies('compgen -u');
  if (values === 'interface') return bashReplies('compgen -W "$(ls /sys/class/net)"');
  const list = `$(basename -a ${instanceFiles.join(' ')} | sed -n 's/\\.[a-z]*$//; /\\*/!p')`;
  return bashReplies(`compgen -W "${list}"`);
}

function bashReplies(generate: string): string {
  return `mapfile -t COMPREPLY < <(${generate} -- "$current")`;
}

function bashWords(program: Program, commands: readonly string[], taking: readonly string[]): string[] {
  return [
    '  local word skip= count=0',
    '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
    '    if [[ $skip ]]; then',
    '      skip=',
    '    else',
    '      case $word in',
    `        ${taking.join(' | ')}) skip=1 ;;`,
    '        -*) ;;',
    '        *) count=$((count + 1)) ;;',
    '      esac',
    '    fi',
    '  done',
    '  case $count in',
    `    0) ${bashValues(commands)} ;;`,
    ...(takesInstance.has(program) ? [`    1) ${bashValues('instance')} ;;`] : []),
    '  esac',
  ];
}

// zsh: _arguments(1), zshcompsys(1).

function renderZsh(program: Program, options: readonly Option[]): string {
  const commands = commandsOf[program];
  const instances = `_${program.replaceAll('-', '_')}_instances`;
  const positional =
    commands === undefined
      ? []
      : [
          `'1:command:(${commands.join(' ')})'`,
          ...(takesInstance.has(program) ? [`'2:instance:${instances}'`] : []),
        ];
  const specs = [...options.flatMap((option) => zshSpecs(option, instances)), ...positional];
  return lines(
    `#compdef ${program}`,
    `(( $+functions[${instances}] )) || ${instances}() {`,
    `  compadd "$@" -- ${instanceFiles.map((pattern) => `${pattern}(N:t:r)`).join(' ')}`,
    '}',
    '_arguments -s \\',
    specs.map((spec) => `  ${spec}`).join(' \\\n'),
  );
}

function zshSpecs(option: Option, instances: string): string[] {
  const { short, long, argument, repeat, help } = option;
  const names = namesOf(option);
  const again = repeat === true ? '*' : names.length > 1 ? `(${names.join(' ')})` : '';
  const values = valuesOf(option);
  const action = values === undefined ? '' : `:${zshText(argument!)}:${zshAction(values, instances)}`;
  const tail = `[${zshText(help)}]${action}`;
  const takes = argument !== undefined;
  return [
    ...(short === undefined ? [] : [`${again}-${short}${takes ? '+' : ''}${tail}`]),
    `${again}--${long}${takes ? '=' : ''}${tail}`,
  ].map(shellQuote);
}

function zshAction(values: Values, instances: string): string {
  if (typeof values !== 'string') return `(${values.join(' ')})`;
  return {
    file: '_files',
    directory: '_directories',
    user: '_users',
    interface: '_net_interfaces',
    instance: instances,
    anything: ' ',
  }[values];
}

/** In a spec of _arguments. */
function zshText(text: string): string {
  return text.replaceAll(/[\\:[\]]/g, String.raw`\$&`);
}

// fish: complete(1).

function renderFish(program: Program, options: readonly Option[]): string {
  const commands = commandsOf[program];
  const complete = (...words: string[]): string => ['complete', '-c', program, ...words].join(' ');
  const seen = `__fish_seen_subcommand_from ${commands?.join(' ')}`;
  return lines(
    `# ${program}(${sectionOf(program)}), for fish`,
    complete('-f'),
    ...options.map((option) => {
      const { short, long, help } = option;
      const names = [...(short === undefined ? [] : ['-s', short]), '-l', long];
      return complete(...names, ...fishValues(valuesOf(option)), '-d', fishQuote(help));
    }),
    ...(commands === undefined
      ? []
      : [complete('-n', fishQuote(`not ${seen}`), '-a', fishQuote(commands.join(' ')))]),
    ...(takesInstance.has(program) ? [complete('-n', fishQuote(seen), '-a', fishQuote(fishInstances))] : []),
  );
}

const fishInstances = `(for file in ${instanceFiles.join(' ')}; string replace -r '.*/(.*)\\.[a-z]+$' '$1' $file; end)`;

function fishValues(values: Values | undefined): string[] {
  if (values === undefined) return [];
  if (values === 'anything') return ['-x'];
  if (values === 'file') return ['-r', '-F'];
  const list =
    typeof values === 'string'
      ? {
          directory: '(__fish_complete_directories)',
          user: '(__fish_complete_users)',
          interface: '(__fish_print_interfaces)',
          instance: fishInstances,
        }[values]
      : values.join(' ');
  return ['-x', '-a', fishQuote(list)];
}

function fishQuote(text: string): string {
  return `'${text.replaceAll(/[\\']/g, String.raw`\$&`)}'`;
}

function shellQuote(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function sectionOf(program: Program): number {
  return program === 'ss-redir' || program === 'ss-server' ? 1 : 8;
}

function lines(...texts: string[]): string {
  return `${texts.join('\n')}\n`;
}
