// A verified transfer of any size in both directions at once, the two ends of which are `serveTransfer` and `transfer`.
//
//   client -> server   "DOWN UP\n"   then UP bytes of the payload stream
//   server -> client   DOWN bytes of the payload stream, then (when all UP bytes are in) their SHA-256 as 64 hex digits
//
// The client checks both hashes. It ends the connection; with `keep` it leaves it open and idle.
import { createHash, type Hash } from 'node:crypto';
import type { Socket } from 'node:net';
import { payloadAt, payloadHash } from './payload.js';

const writeSize = 65_536;
const hexDigestSize = 64;

export interface TransferSize {
  /** Bytes from server to client. */
  down: number;
  /** Bytes from client to server. */
  up: number;
}

export interface TransferOptions extends TransferSize {
  /** Leave the connection open after the last byte. */
  keep?: boolean;
  /** Read nothing for this long after the request was sent. */
  readDelayMs?: number;
}

/** Resolves when every byte has gone and come back as it should; rejects with what differed. */
export function transfer(socket: Socket, options: TransferOptions): Promise<void> {
  const { down, up, keep = false, readDelayMs = 0 } = options;
  const hash = createHash('sha256');
  let received = 0;
  let trailer = '';

  return new Promise((resolve, reject) => {
    const timer = readDelayMs > 0 ? setTimeout(() => socket.resume(), readDelayMs) : undefined;
    const fail = (reason: string) => {
      clearTimeout(timer);
      socket.destroy();
      reject(new Error(`${reason} after ${received} of ${down} bytes down`));
    };
    socket.on('error', (error: NodeJS.ErrnoException) => fail(error.code ?? error.message));
    socket.on('close', () => fail('closed'));
    socket.on('end', () => {
      if (trailer.length < hexDigestSize) fail('end of stream');
    });
    socket.on('data', (chunk) => {
      const payload = Math.min(chunk.length, down - received);
      hash.update(chunk.subarray(0, payload));
      received += payload;
      trailer += chunk.toString('latin1', payload);
      if (trailer.length < hexDigestSize) return;
      const wrong = compareHashes(hash.digest('hex'), trailer, options);
      if (wrong) return fail(wrong);
      socket.removeAllListeners('close').removeAllListeners('end').removeAllListeners('data');
      if (keep) return resolve();
      socket.on('close', () => resolve());
      socket.resume();
      socket.end();
    });
    if (readDelayMs > 0) socket.pause();
    socket.write(`${down} ${up}\n`);
    sendPayload(socket, up);
  });
}

function compareHashes(downHash: string, upHash: string, { down, up }: TransferSize): string | undefined {
  if (downHash !== payloadHash(down)) return `SHA-256 of ${down} bytes down differs`;
  if (upHash !== payloadHash(up)) return `SHA-256 of ${up} bytes up differs`;
  return undefined;
}

export interface ServeOptions {
  /** Read at most 64 KiB each 10 ms for this long. */
  slowReadMs?: number;
  /** Close as soon as everything has been handed to the kernel, as an HTTP/1.0 server does. */
  closeAfter?: boolean;
}

export function serveTransfer(socket: Socket, options: ServeOptions = {}): void {
  const { slowReadMs = 0, closeAfter = false } = options;
  let request = '';
  let upload: { hash: Hash; left: number } | undefined;
  let downloadSent = false;
  const slowUntil = Date.now() + slowReadMs;

  socket.on('error', () => socket.destroy());
  socket.on('end', () => socket.end());
  socket.on('data', (chunk) => {
    if (upload) return take(chunk);
    request += chunk.toString('latin1');
    const end = request.indexOf('\n');
    if (end < 0) return;
    const [down = 0, up = 0] = request.slice(0, end).split(' ').map(Number);
    upload = { hash: createHash('sha256'), left: up };
    sendPayload(socket, down, () => {
      downloadSent = true;
      sendTrailer();
    });
    take(Buffer.from(request.slice(end + 1), 'latin1'));
  });

  function take(chunk: Buffer): void {
    if (!upload) return;
    upload.hash.update(chunk);
    upload.left -= chunk.length;
    if (Date.now() < slowUntil) {
      socket.pause();
      setTimeout(() => socket.resume(), 10);
    }
    sendTrailer();
  }

  function sendTrailer(): void {
    if (!downloadSent || !upload || upload.left > 0) return;
    socket.write(upload.hash.digest('hex'));
    upload = { hash: createHash('sha256'), left: Infinity };
    if (closeAfter) socket.end();
  }
}

/** Writes the payload stream's first `length` bytes, waiting for the socket whenever it is full. */
export function sendPayload(socket: Socket, length: number, done: () => void = () => {}): void {
  let position = 0;
  const more = () => {
    while (position < length) {
      if (socket.destroyed) return;
      const bytes = payloadAt(position, Math.min(writeSize, length - position));
      position += bytes.length;
      if (!socket.write(bytes)) {
        socket.once('drain', more);
        return;
      }
    }
    done();
  };
  more();
}
