import { closest, distance } from 'fastest-levenshtein';

/** The known name that was probably meant: one that begins with what was typed, or is a few letters away. */
export function nearestName(typed: string, known: readonly string[]): string | undefined {
  if (typed.length === 0 || known.length === 0) return undefined;
  const longer = known.filter((name) => name.startsWith(typed));
  if (longer.length === 1) return longer[0];
  const candidate = closest(typed, known as string[]);
  const fewLetters = Math.max(1, Math.floor(Math.min(typed.length, candidate.length) / 3));
  return distance(typed, candidate) <= fewLetters ? candidate : undefined;
}
