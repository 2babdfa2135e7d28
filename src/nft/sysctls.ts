import { isBridge, readSysctl } from './conflicts.js';

/** Settings of other programs that break TPROXY. conf.all and the interface's own value: the larger one holds. */
export function sysctlProblems(interfaces: readonly string[]): string[] {
  const problems: string[] = [];
  for (const name of ['all', ...interfaces]) {
    const key = `net.ipv4.conf.${name}.src_valid_mark`;
    if (readSysctl(`net/ipv4/conf/all/src_valid_mark`) === '1' && name !== 'all') continue;
    if (readInterfaceSysctl(name, 'src_valid_mark') !== '1') continue;
    problems.push(`${key}=1: the kernel drops marked IPv4 packets as martians (sysctl -w ${key}=0)`);
  }
  if (!interfaces.some(isBridge)) return problems;
  for (const key of ['net.bridge.bridge-nf-call-iptables', 'net.bridge.bridge-nf-call-ip6tables']) {
    if (readSysctl(key) !== '1') continue;
    problems.push(`${key}=1 and the LAN is a bridge: what TPROXY decides is lost (sysctl -w ${key}=0)`);
  }
  return problems;
}

function readInterfaceSysctl(name: string, key: string): string | undefined {
  return readSysctl(`net/ipv4/conf/${name}/${key}`);
}
