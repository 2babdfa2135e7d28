/** ss-nft's command line: `COMMAND [NAME] [OPTION]...`, or ss-nat's bare flags. */
import { expectedInstance, isInstanceName } from '../config/instance.js';
import { nearestName } from '../config/nearest.js';
import { Setting, type Settings } from '../config/setting.js';
import { UsageError } from '../errors.js';
import { defaultInstance } from '../nft/names.js';
import { quote } from '../text.js';
import { optionsOf } from './options.js';
import { accept, collect, tokenize, type Given } from './parse.js';
import { translateExtra } from './nft-extra.js';

export const nftCommands = ['up', 'down', 'hold', 'render', 'check', 'status', 'refresh', 'names'] as const;
export type NftCommand = (typeof nftCommands)[number];

export interface NftCommandLine {
  readonly command: NftCommand | 'help' | 'version';
  readonly instance: string;
  /** Given by name, so that its configuration can be looked for. */
  readonly isNamed: boolean;
  readonly configFile?: string;
  readonly all: boolean;
  readonly json: boolean;
  readonly detach: boolean;
  readonly killSwitch: boolean;
  readonly settings: Settings;
}

/** ss-nat's own, where a line of its flags names no interface. */
const natInterface = 'eth0';

/** @throws {UsageError} */
export function parseNftCommandLine(argv: readonly string[]): NftCommandLine {
  const known = optionsOf('ss-nft');
  const tokens = tokenize(known, argv);
  const asked = (long: string) => tokens.some((token) => token.kind === 'option' && token.name === long);
  const words: string[] = [];
  const given: Given[] = [];
  const isHelp = asked('help') || argv.length === 0;
  const command = isHelp ? 'help' : asked('version') ? 'version' : undefined;
  if (command === undefined) {
    for (const token of tokens) {
      if (token.kind === 'positional') words.push(token.value);
      if (token.kind === 'option')
        given.push(accept('ss-nft', known, token.name, token.rawName, token.value));
    }
  }
  const [verb, name, ...rest] = words;
  if (rest.length > 0) throw new UsageError(`argument ${quote(rest[0]!)} is one too many: COMMAND [NAME]`);
  const isBare = verb === undefined;
  const configFile = given.findLast(({ option }) => option.long === 'config')?.value;
  return {
    command: command ?? readCommand(verb, asked('flush')),
    instance: readInstance(name),
    isNamed: name !== undefined,
    ...(configFile !== undefined && { configFile }),
    all: asked('all'),
    json: asked('json'),
    detach: asked('detach'),
    killSwitch: asked('kill-switch'),
    settings: readSettings(given, isBare && command === undefined && configFile === undefined),
  };
}

function readCommand(verb: string | undefined, flush: boolean): NftCommand {
  if (verb === undefined) return flush ? 'down' : 'up';
  if (flush) throw new UsageError(`option -f means down, and the command is ${quote(verb)}`);
  const found = nftCommands.find((command) => command === verb);
  if (found !== undefined) return found;
  const nearest = nearestName(verb, nftCommands);
  const hint = nearest === undefined ? `one of ${nftCommands.join(', ')}` : `did you mean ${nearest}?`;
  throw new UsageError(`unknown command ${quote(verb)} (${hint})`);
}

function readInstance(name: string | undefined): string {
  if (name === undefined) return defaultInstance;
  if (isInstanceName(name)) return name;
  throw new UsageError(`instance ${quote(name)}: expected ${expectedInstance}`);
}

function readSettings(given: readonly Given[], isNat: boolean): Settings {
  const settings = new Map(collect(given));
  const last = (long: string) => given.findLast(({ option }) => option.long === long);
  const clients = last('lan-clients');
  if (clients !== undefined) addLanClients(settings, clients);
  const extra = last('extra');
  if (extra !== undefined) addExtra(settings, extra);
  for (const [long, option] of [
    ['udp-server', '-S HOST'],
    ['udp-local-port', '-L PORT'],
  ] as const) {
    if (last('udp-apart') === undefined || last(long) !== undefined) continue;
    throw new UsageError(`option -U needs ${option} (-u takes server and port of TCP)`);
  }
  if (isNat && last('flush') === undefined && !settings.has('ifnames')) {
    settings.set('ifnames', Setting.fromOption('-I', natInterface));
  }
  return settings;
}

/** `b` and clients: all but these. `w` and clients: these alone. As ss-nat, where destinations count for both. */
function addLanClients(settings: Map<string, Setting>, { name, value = '' }: Given): void {
  const list = value.slice(1);
  const kind = value[0]?.toLowerCase();
  if (kind !== 'b' && kind !== 'w') {
    throw new UsageError(
      `option ${name}: expected b or w and then clients, like "b192.168.1.9 192.168.1.10"`,
    );
  }
  settings.set(kind === 'b' ? 'src_ips_bypass' : 'src_ips_checkdst', Setting.fromOption(name, list));
  if (kind === 'w') settings.set('src_default', Setting.fromOption(name, 'bypass'));
}

function addExtra(settings: Map<string, Setting>, { name, value = '' }: Given): void {
  const mode = settings.get('mode')?.value;
  for (const protocol of ['tcp', 'udp'] as const) {
    if (protocol === 'tcp' ? mode === 'udp_only' : mode === undefined) continue;
    settings.set(`nft_${protocol}_extra`, Setting.fromOption(name, translateExtra(name, value, protocol)));
  }
}
