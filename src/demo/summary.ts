/*
 * The demo's last words: who connected to what, what the gateway saw, how fast.
 */
import { megabytesPerSecond } from './progress.js';
import { method, redirPort, server } from './scene.js';
import { addresses } from './netns.js';
import { targetUrl, type Visit } from './visit.js';

export function summarise(visits: readonly Visit[]): string {
  const rows = visits.map(({ mode, family, peer, download, upload, sight }) => [
    mode.toUpperCase(),
    `${addresses.client[family]} -> ${targetUrl(family)}`,
    peer,
    `${sight.toProxy}`,
    `${(sight.serverBytes / 1e6).toFixed(0)} MB`,
    `${sight.forwarded}`,
    `${sight.direct}`,
    megabytesPerSecond(download.bytes, download.seconds),
    megabytesPerSecond(upload.bytes, upload.seconds),
  ]);
  const heads = [
    'mode',
    'client -> target',
    'target saw',
    'taken',
    'to server',
    'past',
    'direct',
    'down',
    'up',
  ];
  return [
    '',
    ...table([heads, ...rows]),
    '',
    'On the gateway: taken = connections the rules gave to ss-redir; to server = bytes to and from ss-server, encrypted;',
    'past = TCP packets of the client forwarded past ss-redir. On the internet: direct = TCP packets from LAN addresses.',
    '',
    `The client knows of no proxy. ss-redir on the gateway, port ${redirPort}, relayed its connections with ${method}`,
    `to ss-server at ${server.host}:${server.port}; the target saw the server's address and never the client's.`,
  ].join('\n');
}

/** Why the visits do not prove what they should, or undefined. */
export function findFault(visits: readonly Visit[]): string | undefined {
  for (const { mode, family, peer, sight, download, upload } of visits) {
    const where = `${mode} ${family}`;
    const carried = download.bytes + upload.bytes;
    if (peer !== addresses.internet[family])
      return `${where}: the target saw ${peer}, expected the ss-server's address`;
    if (sight.toProxy !== 3) return `${where}: the rules took ${sight.toProxy} connections, expected 3`;
    if (sight.serverBytes < carried)
      return `${where}: ${sight.serverBytes} bytes to ss-server, expected over ${carried}`;
    if (sight.forwarded !== 0)
      return `${where}: the gateway forwarded ${sight.forwarded} packets, expected 0`;
    if (sight.direct !== 0)
      return `${where}: ${sight.direct} packets of the LAN reached the internet, expected 0`;
  }
  return undefined;
}

function table(rows: readonly string[][]): string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows.map((row) =>
    `  ${row.map((cell, column) => cell.padEnd(widths[column]!)).join('  ')}`.trimEnd(),
  );
}
