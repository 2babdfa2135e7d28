/** syslog(3): lines for the system's log daemon, facility daemon, with our process number. */
import { declare } from './ffi.js';
import { Block } from './memory.js';

const LOG_PID = 0x01; // syslog(3)
const LOG_DAEMON = 3 << 3; // syslog(3)

const openlog = declare<(ident: number, options: number, facility: number) => void>(
  'void openlog(uintptr_t ident, int options, int facility)',
);
const syslog = declare<(priority: number, format: string, type: string, text: string) => void>(
  'void syslog(int priority, const char *format, ...)',
);

/** The C library keeps the address of the name that openlog was given, not a copy. */
let ident: Block | undefined;

/** `priority` is 3 for an error to 7 for debugging (RFC 5424, table 2). */
export function openSyslog(name: string): (priority: number, text: string) => void {
  const bytes = Buffer.from(`${name}\0`);
  ident = Block.allocate(bytes.length);
  ident.bytes.set(bytes);
  openlog(ident.address, LOG_PID, LOG_DAEMON);
  return (priority, text) => syslog(priority, '%s', 'const char *', text);
}
