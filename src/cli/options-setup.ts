/** ss-setup's part of the option table. */
import type { Option } from './options.js';

const commands = ['ss-setup'] as const;

export const setupOptions: readonly Option[] = [
  {
    long: 'prefix',
    argument: 'DIRECTORY',
    commands,
    fallback: '/usr/local',
    help: 'where it goes; one with files of a package is refused',
  },
  {
    long: 'destdir',
    argument: 'DIRECTORY',
    commands,
    help: 'put before every path, for those who build a package; the running system is left alone',
  },
  {
    long: 'node',
    argument: 'FILE',
    commands,
    fallback: 'the one that runs ss-setup',
    help: 'install: Node that the programs run with',
  },
  {
    long: 'rules',
    argument: 'NAME',
    repeat: true,
    commands,
    help: 'install: ss-redir@NAME brings its rules, held by ss-redir-rules@NAME',
  },
  { long: 'purge', commands, help: "remove: the administrator's configuration, too" },
  { long: 'dry-run', commands, help: 'say what would be done, and do nothing' },
  { short: 'h', long: 'help', commands, help: 'this text' },
  { short: 'V', long: 'version', commands, help: 'name and version' },
];
