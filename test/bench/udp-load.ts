// What both ends of the UDP scenario share.
import { Endpoint } from '../../src/linux/sockaddr.js';

/**
 * The ends stand for other machines, which the gateway cannot slow down: without this a busy ss-redir lowers the rate that is
 * offered to it.
 */
export const loadPriority = -10;

/** From `192.0.2.1:80`, on a command line of ours. */
export function endpointOf(text: string): Endpoint {
  const [host = '', port] = text.split(':');
  const endpoint = Endpoint.parse(host, Number(port));
  if (endpoint === undefined) throw new Error(`${text}: expected an IPv4 address and a port`);
  return endpoint;
}
