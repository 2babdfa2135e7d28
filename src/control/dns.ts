/**
 * Names to addresses: the hosts file, then the name servers through c-ares. Never getaddrinfo, which takes one of Node's
 * four threads for as long as a dead name server likes.
 */
import { readFileSync, statSync } from 'node:fs';
import type { RecordWithTtl } from 'node:dns';
import { Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/** As shadowsocks-libev asks c-ares: three seconds, two tries. */
const queryTimeoutMs = 3000;
const queryTries = 2;
const secondAnswerMs = 50;

export interface Found {
  /** Numeric, best first, never empty. */
  addresses: string[];
  /** How long the answer is good for; Infinity for a literal address. */
  ttlSeconds: number;
}

export interface DnsOptions {
  /** `address` or `address:port`, `[v6]:port`; none: those of /etc/resolv.conf. */
  nameservers: readonly string[];
  ipv6First: boolean;
  /** Lookups under way at once; more are refused. */
  maxQueries: number;
  hostsFile?: string;
}

export class Dns {
  private readonly resolver = new Resolver({ timeout: queryTimeoutMs, tries: queryTries });
  private readonly options: DnsOptions;
  private readonly hosts: HostsFile;
  private readonly underWay = new Map<string, Promise<Found>>();

  constructor(options: DnsOptions) {
    this.options = options;
    this.hosts = new HostsFile(options.hostsFile ?? '/etc/hosts');
    if (options.nameservers.length > 0) this.resolver.setServers(options.nameservers);
  }

  /**
   * The addresses of `host`. Questions for the same name at the same time are one.
   *
   * @throws {Error} with a message for the log: no such name, no answer, too many lookups.
   */
  resolve(host: string): Promise<Found> {
    if (isIP(host.split('%', 1)[0]!) !== 0)
      return Promise.resolve({ addresses: [host], ttlSeconds: Infinity });
    const name = host.toLowerCase();
    const asked = this.underWay.get(name);
    if (asked !== undefined) return asked;
    if (this.underWay.size >= this.options.maxQueries) {
      return Promise.reject(
        new Error(`more than ${this.options.maxQueries} name lookups at once (--max-dns-queries)`),
      );
    }
    const answer = this.lookUp(name).finally(() => this.underWay.delete(name));
    this.underWay.set(name, answer);
    return answer;
  }

  close(): void {
    this.resolver.cancel();
  }

  private async lookUp(name: string): Promise<Found> {
    const local = this.hosts.find(name);
    if (local.length > 0) return { addresses: this.order(local), ttlSeconds: 5 };
    const records = await this.query(name);
    return {
      addresses: this.order(records.map((record) => record.address)),
      ttlSeconds: Math.min(...records.map((record) => record.ttl)),
    };
  }

  /** Both families at once. When one has answered, the other gets a moment more: RFC 8305, section 3. */
  private async query(name: string): Promise<RecordWithTtl[]> {
    const records: RecordWithTtl[] = [];
    const failures: string[] = [];
    const answers = [
      this.resolver.resolve4(name, { ttl: true }),
      this.resolver.resolve6(name, { ttl: true }),
    ];
    const all = answers.map((answer) =>
      answer.then(
        (found) => void records.push(...found),
        (error: unknown) => void failures.push(failureText(error)),
      ),
    );
    await Promise.any(answers).catch(() => undefined); // the first one that is no failure, if there is any
    await Promise.race([Promise.all(all), delay(secondAnswerMs, undefined, { ref: false })]);
    if (records.length > 0) return records;
    throw new Error(`cannot resolve "${name}": ${[...new Set(failures)].join(', ')}`);
  }

  private order(addresses: readonly string[]): string[] {
    const v6 = addresses.filter((address) => address.includes(':'));
    const v4 = addresses.filter((address) => !address.includes(':'));
    return this.options.ipv6First ? [...v6, ...v4] : [...v4, ...v6];
  }
}

function failureText(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code ?? String(error);
  return code === 'ENOTFOUND' ? 'no such name' : code === 'ENODATA' ? 'no address' : code;
}

/** hosts(5), read again when it has changed. */
class HostsFile {
  private readonly path: string;
  private stamp = '';
  private names = new Map<string, string[]>();

  constructor(path: string) {
    this.path = path;
  }

  find(name: string): string[] {
    this.refresh();
    return this.names.get(name.replace(/\.$/, '')) ?? [];
  }

  private refresh(): void {
    const stat = statSync(this.path, { throwIfNoEntry: false });
    const stamp = stat === undefined ? '' : `${stat.ino} ${stat.mtimeMs} ${stat.size}`;
    if (stamp === this.stamp) return;
    this.stamp = stamp;
    this.names = new Map();
    if (stat === undefined) return;
    for (const line of this.read().split('\n')) {
      const [address, ...names] = line.replace(/#.*/, '').trim().split(/\s+/);
      if (address === undefined || isIP(address) === 0) continue;
      for (const name of names) this.add(name.toLowerCase(), address);
    }
  }

  /** One that we may not read, or that has just gone, has nothing to say: the name servers may know. */
  private read(): string {
    try {
      return readFileSync(this.path, 'utf8');
    } catch {
      return '';
    }
  }

  private add(name: string, address: string): void {
    const known = this.names.get(name);
    if (known === undefined) this.names.set(name, [address]);
    else known.push(address);
  }
}
