import { optionsOf } from './options.js';
import type { Option, Program } from './options.js';

const purposes: Readonly<Record<Program, string>> = {
  'ss-redir':
    'Sends what nftables hands over through a Shadowsocks server: TCP (REDIRECT, or TPROXY with -T), UDP (-u, always TPROXY).',
  'ss-server': 'Shadowsocks server: connects to where its clients ask, and relays their UDP (-u).',
  'ss-setup': 'Installs and removes programs, units, manual pages, completions, rule files and examples.',
  'ss-nft': "The nftables rules and the policy routing that give a gateway's traffic to ss-redir.",
};

const examples: Readonly<Record<Program, string>> = {
  'ss-redir': 'ss-redir -c FILE | -s HOST -p PORT -l PORT -k PASSWORD [OPTION]...',
  'ss-server': 'ss-server -c FILE | -p PORT -k PASSWORD [OPTION]...',
  'ss-setup': [
    'ss-setup install|remove [OPTION]...',
    '',
    '  install  put everything in its place; again: upgrade. An edited file stays, the new one is NAME.new',
    '  remove   take it away; configuration and what was edited stay',
    '',
    '  exit status: 0; 1 refused or failed, and nothing was changed',
  ].join('\n'),
  'ss-nft': [
    'ss-nft COMMAND [NAME] [OPTION]...',
    '       ss-nft -s HOST -l PORT -I INTERFACE [OPTION]...    as ss-nat: up; with -f: down',
    '',
    '  up      load the rules of instance NAME (default), or replace them; its configuration is found as by',
    '          ss-redir --instance NAME, or given by -c FILE, or all by options',
    '  down    remove rules and routing of NAME, or of all with --all; needs no configuration',
    '  hold    as up, but nobody else can change or flush the rules, and they go when it ends; up, down,',
    '          refresh and status speak to it',
    '  render  print the rules as nft reads them',
    '  check   look for conflicts and let nft check the rules; changes nothing',
    '  status  counters, sets, routing, listeners, and what is not as wanted',
    "  refresh read files and servers' names again and replace the sets; rules and counters stay",
    '  names   print the lines with which dnsmasq fills the sets of names',
    '',
    '  exit status: 0; 1 failed; 2 usage; 3 status or check found something not as wanted',
  ].join('\n'),
};

const indent = ' '.repeat(10);

/** What --help prints. A default stands in brackets, and so does a feature that this version lacks. */
export function helpText(command: Program, version: string): string {
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
