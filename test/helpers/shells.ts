// What bash, zsh and fish offer at the end of a line, asked of the shells themselves.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { renderCompletion } from '../../src/cli/completions.js';
import type { Program } from '../../src/cli/options.js';
import type { Shell } from '../../src/setup/contents.js';

/** The completions of one program in a folder of their own, in which the shells are then asked. */
export class CompletingShells {
  readonly #folder: string;
  readonly #program: Program;

  constructor(folder: string, program: Program) {
    this.#folder = folder;
    this.#program = program;
    mkdirSync(join(folder, 'zsh'), { recursive: true });
    writeFileSync(join(folder, 'zsh', `_${program}`), renderCompletion(program, 'zsh'));
    writeFileSync(join(folder, 'zsh.capture'), zshCapture);
    for (const shell of ['bash', 'fish'] as const)
      writeFileSync(join(folder, `${program}.${shell}`), renderCompletion(program, shell));
  }

  /** Sorted; `words` are those behind the program, the last one is what has been typed of it. */
  offered(shell: Shell, ...words: string[]): string[] {
    const said = { bash: this.#askBash, zsh: this.#askZsh, fish: this.#askFish }[shell].call(this, words);
    const offers = said.split('\n').map((line) => line.trim());
    return [...new Set(offers.filter((offer) => offer !== ''))].toSorted();
  }

  /** An interactive shell parts a word at the equals sign, COMP_WORDBREAKS in bash(1). */
  #askBash(words: string[]): string {
    const parts = words.flatMap((word) => word.split(/(?<==)|(?==)/));
    const code = [
      `source ${this.#program}.bash`,
      `name=$(complete -p ${this.#program}) && name=\${name#*-F } && name=\${name% *}`,
      'compopt() { :; }', // works while bash itself completes
      `COMP_WORDS=(${this.#program} "$@") COMP_CWORD=$#`,
      '"$name" && printf "%s\\n" "${COMPREPLY[@]}"',
    ].join('\n');
    return this.#run('bash', '--norc', '-c', code, 'bash', ...parts);
  }

  #askZsh(words: string[]): string {
    const line = [this.#program, ...words].join(' ');
    return this.#run('zsh', '-f', 'zsh.capture', join(this.#folder, 'zsh'), line).replaceAll('\r', '');
  }

  #askFish(words: string[]): string {
    const line = [this.#program, ...words].join(' ');
    const code = `source ${this.#program}.fish; complete -C '${line}'`;
    return this.#run('fish', '--no-config', '-c', code).replaceAll(/\t.*/g, '');
  }

  #run(command: string, ...args: string[]): string {
    const { status, stdout, stderr } = spawnSync(command, args, {
      cwd: this.#folder,
      encoding: 'utf8',
      timeout: 60_000,
      env: { ...process.env, HOME: this.#folder },
    });
    assert.equal(stderr, '', `${command} ${args.join(' ')}`);
    assert.equal(status, 0, `${command} ${args.join(' ')}`);
    return stdout;
  }
}

/**
 * zsh completes at its line editor only: it runs in a terminal (zpty), a tab is typed, and what would be offered is printed
 * between two NULs. Arguments: the folder of the completions, the line.
 */
const zshCapture = String.raw`
zmodload zsh/zpty || exit 2
zpty z zsh -f -i
zpty -w z "PROMPT=; LISTMAX=10000; unsetopt autolist; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D"
zpty -w z 'mark() { print -rn -- $'"'\\0'"' }; compprefuncs=(mark); comppostfuncs=(mark exit)'
zpty -w z 'bindkey "^I" complete-word'
zpty -w z 'compadd() {
  [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]] && { builtin compadd "$@"; return $?; }
  typeset -a hits
  builtin compadd -A hits "$@"
  builtin compadd "$@"
  print -rl -- $hits
}'
zpty -w z 'print -r -- rea''dy'
while zpty -r z line; do [[ $line == ready* ]] && break; done
zpty -n -w z "$2"$'\t'
out=
while zpty -r z chunk; do out+=$chunk; done
out=\${out#*$'\0'}
print -r -- \${out%%$'\0'*}
`.replaceAll('\\${', '${');
