// Where datagrams were lost: the counters of a namespace and of its sockets, which the kernel keeps from when they were made.
// /proc/PID/net shows those of the namespace that PID is in (proc(5)).
import { readFileSync } from 'node:fs';

/** Datagrams that came to a socket, or left one, and were thrown away there, in the whole namespace. */
export function lostInSockets(pid: number): number {
  // net/ipv4/proc.c: a line of names, a line of numbers. RcvbufErrors are among the InErrors (net/ipv4/udp.c).
  const [names = [], numbers = []] = readLines(`/proc/${pid}/net/snmp`)
    .filter((line) => line.startsWith('Udp:'))
    .map((line) => line.split(' '));
  const four = new Map(names.map((name, i) => [`Udp6${name}`, Number(numbers[i])]));
  const six = new Map(
    readLines(`/proc/${pid}/net/snmp6`).map((line) => {
      const [name = '', number] = line.split(/\s+/);
      return [name, Number(number)];
    }),
  );
  return ['Udp6InErrors', 'Udp6SndbufErrors']
    .flatMap((name) => [four.get(name) ?? 0, six.get(name) ?? 0])
    .reduce((sum, value) => sum + value, 0);
}

/** The same for the sockets bound to one of these ports. */
export function lostAtPorts(pid: number, ports: ReadonlySet<number>): number {
  let sum = 0;
  for (const table of ['udp', 'udp6']) {
    for (const line of readLines(`/proc/${pid}/net/${table}`).slice(1)) {
      const fields = line.trim().split(/\s+/);
      const port = parseInt(fields[1]?.split(':')[1] ?? '', 16);
      if (ports.has(port)) sum += Number(fields.at(-1)); // `drops` is the last column
    }
  }
  return sum;
}

/** Packets for which the queue of a processor (net.core.netdev_max_backlog) had no room, on the whole machine. */
export function lostInBacklogs(): number {
  // net/core/net-procfs.c: a line a processor, hexadecimal; the second number is `dropped`.
  return readLines('/proc/net/softnet_stat')
    .map((line) => parseInt(line.split(' ')[1]!, 16))
    .reduce((sum, value) => sum + value, 0);
}

function readLines(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').split('\n').filter(Boolean);
  } catch {
    return []; // a kernel without IPv6 has no snmp6
  }
}
