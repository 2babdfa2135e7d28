// What `npm test` runs: gets the tools that are missing, then runs the compiled tests with node's own runner.
//
//   npm test                       everything
//   npm test -- netns/relay        the files whose path below test/ begins so (a folder, a file, or a part of its name)
//
// The exit status is the runner's and its counts come last. With CI=true a skipped test fails the run: there every test
// must have had what it needs. Only peers are forgiven that no package of the system brings and whose tool chain or
// registry is not there.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { installMissing, testTools } from './helpers/packages.js';
import { buildMissingPeers, isForgivable } from './helpers/peer-builds.js';

const testTimeoutMs = 300_000; // of one file, which is a test to node's runner, and of each test in it
const concurrency = 2; // files at once: most end-to-end tests wait, a few fill both cores of a small machine

const built = dirname(fileURLToPath(import.meta.url));
const sources = join(built, '..', '..', 'test');

process.exit(main(process.argv.slice(2)));

function main(selections: string[]): number {
  const files = selectFiles(selections);
  if (files.length === 0) {
    console.error(`npm test: no test file matches ${selections.join(' ') || built}`);
    return 1;
  }
  const missing = installMissing(testTools, say);
  if (missing.length > 0) say(`without ${missing.join(', ')} some tests are skipped`);
  // Those who run one file of another folder need not wait for compilers.
  if (files.some((file) => file.includes('/interop/'))) buildMissingPeers(say);

  const scratch = mkdtempSync(join(tmpdir(), 'ss-redir-test-'));
  try {
    return runFiles(files, join(scratch, 'result.tap'));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function say(line: string): void {
  console.log(`npm test: ${line}`);
}

// A compiled test whose source has been removed or renamed stays in dist/ and would run for ever: the sources decide.
function selectFiles(selections: string[]): string[] {
  const root = existsSync(sources) ? sources : built;
  const names = readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.test\.(ts|js)$/.test(name))
    .map((name) => name.replace(/\.(ts|js)$/, ''))
    .toSorted();
  const wanted = selections.map((selection) =>
    selection.replace(/^test\//, '').replace(/(\.test)?\.(ts|js)$/, ''),
  );
  return names
    .filter((name) => wanted.length === 0 || wanted.some((start) => name.startsWith(start)))
    .map((name) => join(built, `${name}.js`));
}

// The spec reporter prints the details of failures after its counts; the tap report gives the counts to end with.
function runFiles(files: string[], tapFile: string): number {
  const options = [
    '--test',
    '--test-reporter=spec',
    '--test-reporter-destination=stdout',
    '--test-reporter=tap',
    `--test-reporter-destination=${tapFile}`,
    `--test-concurrency=${concurrency}`,
    `--test-timeout=${testTimeoutMs}`,
  ];
  const result = spawnSync(process.execPath, [...options, ...files], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, SS_REDIR_CHECKED: '1' },
  });
  if (result.error) {
    console.error(`npm test: ${process.execPath} --test: ${result.error.message}`);
    return 1;
  }

  const tap = existsSync(tapFile) ? readFileSync(tapFile, 'utf8') : '';
  const status = result.status ?? 1;
  const skipped = tap.split('\n').filter((line) => /^\s*(not )?ok \d+ .*# SKIP/.test(line));
  const unforgiven = skipped.filter((line) => !isForgivable(line));
  const skipsForbidden = process.env['CI'] === 'true' && unforgiven.length > 0;
  if (skipsForbidden) {
    console.log(`npm test: CI=true and ${unforgiven.length} skipped:`);
    for (const line of unforgiven) console.log(`  ${line.trim()}`);
  }
  if (status !== 0 || skipsForbidden) printCounts(tap);
  return skipsForbidden ? status || 1 : status;
}

function printCounts(tap: string): void {
  const counts = tap.match(/^# (tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) .*$/gm) ?? [];
  for (const line of counts) console.log(line);
}
