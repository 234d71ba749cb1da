// SPDX-License-Identifier: BSD-3-Clause
import {
  IDesk,
  ISeen,
  IToast,
  Notices,
  noticeWords,
  reminder,
  storedSeen,
  untilReminder
} from '../notices';
import type { IState } from '../tokens';
import { answer, batch, lease, notice, NOON, Server, session, world } from './worlds';

class Desk implements IDesk {
  readonly toasts = new Map<string, IToast>();
  readonly failures: string[] = [];
  saves = 0;

  show(toast: IToast): string {
    const id = `toast-${this.toasts.size + 1}-${this.saves}`;
    this.toasts.set(id, toast);
    return id;
  }

  dismiss(id: string): void {
    this.toasts.delete(id);
  }

  fail(message: string): void {
    this.failures.push(message);
  }

  async saveAll(): Promise<void> {
    this.saves += 1;
  }

  get only(): IToast {
    expect(this.toasts.size).toBe(1);
    return [...this.toasts.values()][0] as IToast;
  }
}

const seen = (): ISeen => {
  localStorage.clear();
  return storedSeen(localStorage);
};

function leaving(part: Partial<Parameters<typeof notice>[0]> = {}): IState {
  const told = notice(part);
  return world({
    session: session({ state: 'draining', notice: told }),
    notices: [{ ...told, job: 's-abc' }]
  });
}

test('a notice is shown once, however often the state is loaded', () => {
  const desk = new Desk();
  const notices = new Notices(desk, seen(), new Server().actions);
  notices.follow(leaving(), NOON);
  notices.follow(leaving(), NOON + 5);
  expect(desk.only.message).toMatch(
    /^Your GPU goes at .* \(1 min\)\. trainer needs this GPU for train-ddp\.$/
  );
});

test('a second tab of the browser does not show it again, but saves its documents', () => {
  const [first, second, memory] = [new Desk(), new Desk(), seen()];
  new Notices(first, memory, new Server().actions).follow(leaving(), NOON);
  new Notices(second, memory, new Server().actions).follow(leaving(), NOON);
  expect([first.toasts.size, second.toasts.size]).toEqual([1, 0]);
  expect([first.saves, second.saves]).toEqual([1, 1]);
});

test('a notice that is answered anywhere is withdrawn here', () => {
  const desk = new Desk();
  const notices = new Notices(desk, seen(), new Server().actions);
  notices.follow(leaving(), NOON);
  notices.follow(world({ session: session() }), NOON + 5);
  expect(desk.toasts.size).toBe(0);
});

test('documents are saved once for each notice', () => {
  const desk = new Desk();
  const notices = new Notices(desk, seen(), new Server().actions);
  notices.follow(leaving(), NOON);
  notices.follow(leaving(), NOON + 1);
  notices.follow(leaving({ id: 'n-2' }), NOON + 2);
  expect(desk.saves).toBe(2);
});

test('keep and give it now reach the session of the notice', async () => {
  const [desk, server] = [new Desk(), new Server()];
  new Notices(desk, seen(), server.actions).follow(leaving(), NOON);
  for (const action of desk.only.actions) {
    await action.run();
  }
  expect(server.posts.map(([path]) => path)).toEqual([
    'api/sessions/s-abc/keep',
    'api/sessions/s-abc/park'
  ]);
});

test('keep is not offered when its budget is spent', () => {
  const desk = new Desk();
  new Notices(desk, seen(), new Server().actions).follow(leaving({ can_keep: false }), NOON);
  expect(desk.only.actions.map(action => action.label)).toEqual(['Give it now']);
});

test('an answer that fails is told', async () => {
  const [desk, server] = [new Desk(), new Server()];
  server.refusal = answer({ error: 'conflict', message: 'it is stopping already' }, 409);
  new Notices(desk, seen(), server.actions).follow(leaving(), NOON);
  await desk.only.actions[0]?.run();
  expect(desk.failures).toEqual(['it is stopping already']);
});

test('a notice fits into what JupyterLab shows of a message', () => {
  const told = notice({ text: 'y'.repeat(300) });
  for (const job of [session({ state: 'draining' }), batch({ name: 'x'.repeat(80) })]) {
    expect(noticeWords(told, job, NOON - 86400).length).toBeLessThanOrEqual(140);
  }
});

test('what a person did is not announced, but documents are saved', () => {
  const desk = new Desk();
  const told = notice({ reason: 'user', deadline: NOON });
  const state = world({
    session: session({ state: 'stopping', notice: told }),
    notices: [{ ...told, job: 's-abc' }]
  });
  new Notices(desk, seen(), new Server().actions).follow(state, NOON);
  expect([desk.toasts.size, desk.saves]).toEqual([0, 1]);
});

test('a notice whose time has come is taken back with its buttons', () => {
  const desk = new Desk();
  const notices = new Notices(desk, seen(), new Server().actions);
  const state = leaving();
  notices.follow(state, NOON);
  const gone = session({ state: 'stopping', notice: notice() });
  notices.follow({ ...state, session: gone }, NOON + 100);
  expect(desk.toasts.size).toBe(0);
});

test('a preempted job is announced with its name and nothing to press', () => {
  const desk = new Desk();
  const told = notice({ reason: 'preempted', text: 'Preempted; ben needs its GPUs.' });
  const state = world({
    jobs: [batch({ state: 'stopping', notice: told })],
    notices: [{ ...told, job: 'b-xyz' }]
  });
  new Notices(desk, seen(), new Server().actions).follow(state, NOON);
  expect(desk.only).toEqual({
    message: 'Your job train-ddp has to stop now. Preempted; ben needs its GPUs.',
    actions: []
  });
  expect(desk.saves).toBe(0);
});

test('the end of a lease is announced at 15, 5 and 1 minute', () => {
  const at = (left: number): number | undefined =>
    reminder(session({ lease: lease({ expires: NOON + left }) }), NOON)?.minutes;
  expect([901, 900, 301, 300, 61, 60, 0].map(at)).toEqual([undefined, 15, 15, 5, 5, 1, undefined]);
});

test('a lease of five minutes is not announced as one of fifteen', () => {
  const short = session({ lease: lease({ since: NOON, expires: NOON + 300 }) });
  expect(reminder(short, NOON)).toBeNull();
  expect(reminder(short, NOON + 245)?.minutes).toBe(1);
});

test('the next reminder is waited for, whatever else happens', () => {
  const left = (seconds: number): number | null =>
    untilReminder(session({ lease: lease({ expires: NOON + seconds }) }), NOON);
  expect([left(1000), left(900), left(30)]).toEqual([100, 600, null]);
  expect(untilReminder(session({ state: 'parked', lease: null }), NOON)).toBeNull();
});

test('an extended lease takes its reminder back', () => {
  const desk = new Desk();
  const notices = new Notices(desk, seen(), new Server().actions);
  const ending = (left: number): IState =>
    world({ session: session({ lease: lease({ expires: NOON + left }) }) });
  notices.follow(ending(290), NOON);
  expect(desk.only.message).toMatch(/^Your GPU time ends in 5 min/);
  notices.follow(ending(290 + 3600), NOON);
  expect(desk.toasts.size).toBe(0);
});

test('what the browser remembers is bounded and survives nonsense', () => {
  localStorage.clear();
  localStorage.setItem('key', '{"not": "a list"}');
  const memory = storedSeen(localStorage, 'key', 3);
  for (const id of ['a', 'b', 'c', 'd']) {
    memory.add(id);
  }
  expect(['a', 'b', 'c', 'd'].filter(id => memory.has(id))).toEqual(['b', 'c', 'd']);
});
