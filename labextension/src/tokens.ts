// SPDX-License-Identifier: BSD-3-Clause
/**
 * The words of the wire (jupyter_gpubroker/wire.py) as types, and the one token other
 * extensions need. Times are seconds since the epoch, durations are seconds, `_milli`
 * is a thousandth of a GPU.
 */
import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { Widget } from '@lumino/widgets';

export type Kind = 'batch' | 'session';

export type JobState =
  | 'held'
  | 'queued'
  | 'starting'
  | 'running'
  | 'draining'
  | 'stopping'
  | 'parked'
  | 'completed'
  | 'failed'
  | 'cancelled';

export type Reason =
  | 'idle'
  | 'preempted'
  | 'user'
  | 'cell'
  | 'start'
  | 'drain'
  | 'time'
  | 'over'
  | 'lost'
  | 'holder'
  | 'release'
  | 'cancel';

/** What a parked kernel kept, best first. */
export type Rung = 'gpu_state' | 'variables' | 'server' | 'nothing';

export interface IRequest {
  nodes: number;
  gpus: number;
  gpu_milli: number;
  memory_mib: number;
  flavors: string[];
  time_limit: number | null;
  words: string;
}

export interface IShare {
  node: string;
  device: string;
  milli: number;
  memory_mib: number;
}

export interface ILease {
  attempt: number;
  since: number;
  expires: number;
  mode: 'hosted' | 'held';
  shares: IShare[];
  guarantees: { memory: string; fault: boolean; parkable: boolean; sentence: string };
  prepared: boolean;
}

export interface INotice {
  id: string;
  reason: Reason;
  deadline: number;
  for_job: string | null;
  for_user: string | null;
  text: string;
  can_keep: boolean;
}

/** An open notice of one of my Jobs. */
export interface IOpenNotice extends INotice {
  job: string;
}

export interface IWhy {
  code: string;
  text: string;
  position: number;
  waits_for: string[];
  waits_for_users: string[];
  until: number | null;
}

export interface IKept {
  kernel: string;
  rung: Rung;
  memory_mib: number;
  node: string;
}

/** The idle clock; `since` is null while in use, `after` counts from `since`. */
export interface IIdle {
  idle: boolean;
  since: number | null;
  after: number;
  facts: string;
}

export interface IJob {
  id: string;
  kind: Kind;
  user: string;
  queue: string;
  class: string;
  name: string;
  state: JobState;
  stage: string;
  since: number;
  submitted: number;
  deadline: number | null;
  request: IRequest;
  lease: ILease | null;
  notice: INotice | null;
  why: IWhy | null;
  kept: IKept[];
  parked_for: Reason | null;
  server: string;
  idle: IIdle | null;
  keeps_left: number;
  attempt: number;
  restarts: number;
  max_restarts: number;
  preemptions: number;
  checkpoint: number | null;
  code: number | null;
  failed_rank: number | null;
  outcome: string;
  gpu_seconds: number;
}

export interface IQueueRow {
  id: string;
  kind: Kind;
  user: string;
  queue: string;
  class: string;
  name: string;
  words: string;
  submitted: number;
  why: IWhy | null;
  mine: boolean;
}

export interface IDevice {
  uuid: string;
  index: number;
  flavor: string;
  memory_mib: number;
  /** A MIG slice. */
  mig: boolean;
  /** GPUs of a node with the same number lie close together. */
  island: number;
  usable: boolean;
  note: string;
  free_milli: number;
  users: string[];
  /** session, batch, leaving, quarantined */
  kinds: string[];
  mine: boolean;
}

export interface INode {
  name: string;
  usable: boolean;
  note: string;
  devices: IDevice[];
}

export interface IShapes {
  /** The numbers of whole GPUs that some machine has. */
  gpus_per_node: number[];
  nodes: number;
  flavors: string[];
  device_memory_mib: number;
  queues: string[];
  classes: { name: string; kinds: Kind[]; time_default: number; time_max: number }[];
  free_gpus: number;
}

export interface ILog {
  rank: number;
  text: string;
  next_offset: number;
  size: number;
  ranks: number[];
  ended: boolean;
}

/** A kernel of this server and how it is bound to the lease. */
export interface IKernel {
  id: string;
  name: string;
  path: string;
  bound: boolean;
  needs_restart: boolean;
  /** False: its kernelspec has a provisioner of its own. */
  managed: boolean;
}

/** GET gpubroker/state: all that the sidebar shows, in one answer. */
export interface IState {
  broker: { ok: boolean; problem: string | null };
  me: { kind: string; user: string; admin: boolean; server: string | null };
  session: IJob | null;
  kernels: IKernel[];
  jobs: IJob[];
  queue: IQueueRow[];
  nodes: INode[];
  shapes: IShapes | null;
  notices: IOpenNotice[];
  seq: number;
}

/** The body of POST sessions. */
export interface ISessionIn {
  request: { gpus: number; time?: number; flavors?: string[] };
  queue?: string;
  class?: string;
}

/** One section of the sidebar; its heading is the widget's `title.label`. */
export interface IGPUBrokerPanel {
  /** Unique, kept in the browser to remember whether the section is folded. */
  id: string;
  /** Smaller is further up. The built-in sections have 10, 20, 30 and 40. */
  rank: number;
  widget: Widget;
}

/** The sections of the sidebar: `add` one, dispose what it returns to remove it. */
export interface IGPUBrokerPanels {
  add(panel: IGPUBrokerPanel): IDisposable;
}

export const IGPUBrokerPanels = new Token<IGPUBrokerPanels>(
  'jupyter-gpubroker:IGPUBrokerPanels',
  'The sections of the GPU sidebar.'
);
