import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { createWorkerControl, type WorkerControl } from '../../src/engine/worker.js';
import { raiseWakeup } from '../../src/linux/epoll.js';
import { close } from '../../src/linux/libc.js';

const program = new URL('./reactor-worker.js', import.meta.url);

async function startWorker(
  busy: boolean,
): Promise<{ worker: Worker; control: WorkerControl; said: string[] }> {
  const control = createWorkerControl();
  const worker = new Worker(program, { workerData: { control, busy } });
  const said: string[] = [];
  worker.on('message', (text: string) => said.push(text));
  await once(worker, 'message');
  return { worker, control, said };
}

async function within(ms: number, what: Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await what;
  const tookMs = performance.now() - startMs;
  assert.ok(tookMs < ms, `took ${tookMs} ms, expected less than ${ms}`);
  return tookMs;
}

for (const busy of [false, true]) {
  const state = busy ? 'busy' : 'idle';

  test(`the stop flag and a wakeup end a worker whose reactor is ${state} in order`, async () => {
    const { worker, control, said } = await startWorker(busy);
    const exit = once(worker, 'exit');
    Atomics.store(new Int32Array(control.stop), 0, 1);
    raiseWakeup(control.wakeup);
    await within(400, exit);
    assert.ok(said.includes('ended'), 'runReactor returned');
    close(control.wakeup);
  });

  test(`terminate() ends a worker whose reactor is ${state} within a second, without stop flag or wakeup`, async () => {
    const { worker, control } = await startWorker(busy);
    await within(1000, worker.terminate());
    close(control.wakeup);
  });

  test(`process.exit() of a main thread whose worker's reactor is ${state} returns within a second`, async () => {
    const script = `
      import { Worker } from 'node:worker_threads';
      import { createWakeup } from ${JSON.stringify(new URL('../../src/linux/epoll.js', import.meta.url))};
      const control = { stop: new SharedArrayBuffer(4), wakeup: createWakeup() };
      const worker = new Worker(new URL(${JSON.stringify(program)}), { workerData: { control, busy: ${busy} }, execArgv: [] });
      worker.once('message', () => setTimeout(() => { console.log('leaving'); process.exit(7); }, 50));`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(child.stdout, 'data');
    const exited = once(child, 'exit');
    await within(1000, exited);
    assert.deepEqual(await exited, [7, null]);
  });
}

test('messages posted before a wakeup are all read, in order', async () => {
  const { worker, control, said } = await startWorker(false);
  for (let i = 0; i < 100; i++) worker.postMessage(i);
  raiseWakeup(control.wakeup);
  while (said.length < 101) await once(worker, 'message');
  assert.deepEqual(
    said.slice(1),
    Array.from({ length: 100 }, (_, i) => `got ${i}`),
  );
  await worker.terminate();
  close(control.wakeup);
});

test('a handler that throws ends the worker with that error', async () => {
  const { worker, control } = await startWorker(false);
  const failed = once(worker, 'error');
  worker.postMessage('throw');
  raiseWakeup(control.wakeup);
  const [error] = (await failed) as [Error];
  assert.equal(error.message, 'a broken invariant');
  close(control.wakeup);
});
