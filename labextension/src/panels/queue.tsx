// SPDX-License-Identifier: BSD-3-Clause
/** The queue: who waits, why, for whom and until when; the same for everybody. */
import * as React from 'react';

import { duration } from '../format';
import type { IQueueRow } from '../tokens';
import { Empty, IPanelProps, Unknown, WaitsFor } from '../ui';

export function Queue({ state, now }: IPanelProps): JSX.Element {
  if (state.queue.length === 0 && !state.broker.ok) {
    return <Unknown />;
  }
  if (state.queue.length === 0) {
    return <Empty>Nobody waits. What you ask for now starts at once if it fits.</Empty>;
  }
  const several = new Set(state.queue.map(row => row.queue)).size > 1;
  return (
    <ol className="gpub-list" aria-label="Waiting, next first">
      {state.queue.map((row, index) => (
        <Row
          key={row.id}
          row={row}
          place={row.why?.position || index + 1}
          queue={several ? row.queue : ''}
          now={now}
        />
      ))}
    </ol>
  );
}

interface IRowProps {
  row: IQueueRow;
  place: number;
  /** Its queue, where there are several. */
  queue: string;
  now: number;
}

function Row({ row, place, queue, now }: IRowProps): JSX.Element {
  const name = row.kind === 'session' ? sessionName(row) : row.name || row.id;
  return (
    <li className={`gpub-row${row.mine ? ' gpub-mod-mine' : ''}`}>
      <span className="gpub-place">
        <span className="gpub-hidden">Position </span>
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
          {row.words} · {queue && `${queue} · `}
          <span className="gpub-nowrap">waiting {duration(now - row.submitted)}</span>
        </div>
        {row.why !== null && <div className="gpub-why">{row.why.text}</div>}
        {row.why !== null && <WaitsFor why={row.why} now={now} />}
      </div>
    </li>
  );
}

/** A session is named after its server; the default server has no name. */
function sessionName(row: IQueueRow): string {
  const server = row.name.slice(row.name.indexOf('/') + 1);
  return server ? `Session ${server}` : 'Session';
}
