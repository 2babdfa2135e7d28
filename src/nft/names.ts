/**
 * Names and numbers of the rules, one default each. Bits of the packet mark are used as masks, so that other programs'
 * bits stay as they are.
 */

/** What every table of ours begins with: `down --all` knows them by it. */
export const tablePrefix = 'ss_redir_';

/** Who loads the rules by hand, or names no instance, has this one. */
export const defaultInstance = 'default';

/** Packets that policy routing delivers locally, to TPROXY. */
export const toProxyMark = 0x0100_0000;
/** ss-redir's own traffic: the default of its `outbound_fwmark`. */
export const ownMark = 0x0200_0000;
/** The destination is in a set that dnsmasq fills. */
export const nameSetMark = 0x0400_0000;

export const routeTable = 8388;
export const rulePriority = 8388;
/**
 * The rtm_protocol of our rule and route (include/uapi/linux/rtnetlink.h leaves 4 to 255 to user space; 83 is in no
 * rt_protos file). It tells them from what an administrator made with the same numbers, also after a crash.
 */
export const routeProtocol = 83;

/** The doctor's interface, whose packets the rules take like those of the LAN. */
export const doctorInterface = 'ssr-doctor';

/** The rules. */
export function rulesTableOf(instance: string): string {
  return `${tablePrefix}${instance}`;
}

/** The sets that dnsmasq fills: not ours alone to write, so never owned. */
export function dnsTableOf(instance: string): string {
  return `${tablePrefix}dns_${instance}`;
}

/** The kill switch, which stays when the rules go. */
export function killTableOf(instance: string): string {
  return `${tablePrefix}kill_${instance}`;
}

/** A mark as nft and ip take it. */
export function hex(mark: number): string {
  return `0x${mark.toString(16).padStart(8, '0')}`;
}
