// SPDX-License-Identifier: BSD-3-Clause
import * as React from 'react';

import type { IView } from '../model';
import { Cluster } from '../panels/cluster';
import { Jobs } from '../panels/jobs';
import { more } from '../panels/logs';
import { Queue } from '../panels/queue';
import { Status } from '../panels/status';
import type { ILog, IState } from '../tokens';
import type { IPanelProps } from '../ui';
import { Page } from './page';
import { answer, batch, device, lease, node, NOON, row, Server, why, world } from './worlds';

let server: Server;
let page: Page;

function open(Panel: React.FunctionComponent<IPanelProps>, part: Partial<IState>): Page {
  server = new Server();
  page = new Page(<Panel state={world(part)} now={NOON} actions={server.actions} />);
  return page;
}

afterEach(() => page.close());

describe('queue', () => {
  test('each row says who waits, what for, why, for whom and until when', () => {
    open(Queue, {
      queue: [
        row(),
        row({ id: 's-2', kind: 'session', name: '', user: 'ana', mine: true, why: why() })
      ]
    });
    expect(page.text).toMatch(/Position 1train-ddptrainer2 × 3 GPUs · waiting 42 s/);
    expect(page.text).toMatch(/No machine has half a GPU free\.For ben, until/);
    expect(page.one('.gpub-mod-mine').textContent).toMatch(/Position 2Sessionyou/);
  });

  test('a session is called after its server, where that has a name', () => {
    const named = { kind: 'session' as const, name: 'ana/two' };
    open(Queue, { queue: [row(named), row({ ...named, id: 's-2', name: 'ana/' })] });
    expect(page.all('.gpub-name').map(name => name.textContent)).toEqual([
      'Session two',
      'Session'
    ]);
  });

  test('queues are named only where there are several', () => {
    open(Queue, { queue: [row(), row({ id: 'b-2', queue: 'teaching' })] });
    expect(page.text).toMatch(/research · waiting.*teaching · waiting/);
  });

  test('an empty queue says what that means, unless nobody could be asked', () => {
    open(Queue, {});
    expect(page.text).toMatch(/^Nobody waits/);
    page.close();
    open(Queue, { broker: { ok: false, problem: 'down' } });
    expect(page.text).toMatch(/^Not known/);
  });
});

describe('my jobs', () => {
  const running = batch({ state: 'running', lease: lease(), attempt: 1 });

  test('living jobs stand above those that ended', () => {
    open(Jobs, { jobs: [batch({ id: 'b-2', name: 'old', state: 'failed' }), running] });
    expect(page.all('.gpub-name').map(item => item.textContent)).toEqual(['train-ddp', 'old']);
    expect(page.text).toMatch(/Running0\.5 GPU · 1 h of 2 h/);
  });

  test('sessions are not listed as jobs', () => {
    open(Jobs, { jobs: [batch({ kind: 'session' })] });
    expect(page.text).toMatch(/No jobs yet/);
  });

  test('a job unfolds to why it waits, and can be cancelled', async () => {
    open(Jobs, { jobs: [batch({ why: why() })] });
    expect(page.text).not.toMatch(/No machine/);
    page.one('.gpub-fold').setAttribute('aria-label', 'fold');
    await page.press('fold');
    expect(page.text).toMatch(/No machine has half a GPU free\./);
    await page.press('Cancel job');
    expect(server.questions).toEqual(['Cancel train-ddp?']);
    expect(server.posts).toEqual([['api/jobs/b-xyz/cancel', {}]]);
  });

  test('a failed job names the rank that failed first, once', async () => {
    const failed = batch({ state: 'failed', outcome: 'exit code 1', failed_rank: 3 });
    open(Jobs, { jobs: [failed] });
    page.one('.gpub-fold').setAttribute('aria-label', 'fold');
    await page.press('fold');
    expect(page.text).toMatch(/exit code 1 \(rank 3 failed first\)/);
    expect(page.buttons).toEqual(['fold']);
    page.show(
      <Jobs
        state={world({ jobs: [{ ...failed, outcome: 'rank 3 ended with 1' }] })}
        now={NOON}
        actions={server.actions}
      />
    );
    expect(page.text).not.toMatch(/failed first/);
  });
});

describe('logs', () => {
  const read =
    (text: string, calls: number[] = []) =>
    (offset: number, limit: number): Promise<ILog> => {
      calls.push(offset);
      const part = text.slice(offset, offset + limit);
      return Promise.resolve({
        rank: 0,
        text: part,
        next_offset: offset + part.length,
        size: text.length,
        ranks: [0],
        ended: false
      });
    };

  test('a huge log opens with its end', async () => {
    const text = 'x'.repeat(200_000) + 'end';
    const calls: number[] = [];
    const log = await more(null, read(text, calls));
    expect(log.text.endsWith('end')).toBe(true);
    expect(calls).toEqual([0, text.length - 65536]);
  });

  test('what is new is added to what is known', async () => {
    const first = await more(null, read('one\n'));
    const second = await more(first, read('one\ntwo\n'));
    expect(second.text).toBe('one\ntwo\n');
    expect((await more(second, read('one\ntwo\n'))).text).toBe('one\ntwo\n');
  });
});

describe('cluster', () => {
  const busy = device({ free_milli: 250, users: ['ben'], kinds: ['batch'], mine: false });

  test('a cell is filled by what is in use and says so to everybody', async () => {
    open(Cluster, { nodes: [node({ devices: [busy, device({ uuid: 'GPU-1-1', index: 1 })] })] });
    const words = 'GPU 0 on node1 (A100, 80 GiB): 75 % in use by ben (job)';
    expect(page.buttons).toEqual([words, 'GPU 1 on node1 (A100, 80 GiB): free']);
    expect(page.all('.gpub-cellFill').map(item => item.getAttribute('style'))).toEqual([
      'height: 75%;',
      'height: 0%;'
    ]);
    await page.press(words);
    expect(page.one('[role=status]').textContent).toBe(words);
  });

  test('the legend explains the colours that are there and no others', () => {
    open(Cluster, { nodes: [node({ devices: [busy, device({ uuid: 'GPU-1-1', mine: true })] })] });
    expect(page.all('.gpub-legend li').map(item => item.textContent)).toEqual(['Job', 'Yours']);
    page.close();
    open(Cluster, {});
    expect(page.all('.gpub-legend')).toEqual([]);
  });

  test('one cell of a machine can be reached by tab, the others by arrows', () => {
    open(Cluster, {});
    const cells = page.all('.gpub-cell') as HTMLElement[];
    expect(cells.map(cell => cell.tabIndex)).toEqual([0, -1]);
    cells[0]?.focus();
    cells[0]?.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
    expect(document.activeElement).toBe(cells[1]);
  });

  test('a machine that is not usable says why', () => {
    open(Cluster, { nodes: [node({ usable: false, note: 'drained by admin' })] });
    expect(page.text).toMatch(/not usabledrained by admin/);
  });
});

describe('status', () => {
  const show = (part: Partial<IView>): Page => {
    const view: IView = { link: 'ok', problem: '', state: world(), skew: 0, ...part };
    page = new Page(<Status view={view} refresh={() => undefined} />);
    return page;
  };

  test('what is free is told in one line', () => {
    expect(show({}).text).toBe('2 of 2 GPUs free');
  });

  test('a missing server extension comes with the command that enables it', () => {
    show({ link: 'missing', state: null, problem: 'The server extension is not enabled.' });
    expect(page.one('[role=alert]').textContent).toMatch(
      /not enabled.*jupyter server extension enable jupyter_gpubroker/
    );
  });

  test('a broker that is away is told in the words of the extension', () => {
    show({ state: world({ broker: { ok: false, problem: 'No broker at /x: refused' } }) });
    expect(page.one('[role=alert]').textContent).toBe('No broker at /x: refused');
  });

  test('a server that is away says whether what is shown is old', () => {
    expect(show({ link: 'unreachable', problem: 'No answer.' }).text).toMatch(/last known/);
    page.close();
    expect(show({ link: 'unreachable', problem: 'No answer.', state: null }).text).not.toMatch(
      /last known/
    );
  });
});

test('an action that fails in a job is told in that job', async () => {
  open(Jobs, { jobs: [batch()] });
  page.one('.gpub-fold').setAttribute('aria-label', 'fold');
  await page.press('fold');
  server.refusal = answer({ message: 'it has ended' }, 409);
  await page.press('Cancel job');
  expect(page.one('.gpub-jobBody [role=alert]').textContent).toMatch(/it has ended/);
});
