/**
 * A connection and a datagram of a client that is none, through the real rules: from a network namespace that lives as long as a
 * process of ours, by the interface that the rules take for one of the LAN.
 */
import { fileURLToPath } from 'node:url';
import { ToolError } from '../errors.js';
import { doctorInterface, rulesTableOf } from '../nft/names.js';
import { listTable } from '../nft/loaded.js';
import type { GatewaySettings } from '../nft/settings.js';
import { runTool, startTool } from '../nft/tools.js';
import { fine, unknown, wrong, type Finding } from './finding.js';
import { link, type ProbeResult } from './probe-link.js';
import { target } from './question.js';

const child = fileURLToPath(new URL('probe-child.js', import.meta.url));
const patienceMs = 20_000;

export async function sendThroughRules(settings: GatewaySettings): Promise<Finding[]> {
  const before = await counted(settings);
  let result: ProbeResult;
  try {
    result = await askFromScratch();
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    return [
      unknown('a client through the rules', error.message, 'a network namespace and a link to it (root)'),
    ];
  }
  const after = await counted(settings);
  return [
    ...(settings.tcp === 'none' ? [] : [judge('a connection', result.tcp, after.tcp > before.tcp, settings)]),
    ...(settings.udp ? [judge('a datagram', result.udp, after.udp > before.udp, settings)] : []),
  ];
}

function judge(what: string, came: string, isProxied: boolean, settings: GatewaySettings): Finding {
  const name = `${what} of a client to ${target.text}`;
  const wanted = 'answered through ss-redir';
  const { dnsHijack, srcDefault, dstDefault, tcpPorts, udpPorts } = settings;
  const isElsewhere =
    dnsHijack.length > 0 ||
    srcDefault === 'bypass' ||
    dstDefault === 'bypass' ||
    tcpPorts.length + udpPorts.length > 0;
  if (came === 'answered' && isProxied) return fine(name, 'answered through ss-redir');
  if (!isProxied && isElsewhere)
    return unknown(name, `${came}; the settings do not give it to ss-redir`, wanted);
  if (!isProxied)
    return wrong(
      name,
      `${came}, and the rules did not give it to ss-redir`,
      wanted,
      'nft list ruleset: who drops or takes it before?',
    );
  return wrong(name, `given to ss-redir, ${came}`, wanted, "ss-redir's log; the servers above");
}

/** Connections and datagrams that the rules have given to ss-redir. */
async function counted({ instance }: GatewaySettings): Promise<{ tcp: number; udp: number }> {
  const objects = await listTable(rulesTableOf(instance));
  const packetsOf = (name: string) =>
    objects.find(({ counter }) => counter?.name === name)?.counter?.packets ?? 0;
  return { tcp: packetsOf('to_proxy'), udp: packetsOf('to_proxy_udp') };
}

/** @throws {ToolError} where no namespace or link can be made. */
async function askFromScratch(): Promise<ProbeResult> {
  let said = '';
  let onText: (() => void) | undefined;
  const tool = startTool('unshare', ['--net', process.execPath, child], {}, (text) => {
    said += text;
    onText?.();
  });
  const kill = () => tool.kill('SIGKILL');
  process.once('exit', kill);
  const says = (pattern: RegExp) =>
    new Promise<RegExpExecArray>((resolve, reject) => {
      const late = setTimeout(
        () => reject(new ToolError(`the client does not answer: ${said.trim()}`)),
        patienceMs,
      );
      const look = () => {
        const found = pattern.exec(said);
        if (found === null) return;
        clearTimeout(late);
        resolve(found);
      };
      onText = look;
      look();
      void tool.ended.then(() => {
        clearTimeout(late);
        reject(new ToolError(`the client ended: ${said.trim().split('\n').at(-1)}`));
      });
    });
  try {
    await says(/^ready$/m);
    await makeLink(tool.pid!);
    tool.write('linked\n');
    const [, json] = await says(/^RESULT (.*)$/m);
    return JSON.parse(json!) as ProbeResult;
  } finally {
    kill(); // and with it its namespace, and with that the link
    process.removeListener('exit', kill);
    await tool.ended;
  }
}

async function makeLink(pid: number): Promise<void> {
  // Of one that was killed, if it is still there; most often it has gone with its namespace.
  await runTool('ip', ['link', 'delete', doctorInterface]).catch(() => {});
  const peer = ['peer', 'name', link.clientInterface, 'netns', String(pid)];
  await runTool('ip', ['link', 'add', doctorInterface, 'type', 'veth', ...peer]);
  await runTool('ip', ['address', 'add', `${link.gateway}/30`, 'dev', doctorInterface]);
  await runTool('ip', ['link', 'set', doctorInterface, 'up']);
}
