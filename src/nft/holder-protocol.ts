/**
 * What a holder is asked and answers, over the unix socket /run/ss-redir/NAME.rules: a line of JSON each way, in order.
 *
 *     {"command":"apply","settings":{"local_port":1080,…}}           rules for these settings, in place of the present ones
 *     {"command":"set","name":"bypass4","elements":["192.0.2.7"]}    other contents of one set, until names and files are read again
 *     {"command":"refresh"}                                          names and files are read again
 *     {"command":"status"}                                           who holds, and since when
 *     {"command":"follow","on":true}                                 the holder ends when this connection does; false: no more
 *     {"command":"stop"}                                             rules and routing go; answered when they are gone
 *
 *     {"ok":true,…}      {"ok":false,"error":"nft: …"}
 *
 * Settings and not rules are what it is told, since it has to keep the servers' addresses and the routing by itself.
 */
import * as v from 'valibot';

/** Made by tmpfiles.d/ss-redir.conf, or by a holder that runs as root. */
export const holderDirectory = '/run/ss-redir';

export function holderSocketOf(instance: string): string {
  return `${holderDirectory}/${instance}.rules`;
}

/** Where it puts what nft reads; nothing stays there. */
export function holderScratchOf(instance: string): string {
  return `${holderDirectory}/${instance}.nft`;
}

/** A name in the abstract namespace, which goes with its process: only one begins or ends at a time. */
export function holderLockOf(instance: string): string {
  return `\0ss-redir-rules/${instance}`;
}

/** Ten thousand networks are a quarter of a megabyte. */
export const mostRequest = 16 * 1024 * 1024;

export const requestSchema = v.variant('command', [
  v.object({ command: v.literal('apply'), settings: v.record(v.string(), v.unknown()) }),
  v.object({ command: v.literal('set'), name: v.string(), elements: v.array(v.string()) }),
  v.object({ command: v.literal('refresh') }),
  v.object({ command: v.literal('status') }),
  v.object({ command: v.literal('follow'), on: v.boolean() }),
  v.object({ command: v.literal('stop') }),
]);
export type HolderRequest = v.InferOutput<typeof requestSchema>;

export interface HolderStatus {
  readonly pid: number;
  readonly instance: string;
  /** As the kernel names the network namespace, `net:[4026531840]`: the socket may be seen from another one. */
  readonly network: string;
  /** Whether a service manager starts it again when it ends. */
  readonly isService: boolean;
  /** Seconds since 1970. */
  readonly since: number;
}

export interface HolderAnswer extends Partial<HolderStatus> {
  readonly ok: boolean;
  readonly error?: string;
  readonly warnings?: readonly string[];
  /** Of `stop`. */
  readonly tables?: readonly string[];
  readonly routing?: readonly string[];
}
