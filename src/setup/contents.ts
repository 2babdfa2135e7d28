/**
 * What an installation consists of:
 *
 *     PREFIX/lib/ss-redir/                         package.json, dist/src, node_modules, and what ss-setup needs to do it again
 *     PREFIX/bin/ss-redir …                        links into it
 *     PREFIX/lib/systemd/system, sysusers.d, tmpfiles.d       of another prefix than /usr/local and /usr: below /etc
 *     PREFIX/share/man, bash-completion, zsh, fish
 *     PREFIX/share/ss-redir                        the rule files of nft/
 *     PREFIX/share/doc/ss-redir/examples           configurations
 *     /etc/systemd/system/ss-redir@NAME.service.d/rules.conf  for instances whose rules are to be held
 */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { SetupError } from './error.js';
import { dropInOf, type Layout } from './layout.js';
import { productionPackages } from './packages.js';

export interface Wanted {
  readonly path: string;
  readonly content: Buffer | { readonly linkTo: string };
  readonly mode: number;
  /** Useless beside files of another version: where it was edited, nothing is installed. */
  readonly isProgram: boolean;
}

export interface Contents {
  /** The root of the package: of the unpacked source, or of an installation. */
  readonly source: string;
  readonly layout: Layout;
  /** Node, in the first line of each program: whatever PATH says, the units find it. */
  readonly node: string;
  /** Instances whose rules the unit is to hold. */
  readonly instances: readonly string[];
  /** By shell and program. */
  completion(program: string, shell: Shell): string;
}

export type Shell = 'bash' | 'zsh' | 'fish';

const readable = 0o644;
const executable = 0o755;

/** @throws {SetupError} where the source is not complete. */
export function listContents(contents: Contents): Wanted[] {
  const { source, layout } = contents;
  for (const needed of ['package.json', 'dist/src/bin', 'man', 'nft', 'systemd/examples']) {
    if (existsSync(join(source, needed))) continue;
    const what = needed.startsWith('dist') ? 'is not built: run "npm run setup" there' : `has no ${needed}`;
    throw new SetupError(`${source} ${what}`);
  }
  const { bin } = JSON.parse(readFileSync(join(source, 'package.json'), 'utf8')) as {
    bin: Record<string, string>;
  };
  const commands = Object.keys(bin);
  return [
    ...program(contents),
    ...commands.map((name) => link(layout, name)),
    ...units(contents),
    ...folder(join(source, 'man'), /\.\d$/, (name) => join(layout.man, `man${name.at(-1)!}`, name)),
    ...folder(join(source, 'nft'), /\.nft$/, (name) => join(layout.rules, name)),
    ...folder(join(source, 'systemd/examples'), /./, (name) => join(layout.examples, name)),
    ...commands.flatMap((name) => completions(contents, name)),
  ];
}

function program({ source, layout, node }: Contents): Wanted[] {
  const files = new Map<string, string>();
  const parts = ['package.json', 'LICENSE', 'README.md', 'dist/src', 'man', 'nft', 'systemd'];
  for (const part of parts) addTree(files, join(source, part), part);
  for (const [place, path] of productionPackages(source)) {
    for (const name of readdirSync(path)) {
      // What is below it is found by itself where it is wanted.
      if (name !== 'node_modules') addTree(files, join(path, name), join(place, name));
    }
  }
  return [...files].map(([place, path]) => {
    const isCommand = place.startsWith('dist/src/bin/');
    const content = readFileSync(path);
    return {
      path: join(layout.library, place),
      content: isCommand ? withInterpreter(content, node) : content,
      mode: isCommand ? executable : readable,
      isProgram: true,
    };
  });
}

function addTree(files: Map<string, string>, path: string, place: string): void {
  if (!existsSync(path)) return;
  if (!statSync(path).isDirectory()) {
    files.set(place, path);
    return;
  }
  for (const name of readdirSync(path)) addTree(files, join(path, name), join(place, name));
}

function withInterpreter(script: Buffer, node: string): Buffer {
  return Buffer.from(script.toString('utf8').replace(/^#!.*\n/, `#!${node}\n`));
}

function link({ bin, library }: Layout, name: string): Wanted {
  const linkTo = relative(bin, join(library, `dist/src/bin/${name}.js`));
  return { path: join(bin, name), content: { linkTo }, mode: executable, isProgram: true };
}

function units({ source, layout, instances }: Contents): Wanted[] {
  const text = (name: string): string => readFileSync(join(source, 'systemd', name), 'utf8');
  const names = readdirSync(join(source, 'systemd')).filter((name) => /\.(?:service|socket)$/.test(name));
  return [
    // Theirs is the default prefix.
    ...names.map((name) =>
      file(join(layout.units, name), text(name).replaceAll('/usr/local/bin/', `${layout.bin}/`)),
    ),
    file(join(layout.sysusers, 'ss-redir.conf'), text('ss-redir.sysusers')),
    file(join(layout.tmpfiles, 'ss-redir.conf'), text('ss-redir.tmpfiles')),
    ...instances.map((name) => file(dropInOf(name), text('examples/rules.conf'))),
  ];
}

function folder(path: string, names: RegExp, place: (name: string) => string): Wanted[] {
  return readdirSync(path)
    .filter((name) => names.test(name))
    .map((name) => file(place(name), readFileSync(join(path, name))));
}

function completions({ layout, completion }: Contents, name: string): Wanted[] {
  return [
    file(join(layout.bash, name), completion(name, 'bash')),
    file(join(layout.zsh, `_${name}`), completion(name, 'zsh')),
    file(join(layout.fish, `${name}.fish`), completion(name, 'fish')),
  ];
}

function file(path: string, content: string | Buffer): Wanted {
  return { path, content: Buffer.from(content), mode: readable, isProgram: false };
}
