// Traffic without a pause, run inside namespaces, for the leak test.
//
//   node leak-load.js serve              in the internet: on TCP port 80 a line every 20 ms to whoever is connected; UDP port 9
//                                        is answered, and speaks again by itself 30 ms later
//   node leak-load.js tcp|udp HOST...    in the client: connections that stay and talk, and new ones all the time; or sockets
//                                        that stay and new ones. SIGUSR1 prints the attempts so far as a line.
import dgram from 'node:dgram';
import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

const [mode, ...hosts] = process.argv.slice(2);
const tcpPort = 80;
const udpPort = 9;
let attempts = 0;
process.on('SIGUSR1', () => console.log(`attempts ${attempts}`));
console.log('ready');

if (mode === 'serve') {
  net.createServer(chat).listen(tcpPort, '::');
  for (const type of ['udp4', 'udp6'] as const) {
    const socket = dgram.createSocket({ type, ipv6Only: type === 'udp6' });
    socket.on('error', () => {});
    socket.on('message', (_, { port, address }) => {
      socket.send('answer', port, address);
      setTimeout(() => socket.send('again', port, address), 30);
    });
    socket.bind(udpPort);
  }
}

if (mode === 'tcp') {
  for (const host of hosts) {
    for (let i = 0; i < 4; i++) void keepConnected(host);
    for (let i = 0; i < 2; i++) void connectAgain(host);
  }
}

if (mode === 'udp') {
  for (const host of hosts) {
    for (let i = 0; i < 4; i++) void keepAsking(host, 1_000_000);
    void keepAsking(host, 3);
  }
}

function chat(socket: net.Socket): void {
  const timer = setInterval(() => socket.write('line\n'), 20);
  socket.on('error', () => {});
  socket.on('close', () => clearInterval(timer));
  socket.resume();
}

/** One connection that both sides talk on; another one when it has ended. */
async function keepConnected(host: string): Promise<void> {
  for (;;) {
    await connection(host, (socket) => {
      const timer = setInterval(() => {
        attempts++;
        socket.write('word\n');
      }, 15);
      socket.once('close', () => clearInterval(timer));
    });
    await delay(10);
  }
}

async function connectAgain(host: string): Promise<void> {
  for (;;) {
    await connection(host, (socket) => setTimeout(() => socket.destroy(), 5));
    await delay(5);
  }
}

function connection(host: string, onConnect: (socket: net.Socket) => void): Promise<void> {
  attempts++;
  return new Promise((resolve) => {
    const socket = net.connect({ host, port: tcpPort });
    // What hangs makes room, so that a state in which nobody answers is not one without attempts.
    const patience = setTimeout(() => socket.destroy(), 1500);
    socket.on('connect', () => {
      clearTimeout(patience);
      onConnect(socket);
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      clearTimeout(patience);
      resolve();
    });
    socket.resume();
  });
}

/** From one port after the other, so many datagrams each. */
async function keepAsking(host: string, count: number): Promise<void> {
  for (;;) {
    const socket = dgram.createSocket(host.includes(':') ? 'udp6' : 'udp4');
    socket.on('error', () => {}); // refused, which is what some states want
    for (let i = 0; i < count; i++) {
      attempts++;
      socket.send('question', udpPort, host, () => {});
      await delay(15);
    }
    socket.close();
  }
}
