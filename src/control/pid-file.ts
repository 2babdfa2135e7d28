/**
 * The file of `-f`: the number of the process that serves, and a lock which that process holds as long as it lives. So a file
 * left behind by `kill -9` is told from one in use without looking whose number it is by now.
 */
import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { getSystemErrorMap } from 'node:util';
import { UsageError } from '../errors.js';
import { lockFile } from '../linux/process.js';
import { oneLine } from '../text.js';

const { O_RDWR, O_CREAT, O_NOFOLLOW } = constants;
const mode = 0o644;

export class PidFile {
  private readonly path: string;
  private readonly fd: number;

  /** @throws {UsageError} when the file cannot be written, or a running process holds it. */
  constructor(path: string) {
    this.path = path;
    this.fd = openLocked(path);
    ftruncateSync(this.fd, 0);
    writeSync(this.fd, `${process.pid}\n`, 0);
  }

  /** A user without rights in the directory cannot remove it: then it is left empty, which names nobody. */
  remove(): void {
    try {
      unlinkSync(this.path);
    } catch {
      ftruncateSync(this.fd, 0);
    }
    closeSync(this.fd);
  }
}

function openLocked(path: string): number {
  for (;;) {
    const fd = open(path);
    if (!lockFile(fd)) throw new UsageError(`${oneLine(path)} (-f): already running${holderOf(fd)}`);
    if (isStillAt(fd, path)) return fd;
    closeSync(fd); // its owner has ended and removed it in between
  }
}

function open(path: string): number {
  try {
    return openSync(path, O_RDWR | O_CREAT | O_NOFOLLOW, mode);
  } catch (error) {
    const { errno = 0 } = error as NodeJS.ErrnoException;
    const reason = getSystemErrorMap().get(errno)?.[1] ?? (error as Error).message;
    throw new UsageError(`${oneLine(path)} (-f): cannot be written: ${reason}`);
  }
}

function isStillAt(fd: number, path: string): boolean {
  const own = fstatSync(fd);
  const there = statSync(path, { throwIfNoEntry: false });
  return there !== undefined && there.ino === own.ino && there.dev === own.dev;
}

function holderOf(fd: number): string {
  const bytes = Buffer.alloc(16);
  const text = bytes.toString('latin1', 0, readSync(fd, bytes, 0, bytes.length, 0)).trim();
  return /^\d+$/.test(text) ? ` as process ${text}` : '';
}
