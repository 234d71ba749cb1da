// SPDX-License-Identifier: BSD-3-Clause
/** The queue: who waits, why, for whom and until when; the same for everybody. */
import * as React from 'react';

import { duration, waitsFor } from '../format';
import type { IQueueRow } from '../tokens';
import { Empty, IPanelProps } from '../ui';

export function Queue({ state, now }: IPanelProps): JSX.Element {
  if (state.queue.length === 0) {
    return <Empty>Nobody waits. What you ask for now starts at once if it fits.</Empty>;
  }
  return (
    <ol className="gpub-list" aria-label="Waiting, next first">
      {state.queue.map((row, index) => (
        <Row key={row.id} row={row} place={row.why?.position || index + 1} now={now} />
      ))}
    </ol>
  );
}

function Row({ row, place, now }: { row: IQueueRow; place: number; now: number }): JSX.Element {
  const name = row.name || (row.kind === 'session' ? 'Session' : row.id);
  const whom = row.why === null ? '' : waitsFor(row.why, now);
  return (
    <li className={`gpub-row${row.mine ? ' gpub-mod-mine' : ''}`}>
      <span className="gpub-place" aria-label={`Position ${place}`}>
        {place}
      </span>
      <div className="gpub-rowBody">
        <div className="gpub-rowLine">
          <span className="gpub-name" title={`${row.id} in queue ${row.queue}, class ${row.class}`}>
            {name}
          </span>
          <span className="gpub-who">{row.mine ? 'you' : row.user}</span>
        </div>
        <div className="gpub-muted">
          {row.words} · {row.queue} · waiting {duration(now - row.submitted)}
        </div>
        {row.why !== null && <div className="gpub-why">{row.why.text}</div>}
        {whom && <div className="gpub-note">{whom}</div>}
      </div>
    </li>
  );
}
