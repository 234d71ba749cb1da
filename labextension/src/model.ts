// SPDX-License-Identifier: BSD-3-Clause
/** What the browser knows: one state, loaded whole whenever something changed. */
import type { IDisposable } from '@lumino/disposable';
import { Poll, Throttler } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { Client, Problem } from './client';
import type { IState } from './tokens';

/** `{seq, changed}` of this schema is emitted whenever the state may have changed. */
export const CHANGED = 'https://events.jupyter.org/jupyter_gpubroker/changed/v1';

/** loading: nothing known yet; missing: our server extension is not there. */
export type Link = 'loading' | 'ok' | 'missing' | 'refused' | 'unreachable';

/** An immutable picture; `state` is the last one known, also while the link is down. */
export interface IView {
  readonly link: Link;
  readonly problem: string;
  readonly state: IState | null;
  /** Seconds that the server's clock is ahead of this browser's. */
  readonly skew: number;
}

const SLOW = { interval: 30_000, backoff: true, max: 120_000 };
const EAGER = { interval: 3_000, backoff: true, max: 60_000 };
/** At most one load in this many ms, however many events arrive. */
const SPACING = 250;
/** Differences below this come from the Date header's resolution, not from clocks. */
const SKEW_MIN = 2;

export class Model implements IDisposable {
  constructor(private readonly _client: Client) {
    this._soon = new Throttler(() => this._poll.refresh(), { limit: SPACING, edge: 'trailing' });
    this._poll = new Poll({
      name: 'jupyter-gpubroker:state',
      factory: () => this._load(),
      frequency: EAGER,
      // A hidden page still learns of an event: its documents may have to be saved.
      standby: () => !this._due && document.hidden
    });
    document.addEventListener('visibilitychange', this._onVisible);
    window.addEventListener('online', this._onVisible);
  }

  get view(): IView {
    return this._view;
  }

  /** Emitted after each change of `view`. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  /** Hand over each event of JupyterLab's own events socket. */
  onEvent(event: { schema_id: string }): void {
    if (event.schema_id === CHANGED) {
      this._due = true;
      void this._soon.invoke();
    }
  }

  /** Load the state now; resolves when it is shown, also when that failed. */
  async refresh(): Promise<void> {
    this._due = true;
    await this._load().catch(() => undefined);
  }

  dispose(): void {
    document.removeEventListener('visibilitychange', this._onVisible);
    window.removeEventListener('online', this._onVisible);
    this._soon.dispose();
    this._poll.dispose();
    Signal.clearData(this);
  }

  private readonly _onVisible = (): void => {
    if (!document.hidden) {
      void this._poll.refresh();
    }
  };

  /** One load at a time; whoever asks meanwhile shares the next one. */
  private async _load(): Promise<void> {
    if (this._loading !== null) {
      this._next ??= this._loading.catch(() => undefined).then(() => this._start());
      return this._next;
    }
    return this._start();
  }

  private _start(): Promise<void> {
    this._next = null;
    this._loading = this._once().finally(() => {
      this._loading = null;
    });
    return this._loading;
  }

  private async _once(): Promise<void> {
    this._due = false;
    try {
      const { state, skew } = await this._client.state();
      const ahead = Math.abs(skew) < SKEW_MIN ? 0 : Math.round(skew);
      this._show({ link: 'ok', problem: '', state, skew: ahead });
      this._poll.frequency = SLOW;
    } catch (error) {
      this._show({ ...this._view, ...failure(error) });
      this._poll.frequency = EAGER;
      throw error;
    }
  }

  private _show(view: IView): void {
    if (this.isDisposed) {
      return;
    }
    this._view = view;
    this._changed.emit();
  }

  private _view: IView = { link: 'loading', problem: '', state: null, skew: 0 };
  private _due = true;
  private _loading: Promise<void> | null = null;
  private _next: Promise<void> | null = null;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _poll: Poll;
  private readonly _soon: Throttler;
}

/** What a failed load means for the person in front of it. */
export function failure(error: unknown): { link: Link; problem: string } {
  const status = error instanceof Problem ? error.status : 0;
  const said = error instanceof Error ? error.message : String(error);
  if (status === 404) {
    return { link: 'missing', problem: 'The server extension jupyter_gpubroker is not enabled.' };
  }
  if (status === 401 || status === 403) {
    return { link: 'refused', problem: 'The Jupyter server no longer knows you. Log in again.' };
  }
  return { link: 'unreachable', problem: said };
}
