/** One thing that the doctor has looked at. */
export interface Finding {
  readonly what: string;
  readonly found: string;
  readonly wanted: string;
  /** Undefined: it could not be known, which is no fault. */
  readonly isOk: boolean | undefined;
  /** The command that mends it, or what to do. */
  readonly remedy?: string;
}

export function fine(what: string, found: string, wanted = found): Finding {
  return { what, found, wanted, isOk: true };
}

export function wrong(what: string, found: string, wanted: string, remedy: string): Finding {
  return { what, found, wanted, isOk: false, remedy };
}

export function unknown(what: string, found: string, wanted: string): Finding {
  return { what, found, wanted, isOk: undefined };
}
