/**
 * The doctor's client: a process in a network namespace of its own, which goes with it. Says "ready", waits for a line, by which
 * time its end of the link is there, asks by TCP and by UDP, and prints what came as JSON. It ends with its standard input.
 */
import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { connect } from 'node:net';
import { dnsQuestion, target } from './question.js';
import { link, type ProbeResult } from './probe-link.js';

const answerMs = 8000;

process.stdin.on('end', () => process.exit(1)).once('data', () => void ask());
console.log('ready');

async function ask(): Promise<void> {
  for (const words of [
    'link set lo up',
    `address add ${link.client}/30 dev ${link.clientInterface}`,
    `link set ${link.clientInterface} up`,
    `route add default via ${link.gateway}`,
  ])
    execFileSync('ip', words.split(' '), { stdio: 'ignore' });
  const [tcp, udp] = await Promise.all([askByTcp(), askByUdp()]);
  const result: ProbeResult = { tcp, udp };
  console.log(`RESULT ${JSON.stringify(result)}`);
  process.exit(0);
}

function askByTcp(): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(target.port, target.host);
    let isConnected = false;
    const late = setTimeout(() => {
      resolve(isConnected ? 'connected, and no answer' : 'no connection');
      socket.destroy();
    }, answerMs);
    const end = (word: string) => {
      clearTimeout(late);
      socket.destroy();
      resolve(word);
    };
    socket.on('connect', () => {
      isConnected = true;
      socket.write(dnsQuestion({ withLength: true }));
    });
    socket.on('data', () => end('answered'));
    socket.on('end', () => end('closed without an answer'));
    socket.on('error', (error: NodeJS.ErrnoException) => end(String(error.code)));
  });
}

function askByUdp(): Promise<string> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4');
    const question = () => socket.send(dnsQuestion({ withLength: false }));
    const again = setInterval(question, answerMs / 3); // a datagram may be lost
    const late = setTimeout(() => end('no answer'), answerMs);
    const end = (word: string) => {
      clearInterval(again);
      clearTimeout(late);
      socket.close();
      resolve(word);
    };
    socket.on('message', () => end('answered'));
    socket.on('error', (error: NodeJS.ErrnoException) => end(String(error.code)));
    socket.connect(target.port, target.host, question);
  });
}
