/** The known answers in test/vectors/vectors.json; see the README beside them. */
import { readFileSync } from 'node:fs';

interface Segment {
  name: string;
  nonce_hex?: string;
  plaintext_hex?: string;
  ciphertext_hex?: string;
}

export interface StreamVector {
  salt_hex: string;
  subkey_hex: string;
  address_hex?: string;
  plaintext_chunks_hex: string[];
  segments: Segment[];
  stream_hex: string;
}

export interface TcpVector {
  id: string;
  method: string;
  password: string;
  key_hex: string;
  request: StreamVector;
  response?: StreamVector;
}

export interface BigVector {
  id: string;
  method: string;
  password: string;
  salt_hex: string;
  chunk_count: number;
  plaintext_sha256: string;
  stream_length: number;
  stream_sha256: string;
  last_segments: Segment[];
}

export interface Stream2022Vector {
  salt_hex: string;
  timestamp: number;
  plaintext_chunks_hex: string[];
  stream_hex: string;
}

export interface Request2022Vector extends Stream2022Vector {
  address_hex: string;
  padding_hex: string;
  initial_payload_hex: string;
}

export interface Tcp2022Vector {
  id: string;
  method: string;
  psk_b64: string;
  ipsks_b64: string[];
  now: number;
  request: Request2022Vector;
  response: Stream2022Vector & { request_salt_hex: string };
  after_first_relay?: { stream_hex: string };
}

export interface Big2022Vector {
  id: string;
  method: string;
  psk_b64: string;
  now: number;
  salt_hex: string;
  timestamp: number;
  padding_hex: string;
  stream_length: number;
  stream_sha256: string;
}

export interface Tcp2022Check {
  id: string;
  role: 'server' | 'client';
  method: string;
  psk_b64: string;
  users_b64?: string[];
  request_salt_hex?: string;
  now: number;
  expect: 'accept' | 'reject';
  reason: string;
  stream_hex: string;
}

interface Vectors {
  kdf: {
    evp_bytes_to_key_md5: { password: string; key_length: number; key_hex: string }[];
    hkdf_sha1_ss_subkey: { key_hex: string; salt_hex: string; subkey_hex: string }[];
    blake3_derive_key_session: { psk_hex: string; salt_hex: string; use: string; subkey_hex: string }[];
    blake3_derive_key_identity: { ipsk_hex: string; salt_hex: string; subkey_hex: string }[];
    blake3_psk_hash16: { psk_hex: string; hash16_hex: string }[];
    hchacha20: Record<string, string>[];
  };
  nonce: { nonce_length: number; operations_done: number; next_nonce_hex: string }[];
  socks_address: {
    valid: { host: string; port: number; encoded_hex: string }[];
    invalid: { encoded_hex: string; reason: string }[];
  };
  aead_tcp: TcpVector[];
  aead_tcp_big: BigVector[];
  ss2022_tcp: Tcp2022Vector[];
  ss2022_tcp_big: Big2022Vector[];
  ss2022_tcp_checks: Tcp2022Check[];
}

// From dist/test/helpers; the file itself is not copied to dist.
const file = new URL('../../../test/vectors/vectors.json', import.meta.url);

export const vectors = JSON.parse(readFileSync(file, 'utf8')) as Vectors;

export function fromHex(hex: string): Uint8Array {
  return Uint8Array.from(Buffer.from(hex, 'hex'));
}

export function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}
