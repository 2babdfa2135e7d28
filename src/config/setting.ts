/** One value as somebody wrote it, with the place where: what a check needs to refuse it usefully. */
import { ConfigError, UsageError } from '../errors.js';
import { quote } from '../text.js';

export class Setting {
  /** `option -p`, or `FILE:3:18: key "server_port"`: the beginning of every message about it. */
  readonly origin: string;
  readonly fromCommandLine: boolean;
  // Private, so that neither util.inspect nor JSON.stringify of a table of settings shows a password.
  readonly #value: unknown;
  readonly #source: string | undefined;

  private constructor(origin: string, fromCommandLine: boolean, value: unknown, source?: string) {
    this.origin = origin;
    this.fromCommandLine = fromCommandLine;
    this.#value = value;
    this.#source = source;
  }

  static fromOption(name: string, value: string | true | readonly string[]): Setting {
    return new Setting(`option ${name}`, true, value);
  }

  /** `source` is the value's own text in the file, which keeps the digits that a number loses. */
  static fromFile(place: string, key: string, value: unknown, source: string): Setting {
    return new Setting(`${place}: key ${quote(key)}`, false, value, source);
  }

  get value(): unknown {
    return this.#value;
  }

  /** The value where text is wanted: an integer is its decimal digits, as in shadowsocks-libev (64 bits, signed). */
  get text(): unknown {
    if (typeof this.#value !== 'number' || this.#source === undefined) return this.#value;
    if (!/^-?\d+$/.test(this.#source)) return this.#value;
    const integer = BigInt(this.#source);
    return BigInt.asIntN(64, integer) === integer ? integer.toString() : this.#value;
  }

  /** The error that refuses this value; `reason` must not repeat a secret. */
  refuse(reason: string): UsageError | ConfigError {
    const message = `${this.origin}: ${reason}`;
    return this.fromCommandLine ? new UsageError(message) : new ConfigError(message);
  }
}

export type Settings = ReadonlyMap<string, Setting>;

/** What came instead of what was expected. Structures are only named: they may hold a password. */
export function describe(value: unknown): string {
  if (typeof value === 'string') return value.includes('://') ? 'a URL' : quote(value);
  if (Array.isArray(value)) return value.length === 0 ? 'an empty array' : 'an array';
  if (typeof value === 'object' && value !== null) return 'an object';
  return String(value);
}

/** The same for a password or a key: its type only. */
export function describeSecret(value: unknown): string {
  if (typeof value === 'string') return value === '' ? 'an empty string' : 'other text';
  if (Array.isArray(value)) return 'an array';
  if (typeof value === 'object' && value !== null) return 'an object';
  if (typeof value === 'number') return 'a number that is no 64-bit integer';
  return `a ${typeof value}`;
}
