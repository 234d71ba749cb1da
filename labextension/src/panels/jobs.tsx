// SPDX-License-Identifier: BSD-3-Clause
/** My jobs: how each is doing, its logs by rank, and a way to cancel it. */
import * as React from 'react';

import type { IActions } from '../actions';
import { clockTime, duration, ended, gpuHours, jobWords } from '../format';
import type { IJob } from '../tokens';
import { Act, Chip, Empty, Failed, IPanelProps, Unknown, useRunner, WaitsFor } from '../ui';
import { LogTail } from './logs';

export function Jobs({ state, now, actions }: IPanelProps): JSX.Element {
  const jobs = state.jobs.filter(job => job.kind === 'batch');
  if (jobs.length === 0) {
    if (!state.broker.ok) {
      return <Unknown />;
    }
    return (
      <Empty>
        No jobs yet. Put <code>%%gpu_submit</code> on top of a cell to run it as one.
      </Empty>
    );
  }
  const sorted = [...jobs.filter(job => !ended(job)), ...jobs.filter(ended)];
  return (
    <ul className="gpub-list" aria-label="My jobs, newest first">
      {sorted.map(job => (
        <Job key={job.id} job={job} now={now} actions={actions} />
      ))}
    </ul>
  );
}

interface IJobProps {
  job: IJob;
  now: number;
  actions: IActions;
}

function Job({ job, now, actions }: IJobProps): JSX.Element {
  const [open, setOpen] = React.useState(false);
  const words = jobWords(job);
  const id = `gpub-job-${job.id}`;
  return (
    <li className="gpub-job">
      <button
        type="button"
        className="gpub-fold"
        aria-expanded={open}
        aria-controls={id}
        onClick={() => setOpen(!open)}
      >
        <span className="gpub-caret" aria-hidden="true" />
        <span className="gpub-rowBody">
          <span className="gpub-rowLine">
            <span className="gpub-name" title={job.name || job.id}>
              {job.name || job.id}
            </span>
            <Chip tone={words.tone}>{words.title}</Chip>
          </span>
          <span className="gpub-muted">
            {job.request.words} · {when(job, now)}
          </span>
        </span>
      </button>
      {open && (
        <div id={id} className="gpub-jobBody">
          <Details job={job} now={now} actions={actions} />
        </div>
      )}
    </li>
  );
}

/** The one time that matters in its state. */
function when(job: IJob, now: number): string {
  if (ended(job)) {
    return `ended ${clockTime(job.since, now)}`;
  }
  if (job.lease !== null) {
    const { since, expires } = job.lease;
    return `${duration(now - since)} of ${duration(expires - since)}`;
  }
  return `waiting ${duration(now - job.submitted)}`;
}

function Details({ job, now, actions }: IJobProps): JSX.Element {
  const runner = useRunner();
  return (
    <>
      {job.why !== null && <p className="gpub-why">{job.why.text}</p>}
      {job.why !== null && <WaitsFor why={job.why} now={now} />}
      {job.notice !== null && <p className="gpub-why">{job.notice.text}</p>}
      {job.outcome && <p className="gpub-why">{sentence(job)}</p>}
      <dl className="gpub-facts">
        {facts(job).map(([term, fact]) => (
          <React.Fragment key={term}>
            <dt>{term}</dt>
            <dd>{fact}</dd>
          </React.Fragment>
        ))}
      </dl>
      {job.attempt > 0 && <LogTail job={job} logs={actions.logs} />}
      {!ended(job) && job.state !== 'stopping' && (
        <div className="gpub-verbs">
          <Act
            runner={runner}
            label="Cancel job"
            look="danger"
            action={() => actions.cancel(job)}
          />
        </div>
      )}
      <Failed runner={runner} />
    </>
  );
}

/** How it ended; a failing rank is named unless the outcome did so already. */
function sentence(job: IJob): string {
  const rank = job.failed_rank;
  const named = rank === null || job.outcome.includes(`rank ${rank}`);
  return named ? job.outcome : `${job.outcome} (rank ${rank} failed first)`;
}

function facts(job: IJob): [string, string][] {
  const nodes = [...new Set(job.lease?.shares.map(share => share.node) ?? [])];
  const rows: [string, string][] = [
    ['Id', job.id],
    ['Queue', `${job.queue}, class ${job.class}`],
    ['On', nodes.join(', ')],
    ['Attempt', job.attempt > 1 ? String(job.attempt) : ''],
    ['Restarts', job.restarts > 0 ? `${job.restarts} of ${job.max_restarts}` : ''],
    ['Preempted', job.preemptions > 0 ? `${job.preemptions} ×` : ''],
    ['Checkpoint', job.checkpoint === null ? '' : `step ${job.checkpoint}`],
    ['Used', job.gpu_seconds > 0 ? gpuHours(job.gpu_seconds) : '']
  ];
  return rows.filter(([, fact]) => fact !== '');
}
