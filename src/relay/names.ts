/** Names that the main thread resolves for a worker: a question goes out, the answer comes in with the next messages. */
import { Endpoint } from '../linux/sockaddr.js';

/** Numeric addresses, best first; or why there are none. */
export type Resolution = { addresses: readonly string[] } | { failure: string };

export class Names {
  private readonly ask: (id: number, host: string) => void;
  private readonly pending = new Map<
    number,
    { port: number; done: (found: Endpoint[], failure: string) => void }
  >();
  private lastId = 0;

  constructor(ask: (id: number, host: string) => void) {
    this.ask = ask;
  }

  /** Calls `done` with the endpoints of `host`, none when it does not resolve. */
  resolve(host: string, port: number, done: (found: Endpoint[], failure: string) => void): void {
    const id = ++this.lastId;
    this.pending.set(id, { port, done });
    this.ask(id, host);
  }

  answer(id: number, resolution: Resolution): void {
    const question = this.pending.get(id);
    if (question === undefined) return;
    this.pending.delete(id);
    if ('failure' in resolution) return question.done([], resolution.failure);
    const found = resolution.addresses.map((address) => Endpoint.parse(address, question.port));
    question.done(
      found.filter((endpoint) => endpoint !== undefined),
      'no address',
    );
  }
}
