import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SessionShares } from '../../src/protocol/session-shares.js';

/** As many as there is room for. */
function fill(shares: SessionShares, owner: number): number {
  let count = 0;
  for (; shares.hasRoom(owner); count++) shares.add(owner);
  return count;
}

test('a reserved quarter and four fifths of the rest are for one owner alone', () => {
  assert.equal(fill(new SessionShares(1000, 1), 0), 250 + 600);
  assert.equal(fill(new SessionShares(1000, 10), 0), 25 + 600);
  assert.equal(fill(new SessionShares(1000, 10_000), 0), 800, 'with nothing reserved: too many owners');
});

test('however many owners fill what they can, each of the others has what is reserved for it', () => {
  const shares = new SessionShares(1000, 50);
  let sum = 0;
  for (let owner = 0; owner < 40; owner++) sum += fill(shares, owner);
  for (let owner = 40; owner < 50; owner++) {
    const count = fill(shares, owner);
    assert.ok(count >= 5, `${count} for owner ${owner}`);
    sum += count;
  }
  assert.equal(sum, 1000, 'all of it is used, and no more');
});

test('what is given back can be had again, to the last', () => {
  const shares = new SessionShares(1000, 4);
  const counts = [0, 1, 2, 3].map((owner) => fill(shares, owner));
  for (const [owner, count] of counts.entries()) for (let i = 0; i < count; i++) shares.remove(owner);
  assert.deepEqual(
    [0, 1, 2, 3].map((owner) => fill(shares, owner)),
    counts,
  );
});
