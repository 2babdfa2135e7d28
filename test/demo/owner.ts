// A process that owns a testbed: makes one under the prefix it is given, starts a program inside, says so, and then waits
// or ends as told.
import { createTestbed } from '../../src/demo/netns.js';

const [prefix = '', end] = process.argv.slice(2);
const testbed = await createTestbed(prefix);
const service = await testbed.client.start('sleep', ['1000']);
console.log(JSON.stringify({ name: testbed.name, inside: service.pid }));
if (end === 'throw') throw new Error('the uncaught error of this test');
if (end === 'exit') process.exit(0);
setInterval(() => undefined, 60_000);
