// A bound datagram socket, as helpers/udp-agent.ts and udp-wire.ts need it.
import { createSocket, type Socket } from 'node:dgram';

export interface Address {
  host: string;
  port: number;
}

export interface BindUdp {
  host: string;
  /** Default: one that the kernel chooses. */
  port?: number;
  /** Share the port with others that do so (SO_REUSEADDR). */
  reuseAddress?: boolean;
  /** `::` takes IPv4 as well. */
  dualStack?: boolean;
}

export function bindUdp({
  host,
  port = 0,
  reuseAddress = false,
  dualStack = false,
}: BindUdp): Promise<Socket> {
  const type = host.includes(':') ? 'udp6' : 'udp4';
  const socket = createSocket({ type, reuseAddr: reuseAddress, ipv6Only: type === 'udp6' && !dualStack });
  return new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.bind({ address: host, port, exclusive: true }, () => {
      socket.off('error', reject);
      resolve(socket);
    });
  });
}
