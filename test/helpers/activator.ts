// Starts a command with listening sockets, as a service manager does (sd_listen_fds(3)):
//
//   node activator.js NAME=tcp/HOST/PORT NAME=udp/HOST/PORT … -- COMMAND [ARG…]
//
// `tcp+` and `udp+` are transparent sockets (Transparent=yes). The sockets are made here and go on after the command has been
// started, so what is passed is really another's; SIGTERM and the exit status travel through.
import { spawn } from 'node:child_process';
import { setTransparent } from '../../src/linux/sockopt.js';
import { errno } from '../../src/linux/ffi.js';
import { bind, listen, socket } from '../../src/linux/libc.js';
import { AF_INET, AF_INET6, Endpoint, SockaddrBlock } from '../../src/linux/sockaddr.js';

const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;

const end = process.argv.indexOf('--');
const wanted = process.argv.slice(2, end).map((word) => /^(.*)=(tcp|udp)(\+?)\/(.*)\/(\d+)$/.exec(word)!);
const command = process.argv.slice(end + 1);
const fds = wanted.map(([, , kind, transparent, host, port]) =>
  makeSocket(kind!, transparent !== '', Endpoint.parse(host!, Number(port))!),
);
const names = wanted.map(([, name]) => name).join(':');
const setting = `LISTEN_PID=$$ LISTEN_FDS=${fds.length} LISTEN_FDNAMES=${names}`;
const child = spawn('sh', ['-c', `${setting} exec "$@"`, 'sh', ...command], {
  stdio: ['inherit', 'inherit', 'inherit', ...fds],
});
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => child.kill(signal));
child.on('exit', (code) => process.exit(code ?? 99));

/** Blocking and inheritable, as systemd makes them. */
function makeSocket(kind: string, transparent: boolean, endpoint: Endpoint): number {
  const family = endpoint.isIpv4 ? AF_INET : AF_INET6;
  const fd = socket(family, kind === 'tcp' ? SOCK_STREAM : SOCK_DGRAM, 0);
  if (transparent) setTransparent(fd, !endpoint.isIpv4);
  const sockaddr = new SockaddrBlock();
  const size = sockaddr.write(endpoint);
  if (bind(fd, sockaddr.address, size) !== 0) throw new Error(`bind(${endpoint}): errno ${errno()}`);
  if (kind === 'tcp' && listen(fd, 4096) !== 0) throw new Error(`listen(${endpoint}): errno ${errno()}`);
  return fd;
}
