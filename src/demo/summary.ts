/*
 * The demo's last words: who connected to what, what the gateway saw, how fast.
 */
import { megabytesPerSecond } from './progress.js';
import { actTitle, redirPort, servers, targets, type Sight } from './scene.js';
import { addresses } from './netns.js';
import { targetUrl, type Family, type UdpVisit, type Visit } from './visit.js';

export interface Shown {
  visits: Visit[];
  udpVisits: UdpVisit[];
}

export function summarise({ visits, udpVisits }: Shown): string {
  const rows = visits.map(({ act, family, peer, download, upload, sight }) => [
    actTitle(act),
    `${addresses.client[family]} -> ${targetUrl(family)}`,
    peer,
    `${sight.toProxy}`,
    ...seen(sight),
    megabytesPerSecond(download.bytes, download.seconds),
    megabytesPerSecond(upload.bytes, upload.seconds),
  ]);
  const udpRows = udpVisits.map(({ act, family, peer, burst, sight }) => [
    actTitle(act),
    `${addresses.client[family]} -> ${targets[family]}`,
    peer,
    `${sight.toProxyUdp}`,
    ...seen(sight),
    `${burst.echoed} of ${burst.sent}`,
  ]);
  const heads = ['target saw', 'taken', 'to server', 'past', 'direct'];
  const { aead: first, '2022': second } = servers;
  return [
    '',
    ...table([['TCP', 'client -> target', ...heads, 'down', 'up'], ...rows]),
    '',
    ...table([['UDP', 'client -> target', ...heads, 'echoed'], ...udpRows]),
    '',
    'On the gateway: taken = connections (UDP: datagrams) that the rules gave to ss-redir; to server = bytes to and from',
    'ss-server, encrypted; past = packets of the client forwarded past ss-redir. On the internet: direct = packets from LAN',
    'addresses. UDP was a DNS query and a burst; echoed = came back whole, from the very address and port that was asked.',
    '',
    `The client knows of no proxy. ss-redir on the gateway, port ${redirPort}, relayed with ${first.method} to ss-server at`,
    `${first.host}:${first.port}, in the rows of 2022 with ${second.method} to port ${second.port}. The target`,
    "saw the server's address and never the client's.",
  ].join('\n');
}

function seen({ serverBytes, forwarded, direct }: Sight): string[] {
  return [`${(serverBytes / 1e6).toFixed(0)} MB`, `${forwarded}`, `${direct}`];
}

/** Why the visits do not prove what they should, or undefined. */
export function findFault({ visits, udpVisits }: Shown): string | undefined {
  for (const { act, family, peer, sight, download, upload } of visits) {
    const where = `${actTitle(act)} ${family}`;
    if (sight.toProxy !== 3) return `${where}: the rules took ${sight.toProxy} connections, expected 3`;
    const fault = findLeak(where, family, peer, sight, download.bytes + upload.bytes);
    if (fault !== undefined) return fault;
  }
  for (const { act, family, peer, sight, burst } of udpVisits) {
    const where = `${actTitle(act)} ${family} UDP`;
    const { sent, echoed, strange, bytes } = burst;
    if (echoed !== sent || strange !== 0)
      return `${where}: ${echoed} of ${sent} datagrams came back as they should, and ${strange} otherwise`;
    if (sight.toProxyUdp !== sent + 1)
      return `${where}: the rules took ${sight.toProxyUdp} datagrams, expected ${sent + 1}`;
    const fault = findLeak(where, family, peer, sight, 2 * sent * bytes);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function findLeak(
  where: string,
  family: Family,
  peer: string,
  { serverBytes, forwarded, direct }: Sight,
  carried: number,
): string | undefined {
  if (peer !== addresses.internet[family])
    return `${where}: the target saw ${peer}, expected the ss-server's address`;
  if (serverBytes < carried) return `${where}: ${serverBytes} bytes to ss-server, expected over ${carried}`;
  if (forwarded !== 0) return `${where}: the gateway forwarded ${forwarded} packets, expected 0`;
  if (direct !== 0) return `${where}: ${direct} packets of the LAN reached the internet, expected 0`;
  return undefined;
}

function table(rows: readonly string[][]): string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows.map((row) =>
    `  ${row.map((cell, column) => cell.padEnd(widths[column]!)).join('  ')}`.trimEnd(),
  );
}
