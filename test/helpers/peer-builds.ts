// Shadowsocks peers that no Debian package brings. `npm test` builds each once, from its registry and at a pinned version,
// into ${XDG_CACHE_HOME:-~/.cache}/ss-redir-ci; every later run finds it there. A peer that cannot be had on a machine
// leaves a reason, and the tests that need it skip with that.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, homedir } from 'node:os';
import { join } from 'node:path';
import { findCommand } from './packages.js';

export type BuiltPeer = 'rust' | 'sing-box';

interface Recipe {
  title: string;
  version: string;
  /** The command that builds it, and how long it may take. */
  tool: 'cargo' | 'go';
  minutes: number;
  /** Its words, separated by spaces. */
  args: string[];
  /** Where the tool puts what it makes, given a folder; all of it is removed but `programs`. */
  environment: (scratch: string) => Record<string, string>;
  /** In its output: tool chain and registry are there, and compiling has begun. */
  begun: RegExp;
  programs: string[];
}

const recipes: Record<BuiltPeer, Recipe> = {
  // All methods of both editions, identities in both roles. --locked: the versions in the crate's own Cargo.lock.
  rust: {
    title: 'shadowsocks-rust',
    version: '1.25.0',
    tool: 'cargo',
    minutes: 25,
    args: [
      'install shadowsocks-rust --version =1.25.0 --locked --bin sslocal --bin ssserver --no-track',
      '--no-default-features --features server,local-tunnel,aead-cipher,aead-cipher-2022,logging,multi-threaded',
    ],
    environment: (scratch) => ({
      CARGO_TARGET_DIR: join(scratch, 'target'),
      CARGO_INSTALL_ROOT: scratch,
      // It moves megabytes here, not gigabytes: what counts is how fast it compiles.
      CARGO_PROFILE_RELEASE_OPT_LEVEL: '1',
      CARGO_PROFILE_RELEASE_LTO: 'off',
      CARGO_PROFILE_RELEASE_CODEGEN_UNITS: '16',
      CARGO_PROFILE_RELEASE_STRIP: 'true',
    }),
    begun: /^\s*Compiling /m,
    programs: ['bin/ssserver', 'bin/sslocal'],
  },
  // The same wire formats from another hand (sing-shadowsocks, sing-shadowsocks2). The checksum database vouches for the
  // module, its go.sum for all that it needs.
  'sing-box': {
    title: 'sing-box',
    version: '1.14.1',
    tool: 'go',
    minutes: 15,
    args: ['install -v -trimpath -modcacherw -ldflags=-s github.com/sagernet/sing-box/cmd/sing-box@v1.14.1'],
    environment: (scratch) => ({
      GOBIN: join(scratch, 'bin'),
      GOCACHE: join(scratch, 'cache'),
      GOMODCACHE: join(scratch, 'modules'),
      GOTOOLCHAIN: 'local',
      CGO_ENABLED: '0',
    }),
    begun: /^(?!go: )[\w./-]+$/m, // -v names the packages as they are compiled
    programs: ['bin/sing-box'],
  },
};

const missingVariable = 'SS_REDIR_MISSING_PEERS'; // tells the test processes why, as JSON
const notHere = 'not to be had here: ';

/** Whether tests may go without, even where nothing else may be skipped: the machine has no way to get the peer. */
export function isForgivable(skipReason: string): boolean {
  return skipReason.includes(notHere);
}

/** Builds the peers that are not in the cache, and lets the processes started from now on know of those that failed. */
export function buildMissingPeers(say: (line: string) => void): void {
  const missing: Partial<Record<BuiltPeer, string>> = {};
  for (const peer of Object.keys(recipes) as BuiltPeer[]) {
    if (isBuilt(peer)) continue;
    const reason = build(recipes[peer], home(peer), say);
    if (reason === undefined) continue;
    missing[peer] = reason;
    say(reason);
  }
  process.env[missingVariable] = JSON.stringify(missing);
}

/** Why tests with this peer have to be skipped, in one line, or false. */
export function whyNoPeer(peer: BuiltPeer): string | false {
  if (isBuilt(peer)) return false;
  const missing = JSON.parse(process.env[missingVariable] ?? '{}') as Partial<Record<BuiltPeer, string>>;
  return missing[peer] ?? `needs ${recipes[peer].title} ${recipes[peer].version}, which npm test builds`;
}

/** The full path of one of the peer's programs. */
export function peerProgram(peer: BuiltPeer, name: string): string {
  return join(home(peer), 'bin', name);
}

export function peerTitle(peer: BuiltPeer): string {
  return `${recipes[peer].title} ${recipes[peer].version}`;
}

function cache(): string {
  return join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'ss-redir-ci');
}

// Another recipe or another machine that shares the folder means another build.
function home(peer: BuiltPeer): string {
  const { title, version, tool, args, environment } = recipes[peer];
  const recipe = JSON.stringify([tool, args, environment(''), process.arch, process.platform]);
  const fingerprint = createHash('sha256').update(recipe).digest('hex').slice(0, 8);
  return join(cache(), `${title}-${version}-${fingerprint}`);
}

function isBuilt(peer: BuiltPeer): boolean {
  return recipes[peer].programs.every((program) => existsSync(join(home(peer), program)));
}

/** Returns why there is none, or undefined. */
function build(recipe: Recipe, target: string, say: (line: string) => void): string | undefined {
  const { title, version, tool, minutes, args, environment, begun, programs } = recipe;
  const name = `${title} ${version}`;
  const command = findCommand(tool);
  if (command === undefined) return `${name} is ${notHere}needs ${tool} to build it`;

  removeAbandoned();
  const scratch = join(cache(), `${scratchPrefix}${process.pid}-${title}`);
  mkdirSync(scratch, { recursive: true });
  say(`building ${name} once, into ${cache()}: some minutes, at most ${minutes}`);
  const started = performance.now();
  try {
    const jobs = tool === 'cargo' ? ['--jobs', String(availableParallelism())] : [];
    const result = spawnSync('nice', ['-n', '19', command, ...args.join(' ').split(' '), ...jobs], {
      cwd: scratch, // away from the clone's own configuration files, if it ever has any
      env: { ...process.env, ...environment(scratch) },
      stdio: ['ignore', 'pipe', 'pipe'],
      encoding: 'utf8',
      maxBuffer: 64 << 20,
      timeout: minutes * 60_000,
    });
    const output = `${result.stdout}${result.stderr}`;
    if (result.status !== 0) {
      const log = join(cache(), `${title}.log`);
      writeFileSync(log, output);
      const last = result.error?.message ?? output.trim().split('\n').at(-1);
      const what = `${tool} ended with ${result.signal ?? result.status}: ${last} (all of it: ${log})`;
      return begun.test(output) ? `${name} failed to build: ${what}` : `${name} is ${notHere}${what}`;
    }
    keep(scratch, target, programs);
    say(`built ${name} in ${Math.round((performance.now() - started) / 1000)} s`);
    return undefined;
  } catch (error) {
    return `${name} failed to build: ${(error as Error).message}`;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** The programs appear in their place all at once, or not at all. */
function keep(scratch: string, target: string, programs: string[]): void {
  const parcel = join(scratch, 'parcel');
  mkdirSync(join(parcel, 'bin'), { recursive: true });
  for (const program of programs) renameSync(join(scratch, program), join(parcel, program));
  rmSync(target, { recursive: true, force: true }); // incomplete, or we would not be here
  try {
    renameSync(parcel, target);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error; // these two: another run was faster
  }
}

const scratchPrefix = '.building-';

/** What runs left behind that were killed in the middle. */
function removeAbandoned(): void {
  const names = existsSync(cache()) ? readdirSync(cache()) : [];
  for (const name of names) {
    const pid = new RegExp(`^\\${scratchPrefix}(\\d+)-`).exec(name)?.[1];
    if (pid !== undefined && !isNpmTest(pid)) rmSync(join(cache(), name), { recursive: true, force: true });
  }
}

/** The pid alone says little: numbers come again. */
function isNpmTest(pid: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('run.js');
  } catch {
    return false;
  }
}
