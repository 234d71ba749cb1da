// SPDX-License-Identifier: BSD-3-Clause
import * as React from 'react';

import { MyGPU } from '../panels/mygpu';
import type { IState } from '../tokens';
import { Page } from './page';
import {
  answer,
  device,
  kept,
  lease,
  node,
  notice,
  NOON,
  Server,
  session,
  shapes,
  why,
  world
} from './worlds';

let server: Server;
let page: Page;

function open(part: Partial<IState>, now = NOON): Page {
  server = new Server();
  page = new Page(<MyGPU state={world(part)} now={now} actions={server.actions} />);
  return page;
}

afterEach(() => page.close());

test('without a session there is a form and a sentence that says what to do', async () => {
  open({});
  expect(page.text).toMatch(/You have no GPU\. Ask for one here/);
  await page.choose('Share', '2');
  await page.choose('Time', '3600');
  await page.press('Request');
  expect(server.posts).toEqual([
    ['api/sessions', { request: { gpus: 2, time: 3600 }, queue: 'research', class: 'interactive' }]
  ]);
  expect(server.reloads).toBe(1);
});

test('only possible choices are offered', () => {
  open({});
  expect(page.options('Share')).toEqual([
    '0.25 GPU (20 GiB)',
    '0.5 GPU (40 GiB)',
    '1 GPU',
    '2 GPUs'
  ]);
  expect(page.options('Time')).toEqual(['30 min', '1 h', '2 h', '4 h', '8 h']);
  expect(page.options('Queue')).toEqual([]);
  expect(page.options('GPU type')).toEqual([]);
});

test('queues and types of GPU can be chosen where there are several', async () => {
  open({ shapes: shapes({ queues: ['a', 'b'], flavors: ['A100', 'H100'] }) });
  await page.choose('Queue', 'b');
  await page.choose('GPU type', 'H100');
  await page.press('Request');
  expect(server.posts[0]?.[1]).toMatchObject({ queue: 'b', request: { flavors: ['H100'] } });
});

test('the default time of the class is chosen at first', async () => {
  open({});
  await page.press('Request');
  expect(server.posts[0]?.[1]).toMatchObject({ request: { gpus: 0.5, time: 7200 } });
});

test('a person is told before asking whether it is free', () => {
  open({});
  expect(page.text).toMatch(/Free right now/);
  page.close();
  open({ nodes: [node({ devices: [device({ free_milli: 0 })] })] });
  expect(page.text).toMatch(/you get a place in the queue/);
});

test('no form is offered where no GPU exists', () => {
  open({ shapes: shapes({ gpus_per_node: [] }) });
  expect(page.text).toMatch(/No machine with a GPU/);
  expect(page.buttons).toEqual([]);
});

test('a refusal is shown with its remedy and can be put away', async () => {
  open({});
  server.refusal = answer({ message: 'you have two already', remedy: 'release one' }, 429);
  await page.press('Request');
  expect(page.one('[role=alert]').textContent).toMatch(/you have two already.*release one/);
  await page.press('Dismiss');
  expect(page.all('[role=alert]')).toEqual([]);
});

test('a waiting session says its position, why, for whom and until when', () => {
  open({ session: session({ state: 'queued', lease: null, why: why() }) });
  expect(page.text).toMatch(/Waiting for a GPU/);
  expect(page.text).toMatch(/Position 2/);
  expect(page.text).toMatch(/No machine has half a GPU free\./);
  expect(page.text).toMatch(/For ben, until .*\(2 min 00 s\)/);
});

test('to stop waiting keeps what is parked', async () => {
  open({ session: session({ state: 'queued', lease: null, why: why() }) });
  await page.press('Stop waiting');
  expect(server.posts[0]?.[0]).toBe('api/sessions/s-abc/cancel');
  page.close();
  open({ session: session({ state: 'queued', lease: null, kept: [kept()] }) });
  await page.press('Stop waiting');
  expect(server.posts[0]?.[0]).toBe('api/sessions/s-abc/park');
});

test('a running session says where it is, how long, and what is guaranteed', () => {
  open({ session: session({ idle: { idle: false, since: null, after: 600, facts: '' } }) });
  expect(page.text).toMatch(/GPU attached0\.5 GPU on node1, GPU 0 \(A100\)/);
  expect(page.text).toMatch(/Yours until .*1 h left/);
  expect(page.text).toMatch(/IdleNo, in use/);
  expect(page.text).toMatch(/Memory is shared by agreement\./);
});

test('the clocks tick with the time they are given', () => {
  const running = session({ idle: { idle: false, since: NOON - 60, after: 600, facts: '' } });
  open({ session: running });
  expect(page.text).toMatch(/1 min 00 s.*From .* it goes when somebody needs it/);
  page.show(
    <MyGPU state={world({ session: running })} now={NOON + 540} actions={server.actions} />
  );
  expect(page.text).toMatch(/51 min 00 s left/);
  expect(page.text).toMatch(/10 min 00 s.*It goes when somebody needs it\./);
});

test('keep is offered only to a session that is idle for long and has one left', () => {
  const idle = { idle: true, since: NOON - 900, after: 600, facts: '' };
  open({ session: session({ idle }) });
  expect(page.buttons).toEqual(['Extend', 'Keep', 'Park', 'Release']);
  page.close();
  open({ session: session({ idle: { ...idle, idle: false, since: NOON - 10 } }) });
  expect(page.buttons).toEqual(['Extend', 'Park', 'Release']);
  page.close();
  open({ session: session({ idle, keeps_left: 0 }) });
  expect(page.buttons).toEqual(['Extend', 'Park', 'Release']);
});

test('a release is asked about, a no changes nothing', async () => {
  open({ session: session() });
  server.consents = false;
  await page.press('Release');
  expect(server.questions).toEqual(['Release the GPU?']);
  expect(server.posts).toEqual([]);
  server.consents = true;
  await page.press('Release');
  expect(server.posts).toEqual([['api/sessions/s-abc/release', {}]]);
});

test('documents are saved before the GPU is given up', async () => {
  for (const name of ['Park', 'Release']) {
    open({ session: session() });
    await page.press(name);
    expect([server.savedBefore, server.posts.length]).toEqual([0, 1]);
    page.close();
  }
  open({ session: session({ state: 'draining', notice: notice() }) });
  await page.press('Give it now');
  expect([server.savedBefore, server.posts.length]).toEqual([0, 1]);
});

test('an extension is asked for in seconds and never beyond the class', async () => {
  open({ session: session({ lease: lease({ since: NOON - 3600, expires: NOON + 18000 }) }) });
  await page.press('Extend');
  expect(page.options('Extend by')).toEqual(['30 min', '1 h', '2 h']);
  await page.choose('Extend by', '1800');
  await page.press('Extend');
  expect(server.posts).toEqual([['api/sessions/s-abc/extend', { time: 1800 }]]);
  expect(page.buttons).toContain('Park');
});

test('Escape and Cancel fold the choice of an extension and ask for nothing', async () => {
  open({ session: session() });
  await page.press('Extend');
  expect(page.buttons).toEqual(['Extend', 'Cancel']);
  await page.key('Escape');
  expect(page.buttons).toEqual(['Extend', 'Park', 'Release']);
  expect(document.activeElement?.textContent).toBe('Extend');
  await page.press('Extend');
  await page.press('Cancel');
  expect(page.buttons).toEqual(['Extend', 'Park', 'Release']);
  expect(server.posts).toEqual([]);
});

test('a session at the limit of its class is not offered an extension', () => {
  open({ session: session({ lease: lease({ since: NOON - 18000, expires: NOON + 10800 }) }) });
  expect(page.buttons).toEqual(['Park', 'Release']);
});

test('a leaving session says who needs it, when it goes and what is kept', async () => {
  open({ session: session({ state: 'draining', since: NOON - 20, notice: notice() }) });
  expect(page.text).toMatch(/GPU leaves soon/);
  expect(page.text).toMatch(/Leaves at .*in 1 min 40 s/);
  expect(page.text).toMatch(/trainer needs this GPU for train-ddp\.Keep/);
  await page.press('Keep (2 left)');
  await page.press('Give it now');
  expect(server.posts.map(([path]) => path)).toEqual([
    'api/sessions/s-abc/keep',
    'api/sessions/s-abc/park'
  ]);
});

test('a lease that cannot be parked does not promise it', () => {
  const plain = lease({ guarantees: { ...lease().guarantees, parkable: false } });
  open({ session: session({ state: 'draining', lease: plain, notice: notice() }) });
  expect(page.text).toMatch(/Kernels that use it restart without it/);
});

test('a parked session says why, what is kept and until when', async () => {
  const parked = session({
    state: 'parked',
    lease: null,
    kept: [kept()],
    parked_for: 'idle',
    deadline: NOON + 7200
  });
  open({ session: parked });
  expect(page.text).toMatch(/Because it was idle.*Everything is kept.*2 GiB.*Kept until/);
  await page.press('Resume');
  await page.press('Discard');
  expect(server.posts.map(([path]) => path)).toEqual([
    'api/sessions/s-abc/resume',
    'api/sessions/s-abc/cancel'
  ]);
  expect(server.questions).toEqual(['Discard what is kept?']);
});

test('after its time is over a cell does not resume it, and nobody says so', () => {
  open({ session: session({ state: 'parked', lease: null, kept: [kept()], parked_for: 'time' }) });
  expect(page.text).not.toMatch(/Running a cell/);
});

test('a session that stops offers nothing to press', () => {
  open({ session: session({ state: 'stopping', stage: 'park', notice: notice() }) });
  expect(page.text).toMatch(/Parking/);
  expect(page.buttons).toEqual([]);
});

test('each kernel says whether it has the GPU; a restart is one press and a yes', async () => {
  const kernel = { id: 'k1', name: 'python3', path: 'a/one.ipynb', managed: true };
  open({
    session: session(),
    kernels: [
      { ...kernel, bound: true, needs_restart: false },
      { ...kernel, id: 'k2', path: 'two.ipynb', bound: false, needs_restart: true },
      {
        ...kernel,
        id: 'k3',
        path: '',
        name: 'spark',
        bound: false,
        needs_restart: false,
        managed: false
      }
    ]
  });
  expect(page.text).toMatch(/one\.ipynbhas the GPUtwo\.ipynbRestart to usesparknot managed/);
  await page.press('Restart to use');
  expect(server.questions).toEqual(['Restart the kernel of two.ipynb?']);
  expect(server.posts).toEqual([['restart k2', {}]]);
});

test('nothing is claimed while the broker does not answer', () => {
  open({ broker: { ok: false, problem: 'down' } });
  expect(page.text).toBe('Not known while the broker does not answer.');
});
