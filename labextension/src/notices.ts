// SPDX-License-Identifier: BSD-3-Clause
/**
 * Tells a person that a GPU is about to go, once per browser, and saves documents.
 * Knows no JupyterLab: what shows and saves is handed in.
 */
import type { IActions } from './actions';
import { clockTime, duration } from './format';
import type { IJob, INotice, IState, JobState, Reason } from './tokens';

/** JupyterLab cuts a message after so many characters. */
const MESSAGE = 140;

/** Reasons that are the person's own doing, or told elsewhere: no message for these. */
const OWN: ReadonlySet<Reason> = new Set(['user', 'cell', 'start', 'release', 'cancel']);

/** A message with buttons. */
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
    const open = openNotices(state);
    const due = reminder(state.session, now);
    this._withdraw(due === null ? open : [...open, due]);
    for (const told of open) {
      if (told.job.kind === 'session') {
        this._save(told.id);
      }
      if (!OWN.has(told.notice.reason)) {
        this._once(told, () => this._toast(told, now));
      }
    }
    if (due !== null) {
      this._save(due.id);
      this._once(due, () => this._reminder(due));
    }
  }

  /** Takes back what was answered, and what has got beyond its buttons. */
  private _withdraw(open: ITold[]): void {
    for (const [id, shown] of [...this._shown]) {
      if (open.find(told => told.id === id)?.job.state !== shown.state) {
        this._desk.dismiss(shown.toast);
        this._shown.delete(id);
      }
    }
  }

  private _once({ id, job }: ITold, toast: () => IToast): void {
    if (!this._seen.has(id)) {
      this._seen.add(id);
      this._shown.set(id, { toast: this._desk.show(toast()), state: job.state });
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

  private _toast({ notice, job }: IOpen, now: number): IToast {
    const message = noticeWords(notice, job, now);
    if (job.kind !== 'session' || job.state !== 'draining') {
      return { message, actions: [] };
    }
    const give = this._action('Give it now', 'Park at once; what can be kept is kept', () =>
      this._actions.giveNow(job.id)
    );
    const keep = this._action('Keep', 'I still need it', () => this._actions.keep(job.id));
    return { message, actions: notice.can_keep ? [{ ...keep, accent: true }, give] : [give] };
  }

  private _reminder({ job: session, minutes }: IReminder): IToast {
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

  private readonly _shown = new Map<string, { toast: string; state: JobState }>();
  private readonly _saved = new Set<string>();
}

/** Something to tell about a Job, once per id. */
interface ITold {
  id: string;
  job: IJob;
}

interface IOpen extends ITold {
  notice: INotice;
}

function openNotices(state: IState): IOpen[] {
  const jobs = [state.session, ...state.jobs];
  return state.notices.flatMap(notice => {
    const job = jobs.find(item => item?.id === notice.job);
    return job ? [{ id: notice.id, job, notice }] : [];
  });
}

/** When it goes, who needs it, what is kept: as much of that as JupyterLab shows. */
export function noticeWords(notice: INotice, job: IJob, now: number): string {
  const what = job.kind === 'session' ? 'Your GPU' : `Your job ${cut(job.name || job.id, 24)}`;
  const left = notice.deadline - now;
  const when =
    job.state === 'draining' && left > 0
      ? `goes at ${clockTime(notice.deadline, now)} (${duration(left)})`
      : job.kind === 'session'
        ? 'is taken back now'
        : 'has to stop now';
  return cut(`${what} ${when}. ${notice.text}`, MESSAGE);
}

function cut(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

interface IReminder extends ITold {
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
  return { id: `time:${session.id}:${Math.round(expires)}:${minutes}`, job: session, minutes };
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
