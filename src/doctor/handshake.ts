/**
 * A real request through a server, by TCP and by UDP: a question to a name server on the internet. An answer that can be opened
 * proves address, port, method, key and clock; what is wrong without one the protocol hides on purpose, and so do we not know.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Server } from '../config/config.js';
import { selectBackend } from '../crypto/aead.js';
import { findMethod } from '../crypto/methods.js';
import { ProtocolError, SyscallError } from '../errors.js';
import { connectUdp } from '../linux/datagram.js';
import { EAGAIN, errnoName } from '../linux/errno.js';
import { errno } from '../linux/ffi.js';
import { close, recv, send } from '../linux/libc.js';
import { Block } from '../linux/memory.js';
import { Endpoint } from '../linux/sockaddr.js';
import { closeReset, connectTcp, MSG_NOSIGNAL, remoteEndpoint } from '../linux/socket.js';
import { takeSocketError } from '../linux/sockopt.js';
import { writeIpAddress } from '../protocol/address.js';
import { createClientPackets } from '../protocol/packets.js';
import { clientStreams } from '../relay/streams.js';
import { dnsQuestion, target } from './question.js';

const connectMs = 5000;
const answerMs = 5000;
const pollMs = 10;
const blockSize = 256 * 1024;

export interface Outcome {
  readonly isOk: boolean;
  readonly found: string;
  readonly remedy: string;
}

const answers: Outcome = { isOk: true, found: 'answers', remedy: '' };

function failed(found: string, remedy: string): Outcome {
  return { isOk: false, found, remedy };
}

/** @param address numeric. @param mark of our own packets, which the rules let pass. */
export async function askByTcp(server: Server, address: string, mark: number): Promise<Outcome> {
  const endpoint = Endpoint.parse(address, server.port)!;
  let fd: number;
  try {
    fd = connectTcp(endpoint, {
      ...plain(mark),
      mptcp: false,
      fastOpen: false,
      sendBuffer: 0,
      receiveBuffer: 0,
    });
  } catch (error) {
    return unreachable(error);
  }
  try {
    return (await isConnected(fd)) ?? (await exchange(server, fd));
  } finally {
    closeReset(fd);
  }
}

/** Undefined when it is; or what went wrong. */
async function isConnected(fd: number): Promise<Outcome | undefined> {
  for (let waited = 0; waited < connectMs; waited += pollMs) {
    const number = takeSocketError(fd);
    if (number !== 0)
      return failed(
        `cannot be reached: ${errnoName(number)}`,
        'server and server_port; does it run, is a firewall between?',
      );
    if (remoteEndpoint(fd) !== undefined) return undefined;
    await delay(pollMs);
  }
  return failed(`no connection in ${connectMs / 1000} s`, 'server and server_port; is a firewall between?');
}

async function exchange(server: Server, fd: number): Promise<Outcome> {
  const { encoder, decoder } = clientStreams(keysOf(server))(writeIpAddress(target.address, target.port));
  const block = Block.allocate(blockSize);
  const plaintext = Block.allocate(blockSize);
  const question = dnsQuestion({ withLength: true });
  block.bytes.set(question, encoder.headroom);
  encoder.seal(block, question.length);
  const size = encoder.end - encoder.start;
  if (send(fd, block.at(encoder.start, size), size, MSG_NOSIGNAL) !== size)
    return failed(`send: ${errnoName(errno())}`, 'try again');

  let held = 0;
  for (let waited = 0; waited < answerMs; waited += pollMs) {
    const count = recv(fd, block.at(held, blockSize - held), blockSize - held, 0);
    if (count === 0) return closed('closed the connection without an answer');
    if (count < 0) {
      const number = errno();
      if (number !== EAGAIN) return closed(`ended the connection: ${errnoName(number)}`);
      await delay(pollMs);
      continue;
    }
    held += count;
    try {
      decoder.open(block, 0, held, plaintext, 0);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      return failed(
        `answers what cannot be opened: ${error.message}`,
        'method and password, and for 2022 methods the clock',
      );
    }
    if (decoder.produced > 0) return answers;
  }
  return silent();
}

function closed(found: string): Outcome {
  return failed(
    `${found}: key and method may differ, or it cannot reach ${target.text}`,
    'method and password; then the network of the server',
  );
}

/** Servers are silent to whoever does not know the key. */
function silent(): Outcome {
  return failed(
    `connected, and no answer in ${answerMs / 1000} s: key, method or (2022) clock differ, or it cannot reach ${target.text}`,
    'method and password as on the server; date; then the network of the server',
  );
}

export async function askByUdp(server: Server, address: string, mark: number): Promise<Outcome> {
  const endpoint = Endpoint.parse(address, server.port)!;
  let fd: number;
  try {
    fd = connectUdp(endpoint, plain(mark));
  } catch (error) {
    return unreachable(error);
  }
  try {
    return await exchangePackets(server, fd);
  } finally {
    close(fd);
  }
}

async function exchangePackets(server: Server, fd: number): Promise<Outcome> {
  const { backend, method, credentials } = keysOf(server);
  const { sealer, opener } = createClientPackets(backend, method, credentials)();
  const block = Block.allocate(blockSize);
  const payload = Buffer.concat([
    writeIpAddress(target.address, target.port),
    dnsQuestion({ withLength: false }),
  ]);
  // Twice: a datagram may be lost.
  for (let i = 0; i < 2; i++) {
    const from = sealer.headroom;
    block.bytes.set(payload, from);
    sealer.seal(block, from, from + payload.length);
    const size = sealer.end - sealer.start;
    if (send(fd, block.at(sealer.start, size), size, MSG_NOSIGNAL) < 0 && errno() !== EAGAIN)
      return failed(
        `send: ${errnoName(errno())}`,
        'does the server relay UDP (mode), is a firewall between?',
      );
    for (let waited = 0; waited < answerMs / 2; waited += pollMs) {
      const count = recv(fd, block.at(0, blockSize), blockSize, 0);
      if (count < 0) {
        const number = errno();
        if (number !== EAGAIN)
          return failed(`refused: ${errnoName(number)}`, 'does the server relay UDP (mode)?');
        await delay(pollMs);
        continue;
      }
      const verdict = opener.open(block, 0, count, performance.now());
      if (verdict === 'accepted') return answers;
      return failed(
        `answers what cannot be opened (${verdict})`,
        'method and password, and for 2022 methods the clock',
      );
    }
  }
  return failed(
    `no answer in ${answerMs / 1000} s: UDP is not relayed there or does not get through, or key, method or (2022) clock differ`,
    'mode on the server, a firewall between; method and password; date',
  );
}

function keysOf({ method, credentials }: Server) {
  return { backend: selectBackend(() => {}), method: findMethod(method)!, credentials };
}

function plain(mark: number) {
  return { mark, tos: 0, bind4: undefined, bind6: undefined, interface: undefined };
}

function unreachable(error: unknown): Outcome {
  if (!(error instanceof SyscallError)) throw error;
  const remedy =
    error.code === 'EPERM' ? 'run the doctor as root' : 'the route to the server: ip route get ADDRESS';
  return failed(`cannot be reached: ${error.message}`, remedy);
}
