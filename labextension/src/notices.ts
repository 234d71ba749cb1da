// SPDX-License-Identifier: BSD-3-Clause
/**
 * Tells a person that a GPU is about to go, once per browser, and saves documents.
 * Knows no JupyterLab: what shows and saves is handed in.
 */
import type { IActions } from './actions';
import { clockTime, duration } from './format';
import type { IJob, IOpenNotice, IState } from './tokens';

/** A message with buttons; JupyterLab cuts it after 140 characters. */
export interface IToast {
  message: string;
  actions: { label: string; caption: string; run: () => Promise<void>; accent: boolean }[];
}

/** Shows messages, takes them back, and saves what is open. */
export interface IDesk {
  show(toast: IToast): string;
  dismiss(id: string): void;
  fail(message: string): void;
  saveAll(): Promise<void>;
}

/** The ids that this browser has shown, across its tabs. */
export interface ISeen {
  has(id: string): boolean;
  add(id: string): void;
}

/** Minutes before the end of a lease at which a person is reminded. */
const REMIND = [15, 5, 1];

export class Notices {
  constructor(
    private readonly _desk: IDesk,
    private readonly _seen: ISeen,
    private readonly _actions: Pick<IActions, 'keep' | 'giveNow' | 'extend'>
  ) {}

  /** Bring what is shown in line with what is open. `now` is the broker's time. */
  follow(state: IState, now: number): void {
    const open = new Map(state.notices.map(notice => [notice.id, notice]));
    const due = reminder(state.session, now);
    for (const [id, shown] of [...this._shown]) {
      if (!open.has(id) && due?.id !== id) {
        this._desk.dismiss(shown);
        this._shown.delete(id);
      }
    }
    for (const notice of open.values()) {
      this._save(notice.id);
      this._once(notice.id, () => this._toast(notice, state, now));
    }
    if (due !== null) {
      this._save(due.id);
      this._once(due.id, () => this._reminder(due));
    }
  }

  private _once(id: string, toast: () => IToast): void {
    if (!this._seen.has(id)) {
      this._seen.add(id);
      this._shown.set(id, this._desk.show(toast()));
    }
  }

  /** Every tab saves its own documents, whichever of them shows the message. */
  private _save(id: string): void {
    if (this._saved.has(id)) {
      return;
    }
    this._saved.add(id);
    this._desk.saveAll().catch(() => this._desk.fail('Not all documents could be saved.'));
  }

  private _toast(notice: IOpenNotice, state: IState, now: number): IToast {
    const session = state.session?.id === notice.job ? state.session : null;
    const actions = [
      this._action('Give it now', 'Park at once; what can be kept is kept', () =>
        this._actions.giveNow(notice.job)
      )
    ];
    if (notice.can_keep) {
      const keep = this._action('Keep', 'I still need it', () => this._actions.keep(notice.job));
      actions.unshift({ ...keep, accent: true });
    }
    return { message: noticeWords(notice, session, now), actions: session ? actions : [] };
  }

  private _reminder({ session, minutes }: IReminder): IToast {
    const kept = session.lease?.guarantees.parkable
      ? 'Then it is parked.'
      : 'Then kernels that use it restart.';
    return {
      message: `Your GPU time ends in ${minutes} min. ${kept}`,
      actions: [
        this._action('Extend by 1 h', 'Granted if nobody has to wait longer for it', () =>
          this._actions.extend(session, 3600)
        )
      ]
    };
  }

  private _action(
    label: string,
    caption: string,
    call: () => Promise<void>
  ): IToast['actions'][number] {
    const run = async (): Promise<void> => {
      try {
        await call();
      } catch (error) {
        this._desk.fail(error instanceof Error ? error.message : String(error));
      }
    };
    return { label, caption, run, accent: false };
  }

  private readonly _shown = new Map<string, string>();
  private readonly _saved = new Set<string>();
}

/** Who needs the GPU, when it goes, what is kept: at most 140 characters. */
export function noticeWords(notice: IOpenNotice, session: IJob | null, now: number): string {
  const when = `${clockTime(notice.deadline, now)} (${duration(notice.deadline - now)})`;
  const kept = session?.lease?.guarantees.parkable
    ? 'It is parked: your kernels live on.'
    : 'Kernels that use it restart.';
  const who = notice.for_user === null ? '' : `${cut(notice.for_user, 24)} needs your GPU. `;
  const why = who || `${cut(notice.text, 60)} `;
  return `${why}It goes at ${when}. ${kept}`;
}

function cut(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

interface IReminder {
  id: string;
  session: IJob;
  minutes: number;
}

/** The reminder that is due: the last one passed, only for leases that were longer. */
export function reminder(session: IJob | null, now: number): IReminder | null {
  if (session?.state !== 'running' || session.lease === null) {
    return null;
  }
  const { expires, since } = session.lease;
  const left = expires - now;
  const minutes = REMIND.filter(mark => left <= mark * 60 && expires - since > mark * 60).pop();
  if (minutes === undefined || left <= 0) {
    return null;
  }
  return { id: `time:${session.id}:${Math.round(expires)}:${minutes}`, session, minutes };
}

/** Seconds until the next reminder is due, or null. */
export function untilReminder(session: IJob | null, now: number): number | null {
  if (session?.state !== 'running' || session.lease === null) {
    return null;
  }
  const left = session.lease.expires - now;
  const ahead = REMIND.map(mark => left - mark * 60).filter(seconds => seconds > 0);
  return ahead.length ? Math.min(...ahead) : null;
}

/** Remembers the last ids in the browser's storage. */
export function storedSeen(storage: Storage, key = 'jupyter-gpubroker:seen', most = 100): ISeen {
  const read = (): string[] => {
    try {
      const list: unknown = JSON.parse(storage.getItem(key) ?? '[]');
      return Array.isArray(list) ? list.filter(item => typeof item === 'string') : [];
    } catch {
      return [];
    }
  };
  return {
    has: id => read().includes(id),
    add: id => storage.setItem(key, JSON.stringify([...read(), id].slice(-most)))
  };
}
