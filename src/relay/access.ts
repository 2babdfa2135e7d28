/** How ss-redir speaks to a server. Servers may differ in method and keys; sockets, pools and limits are common to all. */
import { isDeepStrictEqual } from 'node:util';
import { Endpoint } from '../linux/sockaddr.js';
import type { ClientPacketSession } from '../protocol/packet.js';
import { type ClientPackets, createClientPackets } from '../protocol/packets.js';
import type { RelayContext } from './context.js';
import { clientStreams, type OpenClientStreams } from './streams.js';

export class Access {
  /** With the method and the keys of the server. */
  readonly context: RelayContext;
  readonly openStreams: OpenClientStreams;
  private packets: ClientPackets | undefined;

  constructor(context: RelayContext) {
    this.context = context;
    this.openStreams = clientStreams(context);
  }

  /** Whether it is the same method with the same keys. */
  isLike({ context: { method, credentials } }: Access): boolean {
    return this.context.method === method && isDeepStrictEqual(this.context.credentials, credentials);
  }

  /** For a session with the server; only the worker that has the UDP side makes the ciphers for it. */
  createPackets(): ClientPacketSession {
    const { backend, method, credentials } = this.context;
    this.packets ??= createClientPackets(backend, method, credentials);
    return this.packets();
  }
}

/** A server whose method or keys are not those of most. */
export class ServerEndpoint extends Endpoint {
  readonly access: Access;

  constructor({ address, port, scope }: Endpoint, access: Access) {
    super(address, port, scope);
    this.access = access;
  }
}

/** At one address there may be two servers, for two users. */
export function isSameServer(one: Endpoint, other: Endpoint): boolean {
  return one.equals(other) && ownAccess(one) === ownAccess(other);
}

function ownAccess(server: Endpoint): Access | undefined {
  return server instanceof ServerEndpoint ? server.access : undefined;
}

export function accessOf(server: Endpoint, common: Access): Access {
  return ownAccess(server) ?? common;
}
