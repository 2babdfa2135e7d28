/** The command line cannot be used as given: unknown option, missing argument, missing privilege. */
export class UsageError extends Error {
  override name = 'UsageError';
}

/** A configuration file or value is refused. The message names file and key, expected and got, never a secret. */
export class ConfigError extends Error {
  override name = 'ConfigError';
}

/** A program that was run is missing, or refused; the message says which and why. */
export class ToolError extends Error {
  override name = 'ToolError';
}

/** Something of others is in the way. */
export class ConflictError extends Error {
  override name = 'ConflictError';
  readonly conflicts: readonly string[];

  constructor(conflicts: readonly string[]) {
    super(conflicts.join('\n'));
    this.conflicts = conflicts;
  }
}

export type ProtocolErrorCode =
  | 'FORGED' // an AEAD tag does not match: wrong key, other cipher, tampering or garbage
  | 'BAD_LENGTH' // a record length outside 1..maxPayload
  | 'BAD_ADDRESS' // an ATYP, name length or port that no sender may write
  | 'REPEATED_SALT' // the stream's salt was seen before
  | 'TRUNCATED' // end of stream inside a salt or a record
  // 2022 edition
  | 'SHORT_READ' // the first read does not hold salt and header
  | 'UNKNOWN_USER' // an identity header that names nobody
  | 'BAD_HEADER' // authentic, but with a type, padding or request salt that may not be
  | 'BAD_CLOCK' // a timestamp more than 30 s from our clock
  | 'SALTS_FULL'; // no room to remember one more salt

/** The peer sent what the wire format forbids. Ends its connection or datagram, never the program. */
export class ProtocolError extends Error {
  override name = 'ProtocolError';
  readonly code: ProtocolErrorCode;

  constructor(code: ProtocolErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** A system call failed. `syscall` names the call with its decisive argument, as in `setsockopt(SOL_IP, IP_TRANSPARENT)`. */
export class SyscallError extends Error {
  override name = 'SyscallError';
  readonly syscall: string;
  readonly errno: number;
  /** The errno's name, `EPERM`. */
  readonly code: string;

  constructor(syscall: string, errno: number, code: string) {
    super(`${syscall}: ${code}`);
    this.syscall = syscall;
    this.errno = errno;
    this.code = code;
  }
}
