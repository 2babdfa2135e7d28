import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connectUdp, listenUdp } from '../../src/linux/datagram.js';
import { close, sendto } from '../../src/linux/libc.js';
import { Block } from '../../src/linux/memory.js';
import { Endpoint } from '../../src/linux/sockaddr.js';
import { localEndpoint } from '../../src/linux/socket.js';
import { setReceiveBuffer } from '../../src/linux/sockopt.js';
import { lostAtPorts, lostInSockets } from './udp-losses.js';

const datagrams = 100;

for (const host of ['127.0.0.1', '::1']) {
  test(`what a full socket on ${host} throws away is counted, at its port and in its namespace`, () => {
    const receiver = listenUdp(Endpoint.parse(host, 0)!);
    setReceiveBuffer(receiver, 1); // the kernel's least has room for one or two
    const endpoint = localEndpoint(receiver)!;
    const ports = new Set([endpoint.port]);
    const inNamespace = lostInSockets(process.pid);
    assert.equal(lostAtPorts(process.pid, ports), 0);

    const sender = connectUdp(endpoint, { mark: 0, tos: 0 });
    const payload = Block.allocate(512);
    for (let i = 0; i < datagrams; i++) sendto(sender, payload.address, payload.size, 0, 0, 0);
    const lost = lostAtPorts(process.pid, ports);
    assert.ok(lost > datagrams / 2 && lost < datagrams, `${lost} of ${datagrams}`);
    assert.ok(lostInSockets(process.pid) - inNamespace >= lost); // others may lose, too
    assert.equal(lostAtPorts(process.pid, new Set([endpoint.port ^ 1])), 0);
    for (const fd of [receiver, sender]) close(fd);
  });
}
