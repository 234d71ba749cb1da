// SPDX-License-Identifier: BSD-3-Clause
/** What React warns of is a fault here: a test during which it does fails. */
let warned: unknown[] = [];

beforeEach(() => {
  warned = [];
  console.error = (...words: unknown[]) => {
    warned.push(words);
  };
});

afterEach(() => {
  expect(warned).toEqual([]);
});
