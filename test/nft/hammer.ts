// Runs inside a namespace: `node hammer.js SECONDS DIRECT PROXIED` connects to both hosts again and again, port 80, and prints
// how it went as JSON: { "DIRECT": { "ok": 12 }, "PROXIED": { "ECONNREFUSED": 13 } }.
import net from 'node:net';

const [seconds = '', ...hosts] = process.argv.slice(2);
const deadline = Date.now() + Number(seconds) * 1000;
const outcomes: Record<string, Record<string, number>> = {};

function attempt(host: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = net.connect({ host, port: 80 });
    socket.setTimeout(3000, () => resolve('ETIMEDOUT'));
    socket.on('connect', () => resolve('ok'));
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(String(error.code)));
    socket.on('close', () => socket.destroy());
  }).then((outcome) => String(outcome));
}

async function hammer(host: string): Promise<void> {
  const counts: Record<string, number> = {};
  outcomes[host] = counts;
  while (Date.now() < deadline) {
    const outcome = await attempt(host);
    counts[outcome] = (counts[outcome] ?? 0) + 1;
  }
}

await Promise.all(hosts.flatMap((host) => [hammer(host)]));
console.log(JSON.stringify(outcomes));
process.exit(0);
