/** The name of an instance is part of file names and of the names of tables. */

/** With `dns_` or `kill_` before it, the table of one instance would be the other table of another. */
export function isInstanceName(name: string): boolean {
  return /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/.test(name) && !/^(?:dns|kill)_/.test(name);
}

export const expectedInstance =
  'at most 64 letters, digits and _.-, a letter or digit first, not beginning with dns_ or kill_';
