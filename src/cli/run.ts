/**
 * What the commands share, in the order of events: configuration → listeners → privileges → workers → servers' names →
 * signals. With `-f` all of it happens in a second process, for whose success the first one waits.
 */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Command, Config } from '../config/config.js';
import { gatewayInput } from '../config/gateway.js';
import {
  applyDescriptorLimit,
  type Budget,
  descriptorsInForce,
  shareDescriptors,
} from '../control/descriptors.js';
import { openListeners } from '../control/listeners.js';
import { markInForce } from '../control/mark.js';
import { PidFile } from '../control/pid-file.js';
import { planWorkers } from '../control/plan.js';
import { Presence } from '../control/presence.js';
import { checkPrivileges, dropPrivileges } from '../control/privileges.js';
import { createDns, Reloader } from '../control/reload.js';
import { report } from '../control/report.js';
import { Supervisor } from '../control/supervisor.js';
import { ConfigError, ConflictError, SyscallError, ToolError, UsageError } from '../errors.js';
import { type Logger, openLog } from '../log.js';
import { takePassedSockets } from '../systemd/listen-fds.js';
import { Notifier } from '../systemd/notify.js';
import { takeWatchdogPeriod } from '../systemd/watchdog.js';
import { Launcher, openBackgroundLog, startInBackground, takeBackgroundMark } from './background.js';
import { readGatewaySettings } from '../nft/settings.js';
import { helpText } from './help.js';
import { loadConfig } from './load-config.js';
import type { OwnRules } from './own-rules.js';
import { parseCommandLine } from './parse.js';
import { Turns, watchTerminal } from './hang-up.js';

/** Refused at the start: usage, configuration, privilege, port. */
const exitRefused = 1;
/** A fault of ours: sysexits.h, EX_SOFTWARE. */
const exitInternal = 70;

/** Runs the command until a signal ends it. */
export async function run(command: Command): Promise<void> {
  let log = openLog({ ident: command });
  process.on('uncaughtException', (error) => endBroken(log, error));
  let rules: OwnRules | undefined;
  try {
    const { help, version, check, pidFile, doctor, json } = parseCommandLine(command, process.argv.slice(2));
    if (help) return print(helpText(command, packageVersion()));
    if (version) return print(`${command} ${packageVersion()}\n`);
    if (doctor) return await examine(command, json);
    const launcher = takeBackgroundMark(process.env) ? new Launcher() : undefined;
    if (pidFile !== undefined && launcher === undefined && !check) return await leaveBehind(log);
    if (launcher !== undefined) log = openBackgroundLog(command, launcher);
    const config = loadConfig(command, process.argv.slice(2));
    if (launcher !== undefined) log.verbose = config.verbose;
    else if (!check) log = openLog({ ident: command, verbose: config.verbose, useSyslog: config.useSyslog });
    for (const warning of config.warnings) log.warn(warning);
    // The section is ss-nft's, whose own options may still complete it; a check of the file looks at all of it.
    if (check && config.gateway !== undefined) readGatewaySettings(gatewayInput(config), config.instance);
    if (check)
      return log.info(`the configuration is valid${config.configFile ? `: ${config.configFile}` : ''}`);
    if (pidFile !== undefined) holdPidFile(resolve(pidFile));
    await serve(config, log, (brought) => (rules = brought));
    launcher?.ready();
  } catch (error) {
    if (!isRefusal(error)) return endBroken(log, error);
    for (const line of error.message.split('\n')) log.error(line);
    if (rules?.areNew) await rules.takeAway();
    log.flush();
    process.exit(exitRefused);
  }
}

async function examine(command: Command, asJson: boolean): Promise<never> {
  const config = loadConfig(command, process.argv.slice(2));
  const { runDoctor } = await import('./doctor-run.js');
  process.exit(await runDoctor(config, asJson));
}

/** The process that `-f` starts goes on; this one ends when that one serves, or with its refusal. */
async function leaveBehind(log: Logger): Promise<void> {
  if (process.env['LISTEN_PID'] === String(process.pid))
    throw new UsageError(
      'option -f: a service manager that passes sockets keeps the process in the foreground',
    );
  const status = await startInBackground(log);
  log.flush();
  process.exit(status);
}

function holdPidFile(path: string): void {
  const file = new PidFile(path);
  process.on('exit', () => file.remove()); // refused, stopped or broken
}

async function serve(
  config: Config,
  log: Logger,
  onRules: (rules: OwnRules | undefined) => void,
): Promise<void> {
  const warn = (text: string): void => log.warn(text);
  // Absolute: -f changes the directory.
  const file = config.configFile === undefined ? undefined : resolve(config.configFile);
  const isHungUp = watchTerminal();
  const reloads = new Turns();
  let serving: { stop(signal: string): void; reload(): Promise<void> } | undefined;
  // Early: who asks while we start is heard when we serve.
  process.on('SIGHUP', () => {
    if (!isHungUp()) return reloads.run(async () => serving?.reload());
    if (serving === undefined) process.exit(exitRefused);
    serving.stop('SIGHUP');
  });
  const notifier = Notifier.take(process.env, warn);
  const watchdogMs = takeWatchdogPeriod(process.env, process.pid);
  const passed = takePassedSockets(process.env, process.pid);
  if (config.nofile !== undefined) applyDescriptorLimit(config.nofile, warn);
  const dns = createDns(config);
  const mark = markInForce(config, (text) => log.info(text));
  const listeners = await openListeners(config, mark, dns, warn, { passed, notifier });
  const budget = shareDescriptors(config, warn);
  const rules = config.makesRules ? await bringRules(config, log) : undefined;
  onRules(rules);
  dropPrivileges(config, mark, warn);
  checkPrivileges(config, mark);
  const supervisor = new Supervisor(dns, {
    onLog: (level, text) => log.write(level, text),
    onFatal: (error) => endBroken(log, error),
  });
  const plans = planWorkers(config, mark, listeners, budget);
  const presence = new Presence(notifier, supervisor, config, log);
  const onServerFailure = (text: string): void => log.limited('server-name', text);
  const reloader = new Reloader(config, plans, { supervisor, mark, listeners, budget, onServerFailure });
  const stop = (signal: string): void => {
    presence.stopping();
    reloads.end();
    void end(supervisor, reloader.plans, rules, log, signal);
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stop(signal));
  serving = {
    stop,
    reload: () => presence.reloading(() => reload(config.command, file, reloader, rules, log)),
  };
  process.on('SIGUSR1', () => report(reloader.plans, supervisor.load(), log));
  await supervisor.start(plans);
  if (config.command === 'ss-redir') await reloader.follow(dns);
  announce(config, budget, log);
  presence.ready(watchdogMs);
  reloads.begin();
  // A port of the workers keeps the process alive until a signal comes.
}

/** Loaded only where it is wanted: most run with rules that are there. */
async function bringRules(config: Config, log: Logger): Promise<OwnRules> {
  const { OwnRules } = await import('./own-rules.js');
  return OwnRules.bring(config, log);
}

/** What libev says at its start, in its words where it has them. */
function announce(config: Config, budget: Budget, log: Logger): void {
  if (config.configFile !== undefined) log.info(`configuration: ${config.configFile}`);
  const methods = new Set(config.servers.map(({ method }) => method));
  log.info(`initializing ciphers... ${[...methods].join(', ')}`);
  if (config.command === 'ss-redir') {
    if (config.tcp) log.info(config.tcpTproxy ? 'tcp tproxy mode enabled' : 'tcp redirect mode enabled');
    for (const { host, port } of config.servers) log.info(`server ${bracketed(host)}:${port}`);
    log.info(`listening at ${bracketed(config.localAddress)}:${config.localPort}`);
    for (const { port, tos } of config.dscp) {
      log.info(`listening at ${bracketed(config.localAddress)}:${port} (TOS 0x${tos.toString(16)})`);
    }
  } else {
    for (const { host, port } of config.servers) log.info(`listening at ${bracketed(host)}:${port}`);
  }
  if (config.udp) log.info('UDP relay enabled');
  if (config.udp && config.workers > 1) log.info(`one of the ${config.workers} workers relays all UDP`);
  if (!config.tcp) log.info('TCP relay disabled');
  if (config.reusePort) log.info('tcp port reuse enabled');
  if (config.fastOpen) log.info('using tcp fast open');
  if (config.noDelay) log.info('enable TCP no-delay');
  log.debug(
    `${config.workers} workers, at most ${budget.maxConnections} connections, ${budget.maxSessions} UDP associations, ${descriptorsInForce()} descriptors`,
  );
}

function bracketed(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}

/** Reads the configuration again. What is wrong with it changes nothing. */
async function reload(
  command: Command,
  configFile: string | undefined,
  reloader: Reloader,
  rules: OwnRules | undefined,
  log: Logger,
): Promise<string | undefined> {
  try {
    const config = loadConfig(command, process.argv.slice(2), process.env, configFile);
    for (const warning of config.warnings) log.warn(warning);
    await reloader.reload(
      config,
      (text) => log.warn(text),
      async (present) => rules?.replace(present),
    );
    log.verbose = config.verbose;
    log.info(`reloaded${configFile === undefined ? '' : `: ${configFile}`}`);
    return undefined;
  } catch (error) {
    if (!isRefusal(error)) throw error;
    const [first = '', ...more] = error.message.split('\n');
    for (const line of [first, ...more]) log.error(`not reloaded, nothing is changed: ${line}`);
    return `not reloaded: ${first}`;
  }
}

async function end(
  supervisor: Supervisor,
  plans: Parameters<typeof report>[0],
  rules: OwnRules | undefined,
  log: Logger,
  signal: string,
): Promise<void> {
  log.info(`${signal}: stopping`);
  await rules?.takeAway(); // first, so that nobody is sent to a listener that is gone
  await supervisor.stop();
  report(plans, supervisor.load(), log);
  log.flush();
  process.exit(0);
}

function endBroken(log: Logger, error: unknown): never {
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  log.error(`internal error: ${text.replaceAll(/\n\s*/g, ' | ')}`);
  log.flush();
  process.exit(exitInternal);
}

function isRefusal(error: unknown): error is Error {
  const refusals = [UsageError, ConfigError, SyscallError, ToolError, ConflictError];
  return refusals.some((kind) => error instanceof kind);
}

function print(text: string): void {
  process.stdout.on('error', () => {}); // EPIPE: whoever asked has read enough, as in `ss-redir --help | head -1`
  process.stdout.write(text);
}

function packageVersion(): string {
  const file = new URL('../../../package.json', import.meta.url);
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}
