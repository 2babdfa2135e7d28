import type { Command } from '../config/config.js';
import { optionsOf } from './options.js';
import type { Option } from './options.js';

const purposes: Readonly<Record<Command, string>> = {
  'ss-redir':
    'Sends what nftables hands over through a Shadowsocks server: TCP (REDIRECT, or TPROXY with -T), UDP (-u, always TPROXY).',
  'ss-server': 'Shadowsocks server: connects to where its clients ask, and relays their UDP (-u).',
};

const examples: Readonly<Record<Command, string>> = {
  'ss-redir': 'ss-redir -c FILE | -s HOST -p PORT -l PORT -k PASSWORD [OPTION]...',
  'ss-server': 'ss-server -c FILE | -p PORT -k PASSWORD [OPTION]...',
};

const indent = ' '.repeat(10);

/** What --help prints. A default stands in brackets, and so does a feature that this version lacks. */
export function helpText(command: Command, version: string): string {
  const lines = optionsOf(command).flatMap((option) => [
    `  ${spelling(option)}`,
    `${indent}${option.help}${remark(option)}`,
  ]);
  return [
    '',
    `${command} ${version}`,
    purposes[command],
    '',
    `usage: ${examples[command]}`,
    '',
    ...lines,
    '',
  ].join('\n');
}

function spelling({ short, long, argument }: Option): string {
  const names = short === undefined ? `    --${long}` : `-${short}, --${long}`;
  return argument === undefined ? names : `${names} ${argument}`;
}

function remark({ fallback, later }: Option): string {
  if (later !== undefined) return ` [not in this version: ${later}]`;
  return fallback === undefined ? '' : ` [${fallback}]`;
}
