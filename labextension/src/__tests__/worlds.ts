// SPDX-License-Identifier: BSD-3-Clause
/** States as literals, and the real actions over a fetch that answers from memory. */
import { Ask, IActions, makeActions } from '../actions';
import { Client, Fetch } from '../client';
import type {
  IDevice,
  IJob,
  IKept,
  ILease,
  INode,
  INotice,
  IQueueRow,
  IShapes,
  IState,
  IWhy
} from '../tokens';

/** Noon of some day; all times of the worlds are around it. */
export const NOON = 1_800_000_000;

export function lease(part: Partial<ILease> = {}): ILease {
  return {
    attempt: 1,
    since: NOON - 3600,
    expires: NOON + 3600,
    mode: 'held',
    shares: [{ node: 'node1', device: 'GPU-1-0', milli: 500, memory_mib: 40960 }],
    guarantees: {
      memory: 'cooperative',
      fault: false,
      parkable: true,
      sentence: 'Memory is shared by agreement.'
    },
    prepared: true,
    ...part
  };
}

export function session(part: Partial<IJob> = {}): IJob {
  return {
    id: 's-abc',
    kind: 'session',
    user: 'ana',
    queue: 'research',
    class: 'interactive',
    name: '',
    state: 'running',
    stage: '',
    since: NOON - 3600,
    submitted: NOON - 3660,
    deadline: NOON + 3600,
    request: {
      nodes: 1,
      gpus: 0,
      gpu_milli: 500,
      memory_mib: 0,
      flavors: [],
      time_limit: 7200,
      words: '0.5 GPU'
    },
    lease: lease(),
    notice: null,
    why: null,
    kept: [],
    parked_for: null,
    server: 'ana/',
    idle: null,
    keeps_left: 2,
    attempt: 1,
    restarts: 0,
    max_restarts: 3,
    preemptions: 0,
    checkpoint: null,
    code: null,
    failed_rank: null,
    outcome: '',
    gpu_seconds: 0,
    ...part
  };
}

export function batch(part: Partial<IJob> = {}): IJob {
  return session({
    id: 'b-xyz',
    kind: 'batch',
    class: 'batch',
    name: 'train-ddp',
    server: '',
    lease: null,
    attempt: 0,
    state: 'queued',
    ...part
  });
}

export function why(part: Partial<IWhy> = {}): IWhy {
  return {
    code: 'capacity',
    text: 'No machine has half a GPU free.',
    position: 2,
    waits_for: ['s-1'],
    waits_for_users: ['ben'],
    until: NOON + 120,
    ...part
  };
}

export function notice(part: Partial<INotice> = {}): INotice {
  return {
    id: 'n-1',
    reason: 'idle',
    deadline: NOON + 100,
    for_job: 'b-xyz',
    for_user: 'trainer',
    text: 'trainer needs this GPU for train-ddp.',
    can_keep: true,
    ...part
  };
}

export function kept(part: Partial<IKept> = {}): IKept {
  return { kernel: 'k1', rung: 'gpu_state', memory_mib: 2048, node: 'node1', ...part };
}

export function device(part: Partial<IDevice> = {}): IDevice {
  return {
    uuid: 'GPU-1-0',
    index: 0,
    flavor: 'A100',
    memory_mib: 81920,
    mig: false,
    island: 0,
    usable: true,
    note: '',
    free_milli: 1000,
    users: [],
    kinds: [],
    mine: false,
    ...part
  };
}

export function node(part: Partial<INode> = {}): INode {
  const devices = [device(), device({ uuid: 'GPU-1-1', index: 1 })];
  return { name: 'node1', usable: true, note: '', devices, ...part };
}

export function row(part: Partial<IQueueRow> = {}): IQueueRow {
  return {
    id: 'b-xyz',
    kind: 'batch',
    user: 'trainer',
    queue: 'research',
    class: 'batch',
    name: 'train-ddp',
    words: '2 × 3 GPUs',
    submitted: NOON - 42,
    why: why({ position: 1 }),
    mine: false,
    ...part
  };
}

export function shapes(part: Partial<IShapes> = {}): IShapes {
  return {
    gpus_per_node: [1, 2],
    nodes: 1,
    flavors: ['A100'],
    device_memory_mib: 81920,
    queues: ['research'],
    classes: [
      { name: 'interactive', kinds: ['session'], time_default: 7200, time_max: 28800 },
      { name: 'batch', kinds: ['batch'], time_default: 3600, time_max: 604800 }
    ],
    free_gpus: 2,
    ...part
  };
}

export function world(part: Partial<IState> = {}): IState {
  return {
    broker: { ok: true, problem: null },
    me: { kind: 'user', user: 'ana', admin: false, server: '' },
    session: null,
    kernels: [],
    jobs: [],
    queue: [],
    nodes: [node()],
    shapes: shapes(),
    notices: [],
    seq: 1,
    ...part
  };
}

/** An answer as the client sees it. */
export function answer(body: unknown, status = 200, date = ''): Response {
  return {
    ok: status < 400,
    status,
    headers: new Headers(date ? { Date: date } : {}),
    json: () => (body === undefined ? Promise.reject(new Error('not JSON')) : Promise.resolve(body))
  } as unknown as Response;
}

/** A server extension in memory: what was posted, and what it answers to it. */
export class Server {
  readonly posts: [string, unknown][] = [];
  readonly questions: string[] = [];
  reloads = 0;
  /** How many posts came before documents were saved; null: they never were. */
  savedBefore: number | null = null;
  /** What the person in front of it answers to every question. */
  consents = true;
  refusal: Response | null = null;

  readonly fetch: Fetch = async (path, init) => {
    this.posts.push([path, JSON.parse(String(init?.body ?? '{}'))]);
    return this.refusal ?? answer({});
  };

  readonly actions: IActions = makeActions({
    client: new Client((path, init) => this.fetch(path, init)),
    model: {
      refresh: async () => {
        this.reloads += 1;
      }
    },
    ask: (async question => {
      this.questions.push(question.title);
      return this.consents;
    }) as Ask,
    restartKernel: async id => {
      this.posts.push([`restart ${id}`, {}]);
    },
    saveAll: async () => {
      this.savedBefore = this.posts.length;
    }
  });
}
