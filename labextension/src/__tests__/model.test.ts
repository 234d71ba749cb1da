// SPDX-License-Identifier: BSD-3-Clause
import { Client } from '../client';
import { Clock } from '../clock';
import { CHANGED, Model } from '../model';
import { answer, world } from './worlds';

/** Lets timers and everything that waits for them go on by `ms`. */
const pass = (ms: number): Promise<void> => jest.advanceTimersByTimeAsync(ms);

function hide(hidden: boolean): void {
  Object.defineProperty(document, 'hidden', { configurable: true, value: hidden });
  document.dispatchEvent(new Event('visibilitychange'));
}

class Extension {
  loads = 0;
  up = true;
  readonly model = new Model(
    new Client(async () => {
      this.loads += 1;
      if (!this.up) {
        throw new TypeError('down');
      }
      return answer(world({ seq: this.loads }));
    })
  );
}

let extension: Extension;

beforeEach(() => {
  jest.useFakeTimers();
  hide(false);
  extension = new Extension();
});

afterEach(() => {
  extension.model.dispose();
  jest.useRealTimers();
});

test('the state is loaded once at the start', async () => {
  await pass(1000);
  expect(extension.loads).toBe(1);
  expect(extension.model.view).toMatchObject({ link: 'ok', state: { seq: 1 } });
});

test('many events in a row are one load', async () => {
  await pass(1000);
  for (let n = 0; n < 20; n += 1) {
    extension.model.onEvent({ schema_id: CHANGED });
  }
  await pass(2000);
  expect(extension.loads).toBe(2);
});

test('events that keep coming are a few loads a second', async () => {
  await pass(1000);
  for (let n = 0; n < 50; n += 1) {
    extension.model.onEvent({ schema_id: CHANGED });
    await pass(20);
  }
  await pass(1000);
  expect(extension.loads).toBeGreaterThan(2);
  expect(extension.loads).toBeLessThan(8);
});

test('events of others change nothing', async () => {
  await pass(1000);
  extension.model.onEvent({ schema_id: 'https://events.jupyter.org/other/v1' });
  await pass(2000);
  expect(extension.loads).toBe(1);
});

test('an event that was missed is made up for', async () => {
  await pass(1000);
  await pass(40_000);
  expect(extension.loads).toBe(2);
});

test('a hidden page does not ask, but an event still reaches it', async () => {
  await pass(1000);
  hide(true);
  await pass(200_000);
  const before = extension.loads;
  await pass(200_000);
  expect(extension.loads).toBe(before);
  extension.model.onEvent({ schema_id: CHANGED });
  await pass(1000);
  expect(extension.loads).toBe(before + 1);
});

test('a page that is seen again loads at once', async () => {
  await pass(1000);
  hide(true);
  await pass(100_000);
  const before = extension.loads;
  hide(false);
  await pass(100);
  expect(extension.loads).toBe(before + 1);
});

test('what was last known stays while the server is away, and it comes back by itself', async () => {
  await pass(1000);
  extension.up = false;
  await extension.model.refresh();
  expect(extension.model.view).toMatchObject({ link: 'unreachable', state: { seq: 1 } });
  extension.up = true;
  await pass(60_000);
  expect(extension.model.view).toMatchObject({ link: 'ok', problem: '' });
});

test('those who ask while a load is on its way share the next one', async () => {
  await pass(1000);
  const { model } = extension;
  await Promise.all([model.refresh(), model.refresh(), model.refresh()]);
  expect(extension.loads).toBe(3);
});

test('the clock ticks only while somebody can see it', async () => {
  const clock = new Clock();
  let ticks = 0;
  clock.ticked.connect(() => {
    ticks += 1;
  });
  await pass(5000);
  expect(ticks).toBe(0);
  clock.watched = true;
  await pass(3000);
  expect(ticks).toBe(4);
  hide(true);
  await pass(5000);
  expect(ticks).toBe(4);
  hide(false);
  expect(ticks).toBe(5);
  clock.dispose();
  await pass(5000);
  expect(ticks).toBe(5);
});
