/** The npm packages that the program runs with, where npm has put them; what only its development needs is not among them. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { SetupError } from './error.js';

interface Package {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

/** Folders by their place below the program: `node_modules/koffi`. */
export function productionPackages(root: string): Map<string, string> {
  const found = new Map<string, string>();
  const left = [root];
  for (let folder = left.pop(); folder !== undefined; folder = left.pop()) {
    const { dependencies = {}, optionalDependencies = {} } = readPackage(folder);
    for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
      const place = findPackage(name, folder);
      if (place === undefined) {
        // koffi's binary for another processor, say.
        if (name in optionalDependencies) continue;
        throw new SetupError(`the npm package ${name} is not there: run "npm ci" in ${root}`);
      }
      const key = placeBelow(root, place);
      const twin = found.get(key);
      if (twin === place) continue;
      if (twin !== undefined) throw new SetupError(`two versions of ${name}: ${twin} and ${place}`);
      found.set(key, place);
      left.push(place);
    }
  }
  return found;
}

/** Its place beside the program; npm puts packages there, or for all users in a folder above. */
function placeBelow(root: string, place: string): string {
  let folder = root;
  while (!place.startsWith(join(folder, 'node_modules/'))) folder = dirname(folder);
  return relative(folder, place);
}

function readPackage(folder: string): Package {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Package;
}

/** As Node looks for it: in each node_modules from here upwards. */
function findPackage(name: string, from: string): string | undefined {
  for (let folder = from; ; folder = dirname(folder)) {
    const candidate = join(folder, 'node_modules', name);
    if (existsSync(join(candidate, 'package.json'))) return candidate;
    if (folder === dirname(folder)) return undefined;
  }
}
