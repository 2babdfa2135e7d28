/** Between the doctor's client and this host. Link-local addresses (RFC 3927), which no LAN has given to anybody. */
export const link = {
  gateway: '169.254.83.1',
  client: '169.254.83.2',
  clientInterface: 'ssr-client',
} as const;

/** `answered`, or how it ended. */
export interface ProbeResult {
  readonly tcp: string;
  readonly udp: string;
}
