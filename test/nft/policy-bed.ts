// A testbed for policies: two LANs with a client each, and an internet that tells on every port who asks.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { execa, execaSync } from 'execa';
import { Netns, createTestbed, type Testbed } from '../../src/demo/netns.js';
import type { Service } from '../../src/demo/service.js';
import { NftCommand } from './command.js';

const binaries = fileURLToPath(new URL('../../src/bin/', import.meta.url));
const greeter = fileURLToPath(new URL('greeter.js', import.meta.url));
const serverPort = 8388;
const timeoutMs = 20_000; // a start, on a machine that is busy with other tests

export const target4 = '93.184.216.34';
export const other4 = '8.8.8.8';
export const target6 = '2606:2800:220:1::34';
export const tcpPorts = [22, 53, 80, 443];
export const udpPorts = [9, 53, 443];

/** The second client's hardware address. */
export const mac2 = '02:00:5e:10:00:02';

/** Who a target sees: the proxy is in its own namespace, so that it is seen with the target's own address. */
export const proxied = (host: string) => `peer ${host}`;
export const direct = 'peer 192.168.50.2';
export const direct2 = 'peer 192.168.51.2';
export const refused = 'refused';

export class PolicyBed {
  readonly testbed: Testbed;
  readonly client: Netns;
  readonly client2: Netns;
  readonly router: Netns;
  readonly nft: NftCommand;
  readonly #directory = mkdtempSync(join(tmpdir(), 'ss-redir-policy-'));
  #redir: Service | undefined;

  static async create(prefix: string): Promise<PolicyBed> {
    const bed = new PolicyBed(await createTestbed(prefix));
    await bed.#addSecondLan();
    const { internet } = bed.testbed;
    const args = [greeter, tcpPorts.join(','), udpPorts.join(',')];
    await internet.start(process.execPath, args, { listen: tcpPorts, timeoutMs });
    const options = { listen: serverPort, timeoutMs };
    await internet.start(
      process.execPath,
      [join(binaries, 'ss-server.js'), '-c', bed.#config(), '-u'],
      options,
    );
    return bed;
  }

  private constructor(testbed: Testbed) {
    this.testbed = testbed;
    this.client = testbed.client;
    this.client2 = new Netns(`${testbed.name}-client2`);
    this.router = testbed.gateway;
    this.nft = new NftCommand(testbed.gateway);
  }

  async #addSecondLan(): Promise<void> {
    const { client2, router, testbed } = this;
    await execa('ip', ['netns', 'add', client2.name]);
    process.once('exit', () => this.#removeSecondClient()); // the testbed knows its own three only
    const veth = `link add c0 address ${mac2} type veth peer name l1 netns ${router.name}`;
    await execa('ip', ['-n', client2.name, ...veth.split(' ')]);
    for (const words of ['link set lo up', 'link set c0 up', 'addr add 192.168.51.2/24 dev c0'])
      await client2.ip(words);
    await client2.ip('route add default via 192.168.51.1 onlink dev c0');
    for (const words of ['link set l1 up', 'addr add 192.168.51.1/24 dev l1']) await router.ip(words);
    await testbed.internet.ip('route replace 192.168.51.0/24 via 45.9.9.1');
  }

  #config(): string {
    const file = join(this.#directory, 'config.json');
    const server = { server: '45.9.9.2', server_port: serverPort, local_port: 1080, local_address: '::' };
    const secret = { password: 'policy test', method: 'aes-256-gcm' };
    writeFileSync(file, JSON.stringify({ ...server, ...secret }), { mode: 0o600 });
    return file;
  }

  /** ss-redir for TCP by REDIRECT, or TPROXY with `-T`, and UDP. */
  async startRedir(...flags: string[]): Promise<void> {
    await this.stopRedir();
    const args = [join(binaries, 'ss-redir.js'), '-c', this.#config(), '-u', ...flags];
    this.#redir = await this.router.start(process.execPath, args, { listen: 1080, timeoutMs });
    await this.#redir.waitForOutput(/listening at/, timeoutMs);
  }

  async stopRedir(): Promise<void> {
    await this.#redir?.stop('SIGKILL');
    this.#redir = undefined;
  }

  /** What a TCP connection is greeted with, `refused`, or `silence`. */
  tcp(from: Netns, host: string, port = 80): Promise<string> {
    return this.#shell(from, `exec 3<>/dev/tcp/${host}/${port}; cat <&3`);
  }

  /** The same for a datagram. Not by `read`, which takes a byte at a time and so loses the rest of one. */
  udp(from: Netns, host: string, port = 9): Promise<string> {
    return this.#shell(
      from,
      `exec 3<>/dev/udp/${host}/${port}; echo question >&3; dd bs=512 count=1 status=none <&3`,
    );
  }

  async #shell(from: Netns, script: string): Promise<string> {
    const { stdout, stderr, exitCode } = await from.run('timeout', ['2', 'bash', '-c', script], {
      reject: false,
    });
    if (/refused/i.test(String(stderr))) return refused;
    return exitCode === 124 ? 'silence' : String(stdout).trim();
  }

  /** The LAN of the first client, by REDIRECT and without the server's name: what a test adds is all there is. */
  up(...args: string[]): Promise<string> {
    return this.nft.ok('up', '-s', '45.9.9.2', '-l', '1080', '-I', 'l0', ...args);
  }

  #removeSecondClient(): void {
    execaSync('ip', ['netns', 'delete', this.client2.name], { reject: false });
  }

  async destroy(): Promise<void> {
    this.#removeSecondClient();
    await this.testbed.destroy();
    this.nft.remove();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
