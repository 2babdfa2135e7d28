// UDP at both ends of the matrix, each a program inside a namespace:
//
//   node datagrams.js echo PORT                   answers whatever comes, by IPv4 and IPv6
//   node datagrams.js ask HOST PORT MS SIZE...    sends one datagram of each size from one socket, each when the one before
//                                                 has been answered or after MS; prints what was wrong as a JSON array
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { argv } from 'node:process';
import { setTimeout as delay } from 'node:timers/promises';
import { payloadAt } from '../helpers/payload.js';

const [role, ...rest] = argv.slice(2);
if (role === 'echo') echo(Number(rest[0]));
else
  console.log(
    JSON.stringify(await ask(rest[0]!, Number(rest[1]), Number(rest[2]), rest.slice(3).map(Number))),
  );

function echo(port: number): void {
  const four = createSocket('udp4');
  const six = createSocket({ type: 'udp6', ipv6Only: true });
  for (const socket of [four, six]) {
    socket.on('message', (data, from) => socket.send(data, from.port, from.address));
    socket.bind(port);
  }
}

async function ask(host: string, port: number, limitMs: number, sizes: number[]): Promise<string[]> {
  const faults: string[] = [];
  const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
  socket.on('error', (error) => faults.push(error.message));
  socket.bind();
  await once(socket, 'listening');

  let position = 0; // every datagram has bytes of its own, so no late answer passes for another
  for (const size of sizes) {
    const sent = payloadAt(position, size).subarray(0, size);
    position += size;
    const answer = Promise.race([once(socket, 'message'), delay(limitMs, undefined, { ref: false })]);
    socket.send(sent, port, host);
    const [received, from] = (await answer) ?? [];
    if (received === undefined) faults.push(`${size} bytes: no answer in ${limitMs} ms`);
    else if (!sent.equals(received))
      faults.push(`${size} bytes: answered with ${received.length} other bytes`);
    else if (from.address !== host || from.port !== port)
      faults.push(`${size} bytes: answered from ${from.address} ${from.port}, expected ${host} ${port}`);
  }
  socket.close();
  return faults;
}
