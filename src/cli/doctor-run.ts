/** `ss-redir --doctor`: a line for each thing, as soon as it has been looked at; with --json all of it at the end. */
import type { Config } from '../config/config.js';
import { examine } from '../doctor/doctor.js';
import type { Finding } from '../doctor/finding.js';
import { markInForce } from '../control/mark.js';
import { oneLine } from '../text.js';

/** @returns the exit status: 1 where something is wrong. */
export async function runDoctor(config: Config, asJson: boolean): Promise<number> {
  const mark = markInForce(config, () => {});
  const findings = await examine(config, mark, (finding) => {
    if (!asJson) process.stdout.write(format(finding));
  });
  const wrong = findings.filter(({ isOk }) => isOk === false).length;
  if (asJson) process.stdout.write(`${JSON.stringify({ isOk: wrong === 0, findings }, undefined, 2)}\n`);
  else
    process.stdout.write(
      wrong === 0 ? 'nothing is wrong\n' : `${wrong} of ${findings.length} are not as they should be\n`,
    );
  return wrong === 0 ? 0 : 1;
}

function format({ what, found, wanted, isOk, remedy }: Finding): string {
  const sign = isOk === undefined ? '?' : isOk ? 'ok' : '!';
  const lines = [`${sign.padEnd(2)} ${what}: ${oneLine(found)}`];
  if (isOk !== true) lines.push(`     wanted: ${wanted}`);
  if (remedy !== undefined) lines.push(`     try: ${remedy}`);
  return `${lines.join('\n')}\n`;
}
