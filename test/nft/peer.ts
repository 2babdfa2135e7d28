// Programs that run inside a namespace: `node peer.js listen PORT...` greets every TCP connection with the address it
// comes from, `node peer.js connect HOST PORT` prints the greeting or the errno. `listen-udp PORT` prints what arrives,
// `send-udp HOST PORT` sends one datagram, to a broadcast address too, `ask-udp HOST PORT` prints the answer or the errno. `hold HOST PORT` sends a line every 20 ms until
// the connection breaks and prints why it ended. PEER_UID is the user to run as, PEER_FROM the address to
// connect from.
import dgram from 'node:dgram';
import net from 'node:net';

const [mode, ...args] = process.argv.slice(2);
const [host = '', port] = args;
const uid = process.env['PEER_UID'];
if (uid) process.setuid?.(Number(uid));

if (mode === 'listen') {
  for (const one of args) net.createServer(greet).listen(Number(one), '::');
}

if (mode === 'connect') {
  const localAddress = process.env['PEER_FROM'];
  const socket = net.connect({ host, port: Number(port), ...(localAddress ? { localAddress } : {}) });
  socket.setTimeout(3000, () => socket.destroy(Object.assign(new Error(), { code: 'ETIMEDOUT' })));
  let greeting = '';
  socket.on('data', (chunk) => (greeting += chunk.toString()));
  socket.on('error', (error: NodeJS.ErrnoException) => console.log(error.code));
  socket.on('end', () => console.log(greeting));
}

if (mode === 'listen-udp') {
  const socket = dgram.createSocket({ type: 'udp4', reuseAddr: true });
  socket.on('message', (message, from) => console.log(`${message} from ${from.address}`));
  socket.bind(Number(host), () => {
    socket.addMembership('224.0.0.251', '192.168.50.1');
    console.log('ready');
  });
}

if (mode === 'send-udp') {
  const socket = dgram.createSocket('udp4');
  socket.bind(0, '192.168.50.2', () => {
    socket.setBroadcast(true);
    socket.setMulticastInterface('192.168.50.2');
    socket.send(`to ${host}`, Number(port), host, () => socket.close());
  });
}

if (mode === 'ask-udp') {
  const socket = dgram.createSocket(host.includes(':') ? 'udp6' : 'udp4');
  const finish = (word: string) => {
    clearTimeout(silence);
    socket.close();
    console.log(word);
  };
  const silence = setTimeout(() => finish('ETIMEDOUT'), 1500);
  socket.on('message', (message) => finish(message.toString()));
  socket.on('error', (error: NodeJS.ErrnoException) => finish(String(error.code)));
  // Only a connected socket hears of ICMP errors.
  socket.connect(Number(port), host, () => socket.send('question'));
}

if (mode === 'hold') {
  const socket = net.connect({ host, port: Number(port) });
  socket.on('data', (chunk) => process.stdout.write(chunk.toString()));
  const timer = setInterval(() => socket.write('x'.repeat(100)), 20);
  socket.on('error', (error: NodeJS.ErrnoException) => {
    clearInterval(timer);
    console.log(`ended: ${error.code}`);
  });
}

function greet(socket: net.Socket): void {
  socket.on('error', () => undefined);
  socket.on('data', () => undefined);
  const peer = socket.remoteAddress?.replace(/^::ffff:/, '');
  if (socket.localPort === 7) socket.write(`peer ${peer}\n`);
  else socket.end(`peer ${peer}`);
}
