// Runs inside a namespace: `node greeter.js TCPPORTS UDPPORTS` tells everybody on these ports the address he comes from.
import dgram from 'node:dgram';
import net from 'node:net';
import { networkInterfaces } from 'node:os';

const [tcpPorts = '', udpPorts = ''] = process.argv.slice(2);
const said = (address = '') => `peer ${address.replace(/^::ffff:/, '')}\n`;

// A socket for each address: one for all would answer from another than was asked.
const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
for (const port of udpPorts.split(',').filter(Boolean)) {
  for (const { address, family } of addresses) {
    if (address.startsWith('fe80:')) continue;
    const socket = dgram.createSocket(family === 'IPv6' ? 'udp6' : 'udp4');
    socket.on('message', (_, from) => socket.send(said(from.address), from.port, from.address));
    socket.bind(Number(port), address);
  }
}

for (const port of tcpPorts.split(',').filter(Boolean)) {
  const server = net.createServer((socket) => {
    socket.on('error', () => undefined);
    socket.end(said(socket.remoteAddress));
  });
  server.listen(Number(port), '::');
}
