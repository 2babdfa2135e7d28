// The rule files of nft/, loaded in the testbed's gateway.
import { addresses, type Netns } from '../../src/demo/netns.js';
import {
  applyRules,
  removeRules,
  rulesTable,
  type RulesMode,
  type RulesValues,
} from '../../src/nft/apply.js';

export type Mode = RulesMode;

const lan = 'l0'; // the gateway's interface to the client

/** Gives the client's connections to ss-redir on `port`. Whatever was loaded before is replaced. */
export function loadRules(
  gateway: Netns,
  mode: Mode,
  port: number,
  values: Partial<RulesValues> = {},
): Promise<void> {
  const bypass = [addresses.internet.ipv4, addresses.internet.ipv6];
  return applyRules(mode, { port, lan: [lan], bypass, ...values }, (command, args) =>
    gateway.run(command, args),
  );
}

export function unloadRules(gateway: Netns): Promise<void> {
  return removeRules((command, args) => gateway.run(command, args));
}

/**
 * Lets direct connections to ss-redir's port through. The rule files refuse them before ss-redir sees them; other people's
 * rules do not, so ss-redir must know them by itself.
 */
export async function unguardListener(gateway: Netns): Promise<void> {
  await gateway.run('nft', [`flush chain ${rulesTable} input`]);
}
