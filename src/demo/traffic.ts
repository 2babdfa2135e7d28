/*
 * What runs inside the demo's namespaces: a web server on the internet and a client in the LAN. Neither knows of a proxy.
 *
 *   node traffic.js origin PORT           GET / greets, GET /file/BYTES sends the file, PUT /file takes it
 *   node traffic.js get URL               prints the answer
 *   node traffic.js download URL          one JSON line of Progress now and then, then one of Outcome
 *   node traffic.js upload URL BYTES      the same
 */
import { createHash } from 'node:crypto';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileBlocks } from './content.js';

const reportMs = 100;

export interface Progress {
  bytes: number;
}

export interface Outcome {
  bytes: number;
  /** Of what the receiver got. */
  sha256: string;
  /** From the request to the last byte. */
  seconds: number;
  /** The address that the web server saw the connection come from. */
  peer: string;
}

let reported = 0; // when, performance.now()

const [action, ...args] = process.argv.slice(2);
if (action === 'origin') serve(Number(args[0]));
if (action === 'get') console.log((await (await request('GET', args[0]!)).toArray()).join('').trim());
if (action === 'download') console.log(JSON.stringify(await download(args[0]!)));
if (action === 'upload') console.log(JSON.stringify(await upload(args[0]!, Number(args[1]))));

function serve(port: number): void {
  const server = http.createServer((incoming, response) => {
    // A client that goes away ends its own exchange only.
    answer(incoming, response).catch(() => response.destroy());
  });
  server.listen(port, '::');
}

async function answer(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  const peer = plainAddress(incoming.socket.remoteAddress);
  response.setHeader('x-peer', peer);
  response.setHeader('connection', 'close');
  if (incoming.method === 'PUT') {
    response.end(JSON.stringify(await digest(incoming)));
    return;
  }
  const bytes = /^\/file\/(\d+)$/.exec(incoming.url ?? '')?.[1];
  if (bytes === undefined) {
    response.end(`${plainAddress(incoming.socket.localAddress)} greets ${peer}\n`);
    return;
  }
  response.setHeader('content-length', bytes);
  await pipeline(Readable.from(fileBlocks(Number(bytes))), response);
}

async function download(url: string): Promise<Outcome> {
  const start = performance.now();
  const response = await request('GET', url);
  const { bytes, sha256 } = await digest(response, report);
  return {
    bytes,
    sha256,
    seconds: (performance.now() - start) / 1000,
    peer: String(response.headers['x-peer']),
  };
}

async function upload(url: string, bytes: number): Promise<Outcome> {
  const start = performance.now();
  const response = await request('PUT', url, countBlocks(bytes));
  const taken = JSON.parse((await response.toArray()).join('')) as { bytes: number; sha256: string };
  return { ...taken, seconds: (performance.now() - start) / 1000, peer: String(response.headers['x-peer']) };
}

function* countBlocks(bytes: number): Generator<Buffer> {
  let sent = 0;
  for (const block of fileBlocks(bytes)) {
    yield block;
    report((sent += block.length));
  }
}

function request(method: string, url: string, body?: Iterable<Buffer>): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const outgoing = http.request(url, { method, agent: false }, resolve).on('error', reject);
    if (body === undefined) outgoing.end();
    else pipeline(Readable.from(body), outgoing).catch(reject);
  });
}

async function digest(stream: Readable, onBytes: (bytes: number) => void = () => undefined) {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    hash.update(chunk);
    onBytes((bytes += chunk.length));
  }
  return { bytes, sha256: hash.digest('hex') };
}

function report(bytes: number): void {
  const now = performance.now();
  if (now - reported < reportMs) return;
  reported = now;
  console.log(JSON.stringify({ bytes } satisfies Progress));
}

/** An IPv4 address as a dual-stack socket has it, `::ffff:192.0.2.1`, without the prefix. */
function plainAddress(address: string | undefined): string {
  return String(address).replace(/^::ffff:/, '');
}
