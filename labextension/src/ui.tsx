// SPDX-License-Identifier: BSD-3-Clause
/** The few parts that all panels are made of. React and CSS variables only. */
import * as React from 'react';

import type { IActions } from './actions';
import { Problem } from './client';
import { Tone, waitsFor } from './format';
import type { IState, IWhy } from './tokens';

/** What a panel is drawn from. */
export interface IPanelProps {
  state: IState;
  /** The broker's time in seconds; ticks while the panel is seen. */
  now: number;
  actions: IActions;
}

/** Runs one action at a time and remembers how the last one failed. */
export interface IRunner {
  busy: string;
  problem: Problem | null;
  run: (name: string, action: () => Promise<void>) => void;
  forget: () => void;
}

export function useRunner(): IRunner {
  const [busy, setBusy] = React.useState('');
  const [problem, setProblem] = React.useState<Problem | null>(null);
  const alive = React.useRef(true);
  React.useEffect(() => {
    alive.current = true;
    return () => {
      alive.current = false;
    };
  }, []);
  const run = (name: string, action: () => Promise<void>): void => {
    setBusy(name);
    setProblem(null);
    action()
      .catch(error => alive.current && setProblem(asProblem(error)))
      .finally(() => alive.current && setBusy(''));
  };
  return { busy, problem, run, forget: () => setProblem(null) };
}

function asProblem(error: unknown): Problem {
  return error instanceof Problem ? error : new Problem(0, String(error));
}

type ButtonLook = 'primary' | 'plain' | 'danger';

interface IActProps {
  runner: IRunner;
  label: string;
  action: () => Promise<void>;
  look?: ButtonLook;
  title?: string;
  disabled?: boolean;
}

/** A button that runs an action and cannot be pressed twice. */
export function Act(props: IActProps): JSX.Element {
  const { runner, label, action, look = 'plain', title, disabled = false } = props;
  return (
    <button
      type="button"
      className={`gpub-button gpub-mod-${look}`}
      title={title}
      disabled={disabled || runner.busy !== ''}
      aria-busy={runner.busy === label}
      onClick={() => runner.run(label, action)}
    >
      {label}
    </button>
  );
}

/** How the last action failed, and what would work. */
export function Failed({ runner }: { runner: IRunner }): JSX.Element | null {
  const { problem } = runner;
  if (problem === null) {
    return null;
  }
  return (
    <Callout tone="bad" role="alert" onClose={runner.forget}>
      {problem.message}
      {problem.remedy && <span className="gpub-remedy">{problem.remedy}</span>}
    </Callout>
  );
}

interface ICalloutProps {
  tone: Tone;
  role?: 'alert' | 'status';
  onClose?: () => void;
  children: React.ReactNode;
}

export function Callout({ tone, role = 'status', onClose, children }: ICalloutProps): JSX.Element {
  return (
    <div className={`gpub-callout gpub-tone-${tone}`} role={role}>
      <div className="gpub-calloutText">{children}</div>
      {onClose && (
        <button type="button" className="gpub-close" aria-label="Dismiss" onClick={onClose}>
          ×
        </button>
      )}
    </div>
  );
}

export function Empty({ children }: { children: React.ReactNode }): JSX.Element {
  return <p className="gpub-empty">{children}</p>;
}

/** In place of a list that is empty only because nobody could be asked. */
export function Unknown(): JSX.Element {
  return <Empty>Not known while the broker does not answer.</Empty>;
}

export function Dot({ tone }: { tone: Tone }): JSX.Element {
  return <span className={`gpub-dot gpub-tone-${tone}`} aria-hidden="true" />;
}

export function Chip({ tone, children }: { tone: Tone; children: string }): JSX.Element {
  return <span className={`gpub-chip gpub-tone-${tone}`}>{children}</span>;
}

interface IMeterProps {
  label: string;
  value: string;
  note?: string;
  /** 0..1 */
  part: number;
  tone: Tone;
}

/** One line of time: what it is, how much, and a thin bar. */
export function Meter({ label, value, note, part, tone }: IMeterProps): JSX.Element {
  const percent = Math.round(Math.min(1, Math.max(0, part)) * 100);
  return (
    <div className="gpub-meter">
      <div className="gpub-meterLine">
        <span className="gpub-muted">{label}</span>
        <span className="gpub-number">{value}</span>
      </div>
      <div className="gpub-track" aria-hidden="true">
        <div className={`gpub-fill gpub-tone-${tone}`} style={{ width: `${percent}%` }} />
      </div>
      {note && <div className="gpub-note">{note}</div>}
    </div>
  );
}

/** For whom a Job waits and until when, where that is known. */
export function WaitsFor({ why, now }: { why: IWhy; now: number }): JSX.Element | null {
  const { whom, until } = waitsFor(why, now);
  if (!whom && !until) {
    return null;
  }
  return (
    <div className="gpub-note">
      {whom}
      {whom && until && ', '}
      <span className="gpub-nowrap">{until}</span>
    </div>
  );
}
