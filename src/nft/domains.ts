/**
 * Names whose addresses dnsmasq (2.87 or newer) puts into our sets, by lines of its configuration:
 *
 *     nftset=/example.net/4#inet#ss_redir_dns_default#names4,6#inet#ss_redir_dns_default#names6
 *
 * A name stands for itself and all below it. Files have one a line; `#` begins a comment, a dot or `*.` before a name is
 * left out.
 */
import { ConfigError } from '../errors.js';
import { oneLine, quote } from '../text.js';
import { dnsTableOf } from './names.js';
import { readText } from './sets.js';
import type { GatewaySettings } from './settings.js';

/** dnsmasq reads lines of at most 1,025 bytes (src/dnsmasq.h, MAXDNAME), ends included. */
const longestLine = 1000;

/** @throws {ConfigError} naming file and line, or that there are no names. */
export function renderNames({ instance, domainsFiles }: GatewaySettings): string {
  if (domainsFiles.length === 0)
    throw new ConfigError('no file of names given (domains_file, --domains-file)');
  const names = [...new Set(domainsFiles.flatMap(readNames))];
  const table = `inet#${dnsTableOf(instance)}`;
  const sets = `/4#${table}#names4,6#${table}#names6`;
  const lines: string[] = [];
  let line = '';
  for (const name of names) {
    if (line !== '' && line.length + name.length + sets.length > longestLine) {
      lines.push(`nftset=${line}${sets}`);
      line = '';
    }
    line += `/${name}`;
  }
  if (line !== '') lines.push(`nftset=${line}${sets}`);
  return ['# Made by ss-nft names: addresses that dnsmasq finds for these names.', ...lines, ''].join('\n');
}

function readNames(path: string): string[] {
  const names: string[] = [];
  for (const [index, written] of readText(path).split('\n').entries()) {
    const name = written
      .replace(/#.*/s, '')
      .trim()
      .replace(/^\*?\./, '')
      .replace(/\.$/, '')
      .toLowerCase();
    if (name === '') continue;
    if (!isName(name)) {
      throw new ConfigError(
        `${oneLine(path)}:${index + 1}: expected a domain name in ASCII, got ${quote(written.trim())}`,
      );
    }
    names.push(name);
  }
  return names;
}

/** Letters, digits, hyphens and underscores; a name in other letters has to be in its xn-- form. RFC 1035, section 2.3.4. */
function isName(name: string): boolean {
  return (
    name.length <= 253 &&
    name.split('.').every((label) => /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/.test(label))
  );
}
