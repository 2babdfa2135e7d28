/**
 * The UDP packet of the 2022 edition (SIP022, section 3.2; SIP023). What stands inside is the same in all methods:
 *
 *     request     | type 0 | time | padding size |                     padding | address | payload |
 *                 | 1      | 8    | 2            |                     p       | n       |         |
 *     response    | type 1 | time | client session ID | padding size | padding | address | payload |
 *                 | 1      | 8    | 8                 | 2            | p       | n       |         |
 *
 *     time            u64be, Unix seconds: at most 30 from the receiver's clock, either way
 *     padding size    u16be; 0..900 when we send
 *     address         of the target in a request, of the packet's source in a response (address.ts)
 *
 * AES methods: the separate header is one block of AES-ECB, and its plaintext gives key and nonce for the rest.
 *
 *     | ECB(session ID ‖ packet ID) | ECB(identity) | AEAD(body) | tag |
 *     | 8         8, u64be          | 16 × k        | n          | 16  |
 *
 *     separate header  encrypted with the client's first key (the server's own) in a request, the user's in a response
 *     identity         requests of clients with k identity keys iPSK(i), i = 0..k-1: encrypted with iPSK(i) itself is
 *                      BLAKE3(the key after it)[0..16] XOR the plaintext of the separate header
 *     AEAD             key: derived from the user's PSK and the session ID; nonce: bytes 4..15 of the separate header
 *
 * 2022-blake3-chacha20-poly1305: XChaCha20-Poly1305 with the PSK as it is and a random nonce. No identities.
 *
 *     | nonce | AEAD(session ID ‖ packet ID ‖ body) | tag |
 *     | 24    | 8            8           n          | 16  |
 *
 * A session ID is 8 random bytes, one for each direction of a session; packet IDs count from 0. Session and packet IDs are
 * 64 bits, so they are handled as two signed words of 32 bits, which V8 never boxes.
 */
import { addressSize } from './address.js';
import type { PacketSources } from './packet-sources.js';
import type { PacketVerdict } from './packet.js';

// From the specification.
export const requestType = 0;
export const responseType = 1;
export const sessionIdSize = 8;
export const headerSize = sessionIdSize + 8; // session ID, packet ID
export const requestHeadSize = 1 + 8 + 2; // type, time, padding size
export const responseHeadSize = 1 + 8 + sessionIdSize + 2; // type, time, client session ID, padding size
export const maxPadding = 900;
const maxSkewSeconds = 30;

/**
 * For how long a session is remembered after its last packet, so that this packet cannot pass again. A sender's clock may be
 * 30 s ahead, which lets a packet live for 60 s, and counts whole seconds; the rest is margin.
 */
export const rememberMs = 65_000;

/** Reads bodies of one direction. */
export class BodyReader {
  /** After 'accepted': where address ‖ payload begins. */
  from = 0;
  /** By how much the packet's clock is ahead of ours. */
  skewSeconds = 0;
  private readonly type: number;
  private readonly headSize: number;
  private readonly sources: PacketSources;
  /** The session that responses must be for. */
  private readonly idHigh: number;
  private readonly idLow: number;

  /** @param clientSessionId of the session whose responses are read; requests are read without it. */
  constructor(sources: PacketSources, clientSessionId?: Buffer) {
    this.type = clientSessionId === undefined ? requestType : responseType;
    this.headSize = clientSessionId === undefined ? requestHeadSize : responseHeadSize;
    this.sources = sources;
    this.idHigh = clientSessionId?.readInt32BE(0) ?? 0;
    this.idLow = clientSessionId?.readInt32BE(4) ?? 0;
  }

  /** Reads the authentic body at `bytes[at..to)`, which is as long as its fixed part at least. */
  read(bytes: Buffer, at: number, to: number): PacketVerdict {
    if (bytes[at] !== this.type) return 'malformed';
    // A time beyond 2^53 loses its last digits here, and is as far from our clock as before.
    const time = bytes.readUInt32BE(at + 1) * 2 ** 32 + bytes.readUInt32BE(at + 5);
    this.skewSeconds = time - this.sources.unixSeconds();
    if (Math.abs(this.skewSeconds) > maxSkewSeconds) return 'stale';
    if (this.type === responseType && !this.isForUs(bytes, at + 9)) return 'unknown-session';
    const head = at + this.headSize;
    const addressAt = head + bytes.readUInt16BE(head - 2);
    if (addressSize(bytes, addressAt, to) === -1) return 'malformed';
    this.from = addressAt;
    return 'accepted';
  }

  private isForUs(bytes: Buffer, at: number): boolean {
    return bytes.readInt32BE(at) === this.idHigh && bytes.readInt32BE(at + 4) === this.idLow;
  }
}
