/**
 * Lines for the system's log daemon: datagrams to /dev/log, as syslog(3) sends them, facility daemon, with our process
 * number. Not by syslog(3) itself: it waits for a daemon that does not read.
 *
 *     <PRI>Mmm dd hh:mm:ss ident[pid]: text        RFC 3164, section 4.1; PRI = facility * 8 + priority
 */
import { errno } from './ffi.js';
import { close, connect, send, socket } from './libc.js';
import { Block } from './memory.js';

const AF_UNIX = 1; // include/linux/socket.h
const SOCK_DGRAM = 2; // include/linux/net.h
const SOCK_CLOEXEC = 0o2000000; // include/uapi/asm-generic/fcntl.h: O_CLOEXEC
const MSG_DONTWAIT = 0x40; // include/linux/socket.h
const MSG_NOSIGNAL = 0x4000; // include/linux/socket.h
const EAGAIN = 11; // include/uapi/asm-generic/errno-base.h
const facilityDaemon = 3; // RFC 3164, table 1

const path = '/dev/log';
/** struct sockaddr_un: family u16, then the path (include/uapi/linux/un.h). */
const address = Block.allocate(2 + 108);
const line = Block.allocate(8192);

const months = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** `priority` is 3 for an error to 7 for debugging (RFC 5424, table 2). A line that cannot be sent at once is lost. */
export function openSyslog(name: string): (priority: number, text: string) => void {
  let fd = connectToDaemon();
  return (priority, text) => {
    const prefix = `<${facilityDaemon * 8 + priority}>${timestamp(new Date())} ${name}[${process.pid}]: `;
    const size = line.bytes.write(prefix + text, 'utf8');
    if (fd >= 0 && sendLine(fd, size)) return;
    if (fd >= 0) close(fd); // the daemon has been started again: its old socket is dead
    fd = connectToDaemon();
    if (fd >= 0) sendLine(fd, size);
  };
}

/** True unless the daemon behind the socket is gone. */
function sendLine(fd: number, size: number): boolean {
  if (send(fd, line.at(0, size), size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
  return errno() === EAGAIN;
}

function connectToDaemon(): number {
  const fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  address.bytes.fill(0);
  address.bytes.writeUInt16LE(AF_UNIX, 0);
  address.bytes.write(path, 2, 'latin1');
  if (connect(fd, address.address, address.size) === 0) return fd;
  close(fd);
  return -1;
}

function timestamp(date: Date): string {
  const day = String(date.getDate()).padStart(2, ' ');
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(':');
  return `${months[date.getMonth()]} ${day} ${time}`;
}

function two(number: number): string {
  return String(number).padStart(2, '0');
}
