/** The host or the arguments stand in the way; each line of the message names what, and what to do. */
export class SetupError extends Error {
  override name = 'SetupError';
}
