/** Where things go below a prefix. All paths are those of the running system: a destdir is put before them at the last moment. */
import { join } from 'node:path';

export interface Layout {
  readonly prefix: string;
  readonly bin: string;
  /** The program itself, with the packages that it runs with. */
  readonly library: string;
  readonly units: string;
  readonly sysusers: string;
  readonly tmpfiles: string;
  readonly man: string;
  readonly rules: string;
  readonly examples: string;
  readonly bash: string;
  readonly zsh: string;
  readonly fish: string;
  /** What ss-setup has put where, to know it again. */
  readonly manifest: string;
}

export const defaultPrefix = '/usr/local';
/** The administrator's. */
export const configFolder = '/etc/ss-redir';
export const runFolder = '/run/ss-redir';
export const adminUnits = '/etc/systemd/system';
export const user = 'ss-redir';

/** The prefixes below which systemd itself looks: systemd.unit(5), sysusers.d(5), tmpfiles.d(5). */
const searched: ReadonlySet<string> = new Set(['/usr', '/usr/local']);

export function layoutOf(prefix: string): Layout {
  const library = join(prefix, 'lib/ss-redir');
  const share = join(prefix, 'share');
  const isSearched = searched.has(prefix);
  return {
    prefix,
    bin: join(prefix, 'bin'),
    library,
    units: isSearched ? join(prefix, 'lib/systemd/system') : adminUnits,
    sysusers: join(isSearched ? join(prefix, 'lib') : '/etc', 'sysusers.d'),
    tmpfiles: join(isSearched ? join(prefix, 'lib') : '/etc', 'tmpfiles.d'),
    man: join(share, 'man'),
    rules: join(share, 'ss-redir'),
    examples: join(share, 'doc/ss-redir/examples'),
    bash: join(share, 'bash-completion/completions'),
    zsh: join(share, 'zsh/site-functions'),
    fish: join(share, 'fish/vendor_completions.d'),
    manifest: join(library, 'installed.json'),
  };
}

/** Of the drop-in with which the service of this instance has its rules held. */
export function dropInOf(instance: string): string {
  return join(adminUnits, `ss-redir@${instance}.service.d`, 'rules.conf');
}
