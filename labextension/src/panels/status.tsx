// SPDX-License-Identifier: BSD-3-Clause
/** The top of the sidebar: what is free, and what exactly is missing if something is. */
import * as React from 'react';

import { capacity, gpus } from '../format';
import type { IView } from '../model';
import { Callout } from '../ui';

interface IStatusProps {
  view: IView;
  refresh: () => void;
}

export function Status({ view, refresh }: IStatusProps): JSX.Element {
  return (
    <>
      <div className="gpub-top">
        <span className="gpub-summary">{summary(view)}</span>
        <button
          type="button"
          className="gpub-refresh"
          title="Load again"
          aria-label="Load again"
          onClick={refresh}
        >
          <svg viewBox="0 0 18 18" width="16" height="16" aria-hidden="true">
            <path d="M9 13.5c-2.490 0-4.500-2.010-4.500-4.500S6.510 4.500 9 4.500c1.240 0 2.360.520 3.170 1.330L10 8h5V3l-1.760 1.760C12.150 3.680 10.660 3 9 3 5.690 3 3.010 5.690 3.010 9S5.690 15 9 15c2.970 0 5.430-2.160 5.900-5h-1.520c-.460 2-2.240 3.500-4.380 3.500z" />
          </svg>
        </button>
      </div>
      <Missing view={view} />
    </>
  );
}

function summary({ link, state }: IView): string {
  if (state !== null && state.nodes.length > 0) {
    const { free, total } = capacity(state.nodes);
    return total === 0 ? 'No usable GPU' : `${free / 1000} of ${gpus(total)} free`;
  }
  return link === 'loading' ? 'Loading…' : 'GPU Broker';
}

function Missing({ view }: { view: IView }): JSX.Element | null {
  const { link, problem, state } = view;
  if (link === 'missing') {
    return (
      <Callout tone="bad" role="alert">
        <p>{problem} Run this where Jupyter is installed, then restart the server:</p>
        <code className="gpub-command">jupyter server extension enable jupyter_gpubroker</code>
      </Callout>
    );
  }
  if (link === 'refused') {
    return (
      <Callout tone="bad" role="alert">
        {problem}
      </Callout>
    );
  }
  if (link === 'unreachable') {
    return (
      <Callout tone="warn" role="alert">
        {problem} Trying again{state === null ? '.' : '; below is what was last known.'}
      </Callout>
    );
  }
  if (state !== null && !state.broker.ok) {
    return (
      <Callout tone="warn" role="alert">
        {state.broker.problem || 'The GPU broker does not answer.'}
      </Callout>
    );
  }
  return null;
}
