import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Recency, type Used } from '../../src/relay/recency.js';

class Item implements Used {
  lastUsedMs = 0;
  newer: Used | undefined = undefined;
  older: Used | undefined = undefined;
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** From the oldest on, by taking them out. */
function drain(recency: Recency<Item>): string {
  let names = '';
  for (let oldest = recency.oldest; oldest !== undefined; oldest = recency.oldest) {
    names += oldest.name;
    recency.remove(oldest);
  }
  assert.equal(recency.size, 0);
  return names;
}

test('the order is that of the last use', () => {
  const recency = new Recency<Item>();
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((name) => new Item(name)) as [Item, Item, Item, Item];
  for (const [i, item] of [a, b, c, d].entries()) recency.add(item, i);
  recency.touch(a, 10);
  recency.touch(c, 11);
  recency.touch(c, 12); // the newest already
  recency.touch(b, 13);
  assert.deepEqual([a.lastUsedMs, c.lastUsedMs], [10, 12]);
  assert.equal(drain(recency), 'dacb');
});

test('one may be taken out anywhere, and come again', () => {
  const recency = new Recency<Item>();
  const [a, b, c] = ['a', 'b', 'c'].map((name) => new Item(name)) as [Item, Item, Item];
  for (const item of [a, b, c]) recency.add(item, 1);
  recency.remove(b);
  recency.remove(c);
  recency.add(b, 2);
  recency.remove(a);
  recency.add(a, 3);
  assert.equal(recency.size, 2);
  assert.equal(drain(recency), 'ba');
});
