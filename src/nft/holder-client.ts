/** Who speaks to a holder. */
import { readdirSync, readlinkSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { resolve } from 'node:path';
import { ConfigError, ToolError } from '../errors.js';
import type { Settings } from '../config/setting.js';
import {
  holderDirectory,
  holderScratchOf,
  holderSocketOf,
  type HolderAnswer,
  type HolderRequest,
  type HolderStatus,
} from './holder-protocol.js';

/** A list of ten thousand networks is read and loaded in a second or two; names may take longer. */
const patienceMs = 60_000;
/** One that hangs is told of soon. */
const helloMs = 5000;

export class HolderClient {
  readonly status: HolderStatus;
  readonly #socket: Socket;
  readonly #answers: Answers;
  #isClosed = false;

  private constructor(socket: Socket, answers: Answers, status: HolderStatus) {
    this.#socket = socket;
    this.#answers = answers;
    this.status = status;
  }

  /** The instance's holder; undefined where there is none. @throws {ConfigError} where it may not be spoken to. */
  static async find(instance: string): Promise<HolderClient | undefined> {
    const path = holderSocketOf(instance);
    const socket = connect(path);
    const answers = new Answers(socket);
    try {
      await new Promise<void>((connected, reject) => {
        socket.once('connect', connected).once('error', reject);
      });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // Nobody listens at a path that one has left who was killed.
      if (code === 'ENOENT' || code === 'ECONNREFUSED' || code === 'ENOTDIR') return undefined;
      throw new ConfigError(`${path}: ${code}: the rules are held by another user`);
    }
    const status = (await answers.to({ command: 'status' }, helloMs)) as HolderStatus;
    return new HolderClient(socket, answers, status);
  }

  /** The same, but for those of other network namespaces, whose rules are not ours. */
  static async findHere(instance: string): Promise<HolderClient | undefined> {
    const holder = await HolderClient.find(instance);
    if (holder === undefined || holder.status.network === readlinkSync('/proc/self/ns/net')) return holder;
    holder.close();
    return undefined;
  }

  /** Does something with the instance's holder here, or with undefined where there is none. */
  static async with<T>(instance: string, use: (holder: HolderClient | undefined) => Promise<T>): Promise<T> {
    const holder = await HolderClient.findHere(instance);
    try {
      return await use(holder);
    } finally {
      holder?.close();
    }
  }

  /** Rules for these settings, in place of those that are there. `warn` hears what came up. */
  async apply(settings: Settings, warn: (text: string) => void): Promise<void> {
    const plain = Object.fromEntries([...settings].map(([key, { value }]) => [key, toSend(key, value)]));
    const { warnings = [] } = await this.#answers.to({ command: 'apply', settings: plain });
    warnings.forEach(warn);
  }

  async refresh(warn: (text: string) => void): Promise<void> {
    const { warnings = [] } = await this.#answers.to({ command: 'refresh' });
    warnings.forEach(warn);
  }

  /** Lets the holder end with this connection, or not. It stays open however long nothing is said. */
  async follow(on: boolean): Promise<void> {
    await this.#answers.to({ command: 'follow', on });
  }

  async stop(waitMs = patienceMs): Promise<{ tables: readonly string[]; routing: readonly string[] }> {
    this.#isClosed = true;
    const { tables = [], routing = [] } = await this.#answers.to({ command: 'stop' }, waitMs);
    return { tables, routing };
  }

  /** Calls when the holder has gone without being asked to by us. */
  onGone(call: () => void): void {
    this.#socket.once('close', () => {
      if (!this.#isClosed) call();
    });
  }

  /** The process goes on to live with a connection that is open. */
  unref(): void {
    this.#socket.unref();
  }

  close(): void {
    this.#isClosed = true;
    this.#socket.destroy();
  }
}

/** Lines in the order of the questions. */
class Answers {
  readonly #socket: Socket;
  readonly #waiting: ((line: string | undefined) => void)[] = [];

  constructor(socket: Socket) {
    this.#socket = socket;
    let heard = '';
    socket.setEncoding('utf8').on('data', (text: string) => {
      heard += text;
      const lines = heard.split('\n');
      heard = lines.pop()!;
      for (const line of lines) this.#waiting.shift()?.(line);
    });
    socket.on('error', () => {}); // `close` follows
    socket.on('close', () => {
      for (const answer of this.#waiting.splice(0)) answer(undefined);
    });
  }

  async to(request: HolderRequest, waitMs = patienceMs): Promise<HolderAnswer> {
    const line = await new Promise<string | undefined>((answered) => {
      const late = setTimeout(() => this.#socket.destroy(), waitMs);
      this.#waiting.push((text) => {
        clearTimeout(late);
        answered(text);
      });
      this.#socket.write(`${JSON.stringify(request)}\n`);
    });
    if (line === undefined)
      throw new ToolError(`the holder of the rules gave no answer to "${request.command}"`);
    const answer = JSON.parse(line) as HolderAnswer;
    if (!answer.ok) throw new ToolError(answer.error ?? 'the holder of the rules refused');
    return answer;
  }
}

/** Takes away what a holder has left that was killed. */
export function forgetHolder(instance: string): void {
  for (const path of [holderSocketOf(instance), holderScratchOf(instance)])
    rmSync(path, { recursive: true, force: true });
}

/** Names of all instances that have, or had, a holder. */
export function heldInstances(): string[] {
  try {
    return readdirSync(holderDirectory)
      .filter((name) => name.endsWith('.rules'))
      .map((name) => name.slice(0, -'.rules'.length));
  } catch {
    return [];
  }
}

/** The holder is in another directory. */
function toSend(key: string, value: unknown): unknown {
  if (!key.endsWith('_file')) return value;
  return [value].flat().map((path) => (typeof path === 'string' && path !== '' ? resolve(path) : path));
}
