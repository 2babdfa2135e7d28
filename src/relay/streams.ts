/**
 * Makes the streams of a connection by the edition that its method belongs to, with the salts, clock and padding that the
 * codecs ask for. The relay knows the interfaces of stream.ts only.
 */
import type { Credentials } from '../crypto/credentials.js';
import type { AeadBackend } from '../crypto/aead.js';
import type { Method } from '../crypto/methods.js';
import { randomBytes } from '../crypto/random.js';
import { SaltFilter, type SaltMemory } from '../crypto/replay.js';
import { SaltPool, type SaltPoolMemory } from '../crypto/salt-pool.js';
import type { StreamDecoder, StreamEncoder } from '../protocol/stream.js';
import { type Clock, StreamDecoder2022 } from '../protocol/tcp-2022.js';
import { maxPadding, RequestEncoder2022, RequestHeader } from '../protocol/tcp-2022-request.js';
import { UserTable } from '../protocol/user-table.js';
import { ResponseEncoder2022, ResponseHeader } from '../protocol/tcp-2022-response.js';
import { AeadStreamDecoder, AeadStreamEncoder } from '../protocol/tcp-aead.js';

/** What all streams of a program are made with. */
export interface StreamKeys {
  readonly backend: AeadBackend;
  readonly method: Method;
  readonly credentials: Credentials;
}

export interface ClientStreams {
  readonly encoder: StreamEncoder;
  readonly decoder: StreamDecoder;
}

/** The client's side of a connection to the target at `address`. */
export type OpenClientStreams = (address: Uint8Array) => ClientStreams;

export function clientStreams(keys: StreamKeys, now: Clock = systemClock): OpenClientStreams {
  const { backend, method, credentials } = keys;
  const { key } = credentials;
  if (method.edition === 'aead') {
    return (address) => {
      const salt = randomBytes(method.saltSize);
      return {
        encoder: new AeadStreamEncoder(backend, method, key, salt, address),
        // Our own stream sent back to us is no answer.
        decoder: new AeadStreamDecoder(backend, method, key, (other) => !isSame(salt, other)),
      };
    };
  }
  return (address) => {
    const salt = randomBytes(method.saltSize);
    return {
      encoder: new RequestEncoder2022({ ...keys, salt, address, now, padding: randomPadding }),
      decoder: new StreamDecoder2022(new ResponseHeader({ backend, method, key, requestSalt: salt, now })),
    };
  };
}

export interface ServerStreams {
  /** What comes out of it begins with the target's address. */
  readonly decoder: StreamDecoder;
  /** Index in Credentials.users, once the decoder has trusted the stream; -1 without users. */
  readonly user: number;
  /** For the answer. Once only, and not before the decoder has trusted the stream. */
  createEncoder(): StreamEncoder;
}

/** The server's side of a connection that has just come. */
export type OpenServerStreams = () => ServerStreams;

/** The salts that a server has seen: one memory for all workers, of the kind that the edition wants. */
export type ServerSalts =
  | { readonly edition: 'aead'; readonly memory: SaltMemory }
  | { readonly edition: '2022'; readonly memory: SaltPoolMemory };

export function serverStreams(
  keys: StreamKeys,
  salts: ServerSalts,
  now: Clock = systemClock,
): OpenServerStreams {
  if (salts.edition === 'aead') {
    const filter = new SaltFilter(salts.memory);
    return () => new AeadServerStreams(keys, filter);
  }
  const pool = new SaltPool(salts.memory);
  const requests = {
    ...keys,
    users: UserTable.of(keys.credentials.users),
    now,
    acceptSalt: (salt: Uint8Array) => pool.accept(salt, monotonicMs()),
  };
  return () => new ServerStreams2022(requests);
}

class AeadServerStreams implements ServerStreams {
  readonly decoder: AeadStreamDecoder;
  readonly user = -1;
  private readonly keys: StreamKeys;
  private readonly replays: SaltFilter;

  constructor(keys: StreamKeys, replays: SaltFilter) {
    const { backend, method, credentials } = keys;
    this.keys = keys;
    this.replays = replays;
    this.decoder = new AeadStreamDecoder(backend, method, credentials.key, (salt) => replays.accept(salt));
  }

  createEncoder(): StreamEncoder {
    const { backend, method, credentials } = this.keys;
    const salt = randomBytes(method.saltSize);
    this.replays.add(salt); // a reflected answer must not pass for a request
    return new AeadStreamEncoder(backend, method, credentials.key, salt);
  }
}

class ServerStreams2022 implements ServerStreams {
  readonly decoder: StreamDecoder2022;
  private readonly requests: ConstructorParameters<typeof RequestHeader>[0];
  private readonly header: RequestHeader;

  constructor(requests: ConstructorParameters<typeof RequestHeader>[0]) {
    this.requests = requests;
    this.header = new RequestHeader(requests);
    this.decoder = new StreamDecoder2022(this.header);
  }

  get user(): number {
    return this.header.user;
  }

  /** No salt of ours is remembered: a reflected answer has the wrong header type. */
  createEncoder(): StreamEncoder {
    const { backend, method, now } = this.requests;
    const { key, salt: requestSalt } = this.header;
    return new ResponseEncoder2022({
      backend,
      method,
      key,
      salt: randomBytes(method.saltSize),
      requestSalt,
      now,
    });
  }
}

function systemClock(): number {
  return Math.floor(Date.now() / 1000);
}

/** The same for all threads, which performance.now() is not. */
function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}

/** 1 to 900 bytes for a request without payload; one with payload needs none. */
function randomPadding(payloadSize: number): Uint8Array {
  if (payloadSize > 0) return nothing;
  return randomBytes(1 + randomInt(maxPadding));
}

const nothing = new Uint8Array(0);

/** Uniform in 0..limit - 1. */
function randomInt(limit: number): number {
  const bytes = randomBytes(4);
  return Math.floor((new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0) / 2 ** 32) * limit);
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one.every((byte, i) => byte === other[i]);
}
