/** Which mark our own packets carry. */
import { type Config, defaultOutboundFwmark } from '../config/config.js';
import { mayMark } from '../linux/socket.js';

/**
 * ss-redir must mark what it sends, or rules for the router's own connections send it back: without the privilege it is
 * refused when it opens its listeners. ss-server meets such rules only where it runs on a gateway, and Debian's unit starts it
 * without the privilege: it goes without the mark, unless another one than the default was asked for.
 */
export function markInForce(config: Config, info: (text: string) => void): number {
  const { command, outboundFwmark: mark } = config;
  if (command !== 'ss-server' || mark !== defaultOutboundFwmark || mayMark(mark)) return mark;
  info('our own connections carry no mark (--outbound-fwmark), which takes CAP_NET_ADMIN or CAP_NET_RAW');
  return 0;
}
