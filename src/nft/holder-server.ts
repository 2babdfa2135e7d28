/** The holder's end of its socket. */
import { chmodSync, existsSync, mkdirSync, readlinkSync, unlinkSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { dirname } from 'node:path';
import * as v from 'valibot';
import { Setting } from '../config/setting.js';
import { ConfigError } from '../errors.js';
import { oneLine } from '../text.js';
import type { Removed } from './gateway.js';
import type { Holder } from './holder.js';
import { HolderClient } from './holder-client.js';
import {
  holderLockOf,
  holderSocketOf,
  mostRequest,
  requestSchema,
  type HolderAnswer,
  type HolderRequest,
  type HolderStatus,
} from './holder-protocol.js';
import { readGatewaySettings } from './settings.js';

const mostConnections = 64;
/** For who says nothing: it does not take the place of others for ever. */
const idleMs = 30_000;

export interface Asked {
  /** Ends the holder; resolves when all is gone. */
  readonly stop: (why: string) => Promise<Removed>;
  /** Settings have been applied that are not those of the command line. */
  readonly onApplied: () => void;
}

export class HolderServer {
  readonly #instance: string;
  readonly #holder: Holder;
  readonly #asked: Asked;
  readonly #status: HolderStatus;
  readonly #server: Server;
  /** With whose end the holder's comes. */
  readonly #leaders = new Set<Socket>();
  /** Each with the answer that it waits for. */
  readonly #sockets = new Map<Socket, Promise<void>>();

  constructor(instance: string, holder: Holder, isService: boolean, asked: Asked) {
    this.#instance = instance;
    this.#holder = holder;
    this.#asked = asked;
    const network = readlinkSync('/proc/self/ns/net');
    const since = Math.floor(Date.now() / 1000);
    this.#status = { pid: process.pid, instance, network, isService, since };
    this.#server = createServer((socket) => this.#serve(socket));
    this.#server.maxConnections = mostConnections;
  }

  /** @throws {ConfigError} where another holder has the instance, or the place cannot be written. */
  async listen(): Promise<void> {
    const path = holderSocketOf(this.#instance);
    const other = await HolderClient.find(this.#instance);
    if (other !== undefined) {
      other.close();
      const { pid, network } = other.status;
      const where = network === this.#status.network ? '' : ' in another network namespace';
      throw new ConfigError(`instance ${this.#instance} is held by process ${pid} already${where}`);
    }
    await this.#lock();
    try {
      mkdirSync(dirname(path), { recursive: true, mode: 0o750 });
      if (existsSync(path)) unlinkSync(path); // of one that was killed
      await new Promise<void>((resolve, reject) => {
        this.#server.once('error', reject).listen(path, resolve);
      });
      chmodSync(path, 0o600);
    } catch (error) {
      throw new ConfigError(`${path}: ${(error as NodeJS.ErrnoException).code ?? String(error)}`);
    }
    this.#server.on('error', () => {});
  }

  /** Between the look for another one and the own path a second start might come. */
  async #lock(): Promise<void> {
    try {
      await new Promise<void>((resolve, reject) => {
        createServer().unref().once('error', reject).listen(holderLockOf(this.#instance), resolve);
      });
    } catch {
      throw new ConfigError(
        `instance ${this.#instance} has a holder that is just beginning or ending: try again`,
      );
    }
  }

  /** The path goes too, and who has asked gets his answer. */
  async close(): Promise<void> {
    this.#server.close();
    await Promise.all(this.#sockets.values());
    for (const socket of this.#sockets.keys()) socket.end();
  }

  #serve(socket: Socket): void {
    this.#sockets.set(socket, Promise.resolve());
    socket.setTimeout(idleMs, () => socket.destroy());
    socket.on('close', () => {
      this.#sockets.delete(socket);
      if (this.#leaders.has(socket)) void this.#asked.stop('whom it followed has ended');
    });
    socket.on('error', () => {}); // it went while it was answered
    let heard = '';
    socket.setEncoding('utf8').on('data', (text: string) => {
      heard += text;
      const lines = heard.split('\n');
      heard = lines.pop()!;
      if (heard.length > mostRequest) return void socket.destroy();
      for (const line of lines) {
        const answered = this.#sockets.get(socket)!.then(async () => {
          socket.write(`${JSON.stringify(await this.#answer(line, socket))}\n`);
        });
        this.#sockets.set(socket, answered);
      }
    });
  }

  async #answer(line: string, socket: Socket): Promise<HolderAnswer> {
    const warnings: string[] = [];
    try {
      const more = await this.#do(readRequest(line), socket, (text) => void warnings.push(text));
      return { ok: true, ...more, ...(warnings.length > 0 && { warnings }) };
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      return { ok: false, error: text.split('\n').map(oneLine).join('\n') };
    }
  }

  async #do(
    request: HolderRequest,
    socket: Socket,
    warn: (text: string) => void,
  ): Promise<Omit<HolderAnswer, 'ok'>> {
    switch (request.command) {
      case 'apply': {
        const given = Object.entries(request.settings).map(([key, value]): [string, Setting] => [
          key,
          Setting.fromFile('request', key, value, String(value)),
        ]);
        await this.#holder.apply(readGatewaySettings(new Map(given), this.#instance), warn);
        this.#asked.onApplied();
        return {};
      }
      case 'set':
        await this.#holder.set(request.name, request.elements);
        return {};
      case 'refresh':
        await this.#holder.refresh(warn);
        return {};
      case 'status':
        return this.#status;
      case 'follow':
        socket.setTimeout(0);
        if (request.on) this.#leaders.add(socket);
        else this.#leaders.delete(socket);
        return {};
      case 'stop': {
        const { tables, routing } = await this.#asked.stop('asked for at its socket');
        return { tables, routing };
      }
    }
  }
}

function readRequest(line: string): HolderRequest {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw new ConfigError('expected a line of JSON');
  }
  const result = v.safeParse(requestSchema, value);
  if (result.success) return result.output;
  const [{ message, path }] = result.issues;
  throw new ConfigError(
    `request${path === undefined ? '' : `, ${v.getDotPath(result.issues[0])}`}: ${message}`,
  );
}
