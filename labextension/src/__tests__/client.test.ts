// SPDX-License-Identifier: BSD-3-Clause
import { Client, Problem } from '../client';
import { failure } from '../model';
import { answer, world } from './worlds';

async function problemOf(response: Response | Error): Promise<Problem> {
  const client = new Client(async () => {
    if (response instanceof Error) {
      throw response;
    }
    return response;
  });
  return client.state().then(
    () => {
      throw new Error('it should have failed');
    },
    (error: Problem) => error
  );
}

test('the state comes with how far the clock of the server is ahead', async () => {
  const ahead = new Date(Date.now() + 600_000).toUTCString();
  const { state, skew } = await new Client(async () => answer(world(), 200, ahead)).state();
  expect(state.me.user).toBe('ana');
  expect(Math.abs(skew - 600)).toBeLessThan(30);
});

test('asking for the state does not count as activity of the server', async () => {
  const paths: string[] = [];
  await new Client(async path => {
    paths.push(path);
    return answer(world());
  }).state();
  expect(paths).toEqual(['state?no_track_activity=1']);
});

test('an id cannot leave its place in the address', async () => {
  const paths: string[] = [];
  const client = new Client(async path => {
    paths.push(path);
    return answer({});
  });
  await client.cancelJob('../sessions/x?');
  expect(paths).toEqual(['api/jobs/..%2Fsessions%2Fx%3F/cancel']);
});

test('an error of the broker keeps its field and its remedy', async () => {
  const body = { error: 'refused', message: 'at most 8 h', field: 'time', remedy: 'ask for 8h' };
  const problem = await problemOf(answer(body, 400));
  expect(problem).toMatchObject({ status: 400, field: 'time', remedy: 'ask for 8h' });
  expect(problem.message).toBe('time: at most 8 h');
});

test('a page of a proxy in place of an answer becomes a sentence', async () => {
  expect((await problemOf(answer(undefined, 502))).message).toBe('The server answered 502.');
  expect((await problemOf(answer(undefined, 200))).message).toMatch(/not JSON/);
});

test('each way to fail is told apart', async () => {
  expect(failure(await problemOf(answer({}, 404))).link).toBe('missing');
  expect(failure(await problemOf(answer({}, 403))).link).toBe('refused');
  expect(failure(await problemOf(new TypeError('no network')))).toEqual({
    link: 'unreachable',
    problem: 'The Jupyter server does not answer.'
  });
});
