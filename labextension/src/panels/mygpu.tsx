// SPDX-License-Identifier: BSD-3-Clause
/** My GPU: the session of this server in words, its clocks, and what can be done with it. */
import * as React from 'react';

import { clockTime, countdown, keptWords, parkedFor, sessionWords } from '../format';
import type { IJob, ILease, IState } from '../tokens';
import {
  Act,
  Callout,
  Dot,
  Failed,
  IPanelProps,
  IRunner,
  Meter,
  Unknown,
  useRunner,
  WaitsFor
} from '../ui';
import { Extend } from './extend';
import { Kernels } from './kernels';
import { RequestForm } from './request';

export function MyGPU({ state, now, actions }: IPanelProps): JSX.Element {
  const runner = useRunner();
  const { session } = state;
  if (session === null && !state.broker.ok) {
    return <Unknown />;
  }
  if (session === null) {
    return (
      <>
        <p className="gpub-lead">
          You have no GPU. Ask for one here, or run <code>%gpu_session request</code> in a notebook.
        </p>
        <RequestForm state={state} runner={runner} request={actions.request} />
        <Failed runner={runner} />
      </>
    );
  }
  const props = { session, state, now, actions, runner };
  return (
    <>
      <Heading session={session} state={state} />
      <Clocks session={session} now={now} />
      <Story session={session} now={now} />
      <Verbs {...props} />
      <Failed runner={runner} />
      {session.lease !== null && (
        <>
          <Kernels kernels={state.kernels} runner={runner} restart={actions.restart} />
          <p className="gpub-note gpub-guarantees">{session.lease.guarantees.sentence}</p>
        </>
      )}
    </>
  );
}

function Heading({ session, state }: { session: IJob; state: IState }): JSX.Element {
  const words = sessionWords(session);
  const where = session.lease === null ? '' : places(session.lease, state);
  return (
    <div className="gpub-heading">
      <div className="gpub-title">
        <Dot tone={words.tone} />
        <span role="status">{words.title}</span>
      </div>
      <div className="gpub-shape">
        <strong>{session.request.words}</strong>
        {where && ` on ${where}`}
      </div>
    </div>
  );
}

/** `node1 · GPU 0 (A100)`: the leased devices by the numbers people know. */
function places(lease: ILease, state: IState): string {
  const devices = new Map(
    state.nodes.flatMap(node => node.devices.map(device => [device.uuid, device]))
  );
  const byNode = new Map<string, string[]>();
  for (const share of lease.shares) {
    const index = devices.get(share.device)?.index;
    const list = byNode.get(share.node) ?? [];
    byNode.set(share.node, index === undefined ? list : [...list, String(index)]);
  }
  const flavors = new Set(lease.shares.map(share => devices.get(share.device)?.flavor ?? ''));
  const chip = [...flavors].filter(Boolean).join(', ');
  const words = [...byNode].map(([node, list]) =>
    list.length ? `${node}, GPU ${list.join(' + ')}` : node
  );
  return words.join('; ') + (chip ? ` (${chip})` : '');
}

function Clocks({ session, now }: { session: IJob; now: number }): JSX.Element | null {
  const { lease, notice, idle } = session;
  if (lease === null || session.state === 'stopping') {
    return null;
  }
  const left = lease.expires - now;
  const span = Math.max(1, lease.expires - lease.since);
  return (
    <div className="gpub-clocks">
      {notice !== null && (
        <Meter
          label={`Leaves at ${clockTime(notice.deadline, now)}`}
          value={`in ${countdown(notice.deadline - now)}`}
          part={(notice.deadline - now) / Math.max(1, notice.deadline - session.since)}
          tone="warn"
        />
      )}
      <Meter
        label={`Yours until ${clockTime(lease.expires, now)}`}
        value={`${countdown(left)} left`}
        part={left / span}
        tone={left < 900 ? 'warn' : 'good'}
      />
      {idle !== null && session.state === 'running' && <IdleClock idle={idle} now={now} />}
    </div>
  );
}

function IdleClock({ idle, now }: { idle: NonNullable<IJob['idle']>; now: number }): JSX.Element {
  if (idle.since === null) {
    return (
      <div className="gpub-meterLine">
        <span className="gpub-muted">Idle</span>
        <span>No, in use</span>
      </div>
    );
  }
  const since = now - idle.since;
  const at = clockTime(idle.since + idle.after, now);
  const reclaimable = idle.idle || since >= idle.after;
  return (
    <Meter
      label={`Idle since ${clockTime(idle.since, now)}`}
      value={countdown(since)}
      note={
        reclaimable
          ? 'It goes when somebody needs it. Running a cell counts as use.'
          : `From ${at} it goes when somebody needs it.`
      }
      part={since / Math.max(1, idle.after)}
      tone={reclaimable ? 'warn' : 'calm'}
    />
  );
}

/** The sentences that belong to a state. */
function Story({ session, now }: { session: IJob; now: number }): JSX.Element | null {
  const { why, notice, state } = session;
  if (state === 'queued' || state === 'held') {
    return <Waiting session={session} now={now} />;
  }
  if (state === 'draining' && notice !== null) {
    return (
      <Callout tone="warn">
        {notice.text}
        {!session.lease?.guarantees.parkable && ' Kernels that use it restart without it.'}
      </Callout>
    );
  }
  if (state === 'stopping') {
    return <p className="gpub-story">{notice?.text || 'Your GPU is being given back.'}</p>;
  }
  if (state === 'parked') {
    return <Parked session={session} now={now} />;
  }
  if (state === 'starting') {
    return (
      <p className="gpub-story">{why?.text || 'The GPU is yours; your kernels get it next.'}</p>
    );
  }
  return null;
}

function Parked({ session, now }: { session: IJob; now: number }): JSX.Element {
  const { deadline, kept, parked_for } = session;
  const until = deadline === null ? '' : `Kept until ${clockTime(deadline, now)}. `;
  const again =
    parked_for === 'time' ? 'Resume asks for its time again.' : 'Running a cell resumes it too.';
  return (
    <div className="gpub-story">
      <p>Because {parkedFor(parked_for)}.</p>
      <p>{keptWords(kept)}</p>
      <p className="gpub-note">{until + again}</p>
    </div>
  );
}

function Waiting({ session, now }: { session: IJob; now: number }): JSX.Element {
  const { why } = session;
  const since = `Waiting since ${clockTime(session.since, now)}.`;
  if (why === null) {
    return <p className="gpub-story">{since}</p>;
  }
  return (
    <div className="gpub-story">
      {why.position > 0 && <span className="gpub-position">Position {why.position}</span>}
      <p>{why.text}</p>
      <WaitsFor why={why} now={now} />
      <p className="gpub-note">
        {since} {session.kept.length > 0 && keptWords(session.kept)}
      </p>
    </div>
  );
}

interface IVerbsProps extends IPanelProps {
  session: IJob;
  runner: IRunner;
}

function Verbs({ session, state, now, actions, runner }: IVerbsProps): JSX.Element {
  const act = (label: string, action: () => Promise<void>, look?: 'primary' | 'danger') => (
    <Act runner={runner} label={label} action={action} {...(look && { look })} />
  );
  switch (session.state) {
    case 'queued':
    case 'held':
      return (
        <div className="gpub-verbs">
          {act('Stop waiting', () => actions.stopWaiting(session))}
          {session.kept.length > 0 && act('Discard', () => actions.discard(session), 'danger')}
        </div>
      );
    case 'draining':
      return (
        <div className="gpub-verbs">
          {session.notice?.can_keep &&
            act(keepLabel(session), () => actions.keep(session.id), 'primary')}
          {act('Give it now', () => actions.giveNow(session.id))}
        </div>
      );
    case 'parked':
      return (
        <div className="gpub-verbs">
          {act('Resume', () => actions.resume(session), 'primary')}
          {act('Discard', () => actions.discard(session), 'danger')}
        </div>
      );
    case 'running':
      return (
        <Extend session={session} state={state} runner={runner} extend={actions.extend}>
          {mayKeep(session, now) && act('Keep', () => actions.keep(session.id))}
          {act('Park', () => actions.park(session))}
          {act('Release', () => actions.release(session), 'danger')}
        </Extend>
      );
    case 'starting':
      return (
        <div className="gpub-verbs">{act('Release', () => actions.release(session), 'danger')}</div>
      );
    default:
      return <></>;
  }
}

/** Keeps are few: none is offered before half of the idle time has passed. */
function mayKeep({ idle, keeps_left }: IJob, now: number): boolean {
  const since = idle?.since ?? null;
  if (idle === null || since === null || keeps_left === 0) {
    return false;
  }
  return idle.idle || now - since >= idle.after / 2;
}

function keepLabel(session: IJob): string {
  return session.keeps_left > 0 ? `Keep (${session.keeps_left} left)` : 'Keep';
}
