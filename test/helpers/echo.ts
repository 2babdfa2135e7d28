// A connection of the client to the origin's echo, all of whose bytes must come back as they went.
import assert from 'node:assert/strict';
import { originPorts, origins, type World } from './world.js';

type Connection = Awaited<ReturnType<World['client']['connect']>>;

const answerMs = 3000;

export class Echo {
  readonly #connection: Connection;
  #sent = '';

  private constructor(connection: Connection) {
    this.#connection = connection;
  }

  static async connect(world: World): Promise<Echo> {
    return new Echo(await world.client.connect({ host: origins.ipv4, port: originPorts.echo }));
  }

  /** Connects, echoes and closes. */
  static async once(world: World): Promise<void> {
    const echo = await Echo.connect(world);
    try {
      await echo.echo('once');
    } finally {
      await echo.close();
    }
  }

  async echo(text: string): Promise<void> {
    this.#sent += text;
    await this.#connection.write(text);
    const { data } = await this.#connection.wait({ bytes: this.#sent.length }, answerMs);
    assert.equal(data.toString(), this.#sent);
  }

  async close(): Promise<void> {
    await this.#connection.destroy();
  }
}
