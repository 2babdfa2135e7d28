/** What the doctor asks the internet, through servers and through the rules. */

/** A public name server, reachable by TCP and UDP. */
export const target = {
  address: Uint8Array.of(1, 1, 1, 1),
  host: '1.1.1.1',
  port: 53,
  text: '1.1.1.1:53',
} as const;

/** Who the name servers of the root are (RFC 1035, section 4.1); over TCP the length comes before (section 4.2.2). */
export function dnsQuestion({ withLength }: { withLength: boolean }): Buffer {
  const id = 0x5352;
  const recursionDesired = 0x0100;
  const message = Buffer.from([
    id >> 8,
    id & 255,
    recursionDesired >> 8,
    0,
    0,
    1,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    2,
    0,
    1,
  ]);
  return withLength ? Buffer.concat([Buffer.from([0, message.length]), message]) : message;
}
