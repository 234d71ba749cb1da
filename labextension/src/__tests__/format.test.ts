// SPDX-License-Identifier: BSD-3-Clause
import {
  capacity,
  clockTime,
  countdown,
  deviceColour,
  deviceWords,
  duration,
  fitsNow,
  gpuHours,
  gpus,
  jobWords,
  keptWords,
  memory,
  names,
  ordinal,
  plainLog,
  sessionWords,
  waitsFor
} from '../format';
import { batch, device, kept, node, NOON, session, why } from './worlds';

test.each([
  [-5, '0 s'],
  [89.4, '89 s'],
  [90, '1 min'],
  [3600, '1 h'],
  [7500, '2 h 5 min'],
  [86400 * 2 + 60, '2 d 1 min']
])('%d seconds are said as %s', (seconds, words) => {
  expect(duration(seconds)).toBe(words);
});

test.each([
  [12, '12 s'],
  [61.9, '1 min 01 s'],
  [3599, '59 min 59 s'],
  [6120, '1 h 42 min']
])('a clock that stands at %d seconds shows %s', (seconds, words) => {
  expect(countdown(seconds)).toBe(words);
});

test('a time of another day is shown with its date', () => {
  const today = clockTime(NOON + 60, NOON, 'en-GB');
  const later = clockTime(NOON + 86400 * 3, NOON, 'en-GB');
  expect(today).toMatch(/^\d\d:\d\d$/);
  expect(later).toMatch(/^\d+ [A-Z][a-z]+, \d\d:\d\d$/);
});

test('amounts are rounded for people', () => {
  expect([gpus(500), gpus(1000), gpus(3500)]).toEqual(['0.5 GPU', '1 GPU', '3.5 GPUs']);
  expect([memory(512), memory(1024), memory(40960)]).toEqual(['512 MiB', '1 GiB', '40 GiB']);
  expect([7, 780, 3600 * 250].map(gpuHours)).toEqual(['< 0.01 GPU-h', '0.22 GPU-h', '250 GPU-h']);
  expect([1, 2, 3, 4, 11, 12, 13, 21, 102].map(ordinal).join(' ')).toBe(
    '1st 2nd 3rd 4th 11th 12th 13th 21st 102nd'
  );
});

test('names are listed once and long lists are cut', () => {
  expect(names([])).toBe('');
  expect(names(['ana', 'ana'])).toBe('ana');
  expect(names(['ana', 'ben', 'cem'])).toBe('ana, ben and cem');
  expect(names(['ana', 'ben', 'cem', 'dora'])).toBe('ana, ben and 2 others');
});

test('a session that resumes is not told that it waits for its first GPU', () => {
  expect(sessionWords(session({ state: 'queued' })).title).toBe('Waiting for a GPU');
  expect(sessionWords(session({ state: 'queued', kept: [kept()] })).title).toBe(
    'Waiting to resume'
  );
});

test('the stage of a stop is told', () => {
  expect(sessionWords(session({ state: 'stopping', stage: 'park' })).title).toBe('Parking');
  expect(sessionWords(session({ state: 'stopping', stage: 'fence' })).title).toMatch(/proof/);
});

test('a waiting job says its place in line', () => {
  expect(jobWords(batch({ why: why({ position: 3 }) })).title).toBe('3rd in line');
  expect(jobWords(batch()).title).toBe('Waiting');
});

test('what is kept is told by the worst kernel', () => {
  expect(keptWords([kept(), kept()])).toMatch(/^Everything is kept.*4 GiB/);
  expect(keptWords([kept(), kept({ rung: 'server' })])).toMatch(/variables are not/);
  expect(keptWords([])).toBe('Nothing could be kept.');
});

test('whom a job waits for is not said twice', () => {
  const known = why({ text: 'ben leaves for it.', waits_for_users: ['ben'], until: null });
  expect(waitsFor(known, NOON)).toEqual({ whom: '', until: '' });
  expect(waitsFor(why({ waits_for_users: ['ben'] }), NOON).whom).toBe('For ben');
});

test('until when a job waits is counted down, and not below zero', () => {
  expect(waitsFor(why({ until: NOON + 65 }), NOON).until).toMatch(/^until .*\(1 min 05 s\)$/);
  expect(waitsFor(why({ until: NOON - 5 }), NOON).until).not.toMatch(/\(/);
});

test('a leaving device is coloured as leaving, whatever else is on it', () => {
  const busy = device({ kinds: ['session', 'leaving'], free_milli: 0 });
  expect(deviceColour(busy, node())).toBe('leaving');
  expect(deviceColour({ ...busy, usable: false }, node())).toBe('unusable');
  expect(deviceColour(busy, node({ usable: false }))).toBe('unusable');
  expect(deviceColour(device({ kinds: ['quarantined'], usable: false }), node())).toBe(
    'quarantined'
  );
  expect(deviceColour(device(), node())).toBe('free');
});

test('a device is described with who uses how much of it', () => {
  const half = device({ free_milli: 500, users: ['ana'], kinds: ['session'], mine: true });
  expect(deviceWords(half, node())).toBe(
    'GPU 0 on node1 (A100, 80 GiB): 50 % in use by ana (session); yours'
  );
  expect(deviceWords(device({ usable: false, note: 'too hot' }), node())).toMatch(
    /not usable: too hot$/
  );
});

test('what cannot be used is not counted as capacity', () => {
  const nodes = [
    node({ devices: [device({ free_milli: 250 }), device({ usable: false })] }),
    node({ name: 'node2', usable: false })
  ];
  expect(capacity(nodes)).toEqual({ free: 250, total: 1000 });
});

test('a share fits beside another, whole GPUs need empty ones on one machine', () => {
  const nodes = [
    node({ devices: [device({ free_milli: 500 }), device()] }),
    node({ name: 'node2', devices: [device()] })
  ];
  expect(fitsNow(nodes, 0.5)).toBe(true);
  expect(fitsNow(nodes, 1)).toBe(true);
  expect(fitsNow(nodes, 1.5)).toBe(true);
  expect(fitsNow(nodes, 2)).toBe(false);
  expect(fitsNow(nodes, 1, 'H100')).toBe(false);
  expect(fitsNow([node({ devices: [device({ free_milli: 250 })] })], 0.5)).toBe(false);
});

test('a log reads as a terminal would have left it', () => {
  expect(plainLog('\u001b[31mred\u001b[0m\nplain')).toBe('red\nplain');
  expect(plainLog('10%\r50%\r100%\ndone\r\n')).toBe('100%\ndone\n');
});
