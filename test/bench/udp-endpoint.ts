import { Endpoint } from '../../src/linux/sockaddr.js';

/** From `192.0.2.1:80`, on a command line of ours. */
export function endpointOf(text: string): Endpoint {
  const [host = '', port] = text.split(':');
  const endpoint = Endpoint.parse(host, Number(port));
  if (endpoint === undefined) throw new Error(`${text}: expected an IPv4 address and a port`);
  return endpoint;
}
