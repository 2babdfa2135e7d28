// A name server with answers of the test's own.
import { createSocket, type Socket } from 'node:dgram';

const A = 1; // RFC 1035 section 3.2.2
const AAAA = 28; // RFC 3596
const noError = 0;
const noName = 3; // RFC 1035 section 4.1.1

export interface Answer {
  code?: number;
  a?: string[];
  aaaa?: string[];
  ttl?: number;
  silent?: boolean;
}

/** It keeps what it was asked. */
export class NameServer {
  readonly answers = new Map<string, Answer>();
  readonly asked: string[] = [];
  private readonly socket: Socket;

  constructor(type: 'udp4' | 'udp6' = 'udp4') {
    this.socket = createSocket(type);
  }

  /** @returns its address, as a `nameserver` key has it */
  async start(port = 0, host = '127.0.0.1'): Promise<string> {
    this.socket.on('message', (query, from) => {
      const reply = this.reply(query);
      if (reply !== undefined) this.socket.send(reply, from.port, from.address);
    });
    await new Promise<void>((resolve) => this.socket.bind(port, host, resolve));
    return `${host}:${this.socket.address().port}`;
  }

  stop(): void {
    this.socket.close();
  }

  private reply(query: Buffer): Buffer | undefined {
    const labels: string[] = [];
    let at = 12;
    for (; query[at] !== 0; at += 1 + query[at]!)
      labels.push(query.toString('latin1', at + 1, at + 1 + query[at]!));
    const type = query.readUInt16BE(at + 1);
    const name = labels.join('.').toLowerCase();
    this.asked.push(`${name} ${type === A ? 'A' : type === AAAA ? 'AAAA' : type}`);
    const {
      a = [],
      aaaa = [],
      ttl = 300,
      silent,
      code = noError,
    } = this.answers.get(name) ?? { code: noName };
    if (silent) return undefined;
    const data = type === A ? a.map(ipv4Bytes) : type === AAAA ? aaaa.map(ipv6Bytes) : [];
    const head = Buffer.from([query[0]!, query[1]!, 0x81, 0x80 | code, 0, 1, 0, data.length, 0, 0, 0, 0]);
    const records = data.map((bytes) => {
      const record = Buffer.alloc(12);
      record.writeUInt16BE(0xc00c, 0); // the name of the question
      record.writeUInt16BE(type, 2);
      record.writeUInt16BE(1, 4);
      record.writeUInt32BE(ttl, 6);
      record.writeUInt16BE(bytes.length, 10);
      return Buffer.concat([record, bytes]);
    });
    return Buffer.concat([head, query.subarray(12, at + 5), ...records]);
  }
}

function ipv4Bytes(text: string): Buffer {
  return Buffer.from(text.split('.').map(Number));
}

/** With one `::`, groups of four digits or fewer on both sides. */
function ipv6Bytes(text: string): Buffer {
  const [head, tail] = text.split('::').map((part) => part.split(':').filter(Boolean)) as [
    string[],
    string[],
  ];
  const groups = [...head, ...Array.from({ length: 8 - head.length - tail.length }, () => '0'), ...tail];
  return Buffer.from(groups.map((group) => group.padStart(4, '0')).join(''), 'hex');
}
