/*
 * The UDP side of the demo's namespaces: a name server and an echo on the internet, and a client in the LAN. Neither knows
 * of a proxy.
 *
 *   node datagrams.js origin ADDRESS...     at each address: port 53 tells who asks, port 7 echoes; says `ready`
 *   node datagrams.js whoami ADDRESS        asks the name server there and prints what it says
 *   node datagrams.js burst ADDRESS COUNT   sends COUNT datagrams to the echo there; one JSON line of Burst
 */
import { createSocket, type Socket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { isIPv6 } from 'node:net';

const datagramSize = 1200; // what QUIC begins with (RFC 9000, section 14)
const namePort = 53;
const echoPort = 7; // RFC 862
/** On the way at a time: as many as a receive buffer of the kernel's default size holds, and some room. */
const window = 32;
const silenceMs = 5000;

export interface Burst {
  /** Of each datagram. */
  bytes: number;
  sent: number;
  /** That came back once, whole, and from the very address and port that had been asked. */
  echoed: number;
  /** Whatever else came. */
  strange: number;
  seconds: number;
}

const [action, ...args] = process.argv.slice(2);
if (action === 'origin') await serve(args);
if (action === 'whoami') console.log(await whoami(args[0]!));
if (action === 'burst') console.log(JSON.stringify(await burst(args[0]!, Number(args[1]))));

async function serve(addresses: string[]): Promise<void> {
  for (const address of addresses) {
    // A socket for each address, which its answers then come from. One on all addresses would leave that to the routes.
    const names = await bind(address, namePort);
    names.on('message', (query, from) => names.send(answer(query, from.address), from.port, from.address));
    const echo = await bind(address, echoPort);
    echo.on('message', (data, from) => echo.send(data, from.port, from.address));
  }
  console.log('ready');
}

/** RFC 1035, section 4: to a query with one question, one TXT record that holds the address it came from. */
function answer(query: Buffer, asker: string): Buffer {
  const question = query.subarray(12, query.indexOf(0, 12) + 1 + 2 + 2); // behind the header: name, type, class
  const header = Buffer.from([query[0]!, query[1]!, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]); // an answer, no error; 1 and 1
  const text = Buffer.from(asker);
  const size = 1 + text.length;
  // The name is that of the question, at byte 12; TXT, IN, lives 0 s.
  const record = Buffer.from([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 0, 0, size, text.length]);
  return Buffer.concat([header, question, record, text]);
}

async function whoami(address: string): Promise<string> {
  const resolver = new Resolver({ timeout: silenceMs, tries: 1 });
  resolver.setServers([isIPv6(address) ? `[${address}]` : address]);
  const records = await resolver.resolveTxt('whoami.example');
  return records.join('\n');
}

async function burst(address: string, count: number): Promise<Burst> {
  const socket = await bind(isIPv6(address) ? '::' : '0.0.0.0');
  const start = performance.now();
  const missing = new Set<number>();
  let silence: NodeJS.Timeout | undefined;
  const result = { bytes: datagramSize, sent: 0, echoed: 0, strange: 0 };
  await new Promise<void>((resolve) => {
    silence = setTimeout(resolve, silenceMs);
    const sendNext = () => {
      missing.add(result.sent);
      socket.send(datagram(result.sent++), echoPort, address);
    };
    socket.on('message', (data, from) => {
      silence?.refresh();
      const number = data.length === datagramSize ? data.readUInt32BE() : -1;
      const isExact = from.address === address && from.port === echoPort && datagram(number).equals(data);
      if (isExact && missing.delete(number)) result.echoed++;
      else result.strange++;
      if (result.sent < count) sendNext();
      else if (missing.size === 0) resolve();
    });
    while (result.sent < Math.min(window, count)) sendNext();
  });
  clearTimeout(silence);
  socket.close();
  return { ...result, seconds: (performance.now() - start) / 1000 };
}

/** No two are alike. */
function datagram(number: number): Buffer {
  const data = Buffer.alloc(datagramSize, `datagram ${number}, `);
  data.writeInt32BE(number);
  return data;
}

function bind(address: string, port = 0): Promise<Socket> {
  const socket = createSocket({ type: isIPv6(address) ? 'udp6' : 'udp4', ipv6Only: isIPv6(address) });
  return new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.bind(port, address, () => {
      // From here on an error is an ICMP answer to an earlier datagram: what has not come back is counted anyway.
      socket.off('error', reject).on('error', () => undefined);
      resolve(socket);
    });
  });
}
