/** ss-nat's -e: a match in the words of iptables. */
import { execaSync } from 'execa';
import { UsageError } from '../errors.js';
import { quote } from '../text.js';

/**
 * What iptables-translate makes of it, as in
 *
 *     add rule ip nat PREROUTING ip protocol tcp ip daddr != 10.0.0.0/8 counter accept
 *
 * @throws {UsageError} where the tool is missing or knows no translation, naming the option that takes nft's language.
 */
export function translateExtra(option: string, words: string, protocol: 'tcp' | 'udp'): string {
  const instead = `use --match-${protocol} MATCH, in the language of nft`;
  const rule = ['-t', 'nat', '-A', 'PREROUTING', '-p', protocol, ...splitWords(words), '-j', 'ACCEPT'];
  const { stdout, stderr, exitCode, code } = execaSync('iptables-translate', rule, { reject: false });
  if (code === 'ENOENT') throw new UsageError(`option ${option} needs iptables-translate; ${instead}`);
  const match = /add rule ip nat PREROUTING (.*) counter accept'?$/.exec(stdout.trim())?.[1];
  if (exitCode !== 0 || match === undefined) {
    const reason = stderr.trim().split('\n')[0]!;
    const why = reason === '' ? '' : ` (${quote(reason, 120)})`;
    throw new UsageError(
      `option ${option}: ${quote(words)} has no translation for ${protocol}${why}; ${instead}`,
    );
  }
  return match.replace(new RegExp(`^(?:ip protocol|meta l4proto) ${protocol}\\s+`), '').trim();
}

/** Words as a shell would part them, with quotes. */
function splitWords(text: string): string[] {
  return [...text.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map(([, one, two, plain]) => one ?? two ?? plain!);
}
