// SPDX-License-Identifier: BSD-3-Clause
/** More time: one button that unfolds into a choice of how much. */
import * as React from 'react';

import { duration } from '../format';
import type { IJob, IState } from '../tokens';
import { Act, IRunner } from '../ui';

const STEPS = [1800, 3600, 7200, 14400];

interface IExtendProps {
  session: IJob;
  state: IState;
  runner: IRunner;
  extend: (session: IJob, seconds: number) => Promise<void>;
  /** The other buttons of the row. */
  children: React.ReactNode;
}

export function Extend({ session, state, runner, extend, children }: IExtendProps): JSX.Element {
  const [open, setOpen] = React.useState(false);
  const [opened, setOpened] = React.useState(false);
  const steps = extensions(session, state);
  const [seconds, setSeconds] = React.useState(3600);
  const chosen = steps.includes(seconds) ? seconds : (steps[0] ?? 0);
  if (!open || steps.length === 0) {
    return (
      <div className="gpub-verbs">
        {steps.length > 0 && (
          <button
            type="button"
            className="gpub-button gpub-mod-plain"
            aria-expanded="false"
            title="Ask for more time"
            autoFocus={opened}
            onClick={() => {
              setOpen(true);
              setOpened(true);
            }}
          >
            Extend
          </button>
        )}
        {children}
      </div>
    );
  }
  return (
    <div
      className="gpub-verbs gpub-extend"
      onKeyDown={event => {
        if (event.key === 'Escape') {
          event.stopPropagation();
          setOpen(false);
        }
      }}
    >
      <label>
        <span className="gpub-hidden">Extend by</span>
        <select autoFocus value={chosen} onChange={event => setSeconds(Number(event.target.value))}>
          {steps.map(step => (
            <option key={step} value={step}>
              {duration(step)}
            </option>
          ))}
        </select>
      </label>
      <Act
        runner={runner}
        label="Extend"
        look="primary"
        action={async () => {
          await extend(session, chosen);
          setOpen(false);
        }}
      />
      <button type="button" className="gpub-button gpub-mod-plain" onClick={() => setOpen(false)}>
        Cancel
      </button>
    </div>
  );
}

/** The steps that its class allows; who else waits is the broker's decision. */
function extensions(session: IJob, state: IState): number[] {
  const limits = state.shapes?.classes.find(item => item.name === session.class);
  const { lease } = session;
  if (limits === undefined || lease === null) {
    return STEPS;
  }
  const most = limits.time_max - (lease.expires - lease.since);
  return STEPS.filter(step => step <= most);
}
