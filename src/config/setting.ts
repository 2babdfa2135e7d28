/** One value as somebody wrote it, with the place where: what a check needs to refuse it usefully. */
import { ConfigError, UsageError } from '../errors.js';
import { quote } from '../text.js';

export class Setting {
  /** `option -p`, or `FILE:3:18: key "server_port"`: the beginning of every message about it. */
  readonly origin: string;
  readonly fromCommandLine: boolean;
  /** Written in one line of text, whatever it is. */
  readonly isIni: boolean;
  // Private, so that neither util.inspect nor JSON.stringify of a table of settings shows a password.
  readonly #value: unknown;
  readonly #text: unknown;

  private constructor(
    origin: string,
    from: 'command line' | 'json' | 'ini',
    value: unknown,
    text: unknown = value,
  ) {
    this.origin = origin;
    this.fromCommandLine = from === 'command line';
    this.isIni = from === 'ini';
    this.#value = value;
    this.#text = text;
  }

  static fromOption(name: string, value: string | true | readonly string[]): Setting {
    return new Setting(`option ${name}`, 'command line', value);
  }

  /** `source` is the value's own text in the file, which keeps the digits that a number loses. */
  static fromFile(place: string, key: string, value: unknown, source: string): Setting {
    return new Setting(`${place}: key ${quote(key)}`, 'json', value, integerText(value, source));
  }

  /** Of an INI file, where everything is text; `true` and `false` without quotes are also what they say. */
  static fromIni(place: string, key: string, text: string, quoted: boolean): Setting {
    const value = quoted || (text !== 'true' && text !== 'false') ? text : text === 'true';
    return new Setting(`${place}: key ${quote(key)}`, 'ini', value, text);
  }

  /** The same place with another value. */
  as(value: unknown): Setting {
    const from = this.fromCommandLine ? 'command line' : this.isIni ? 'ini' : 'json';
    return new Setting(this.origin, from, value);
  }

  get value(): unknown {
    return this.#value;
  }

  /** The value where text is wanted. */
  get text(): unknown {
    return this.#text;
  }

  /** The error that refuses this value; `reason` must not repeat a secret. */
  refuse(reason: string): UsageError | ConfigError {
    const message = `${this.origin}: ${reason}`;
    return this.fromCommandLine ? new UsageError(message) : new ConfigError(message);
  }
}

/** JSON: where text is wanted, an integer is its decimal digits, as in shadowsocks-libev (64 bits, signed). */
function integerText(value: unknown, source: string): unknown {
  if (typeof value !== 'number' || !/^-?\d+$/.test(source)) return value;
  const integer = BigInt(source);
  return BigInt.asIntN(64, integer) === integer ? integer.toString() : value;
}

export type Settings = ReadonlyMap<string, Setting>;

/** Whether somebody gave it a value: `null` is none. */
export function isGiven(settings: Settings, key: string): boolean {
  return (settings.get(key)?.value ?? null) !== null;
}

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
