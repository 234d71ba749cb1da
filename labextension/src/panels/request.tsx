// SPDX-License-Identifier: BSD-3-Clause
/** The form for a GPU. It offers only what exists and what the classes allow. */
import * as React from 'react';

import { duration, fitsNow, gpus, memory } from '../format';
import type { ISessionIn, IShapes, IState } from '../tokens';
import { Act, Empty, IRunner } from '../ui';

const SHARES = [0.25, 0.5];
const TIMES = [0.5, 1, 2, 4, 8, 12, 24, 48, 96, 168].map(hours => hours * 3600);

interface IRequestProps {
  state: IState;
  runner: IRunner;
  request: (session: ISessionIn) => Promise<void>;
}

export function RequestForm({ state, runner, request }: IRequestProps): JSX.Element {
  const { shapes } = state;
  const [wish, setWish] = React.useState<IWish>({
    share: 0.5,
    time: 0,
    flavor: '',
    queue: '',
    class: ''
  });
  const choices = shapes === null ? null : choicesOf(shapes, wish.class);
  if (shapes === null || choices === null || choices.shares.length === 0) {
    return <Empty>No machine with a GPU is there at present.</Empty>;
  }
  const now = settle(wish, choices);
  const change = (part: Partial<IWish>): void => setWish({ ...now, ...part });
  const fits = fitsNow(state.nodes, now.share, now.flavor);
  return (
    <form className="gpub-form" onSubmit={event => event.preventDefault()}>
      <Choice
        label="Share"
        value={String(now.share)}
        options={choices.shares.map(share => [String(share), shareWords(share, shapes)])}
        onChange={value => change({ share: Number(value) })}
      />
      <Choice
        label="Time"
        value={String(now.time)}
        options={choices.times.map(time => [String(time), duration(time)])}
        onChange={value => change({ time: Number(value) })}
      />
      {choices.flavors.length > 1 && (
        <Choice
          label="GPU type"
          value={now.flavor}
          options={[['', 'Any'], ...choices.flavors.map(same)]}
          onChange={value => change({ flavor: value })}
        />
      )}
      {choices.classes.length > 1 && (
        <Choice
          label="Class"
          value={now.class}
          options={choices.classes.map(same)}
          onChange={value => change({ class: value, time: 0 })}
        />
      )}
      {choices.queues.length > 1 && (
        <Choice
          label="Queue"
          value={now.queue}
          options={choices.queues.map(same)}
          onChange={value => change({ queue: value })}
        />
      )}
      <div className="gpub-formEnd">
        <span className="gpub-note" role="status">
          {fits
            ? 'Free right now.'
            : 'All taken: you get a place in the queue and see why you wait.'}
        </span>
        <Act runner={runner} label="Request" look="primary" action={() => request(bodyOf(now))} />
      </div>
    </form>
  );
}

/** What a person has chosen; 0 and '' mean the default. */
interface IWish {
  share: number;
  time: number;
  flavor: string;
  queue: string;
  class: string;
}

interface IChoices {
  shares: number[];
  times: number[];
  timeDefault: number;
  flavors: string[];
  queues: string[];
  classes: string[];
}

/** All that can be asked for at all; impossible choices are not in it. */
export function choicesOf(shapes: IShapes, className: string): IChoices {
  const classes = shapes.classes.filter(item => item.kinds.includes('session'));
  const limits = classes.find(item => item.name === className) ?? classes[0];
  const longest = limits?.time_max ?? Infinity;
  const timeDefault = limits?.time_default ?? 7200;
  const times = new Set(TIMES.filter(time => time <= longest));
  times.add(timeDefault);
  if (Number.isFinite(longest)) {
    times.add(longest);
  }
  return {
    shares: shapes.gpus_per_node.length > 0 ? [...SHARES, ...shapes.gpus_per_node] : [],
    times: [...times].sort((a, b) => a - b),
    timeDefault,
    flavors: shapes.flavors,
    queues: shapes.queues,
    classes: classes.map(item => item.name)
  };
}

/** The wish with defaults filled in and without what is no longer possible. */
function settle(wish: IWish, choices: IChoices): IWish {
  const pick = <T,>(value: T, among: readonly T[], other: T): T =>
    among.includes(value) ? value : other;
  return {
    share: pick(wish.share, choices.shares, 1),
    time: pick(wish.time, choices.times, choices.timeDefault),
    flavor: pick(wish.flavor, choices.flavors, ''),
    queue: pick(wish.queue, choices.queues, choices.queues[0] ?? ''),
    class: pick(wish.class, choices.classes, choices.classes[0] ?? '')
  };
}

function bodyOf(wish: IWish): ISessionIn {
  return {
    request: {
      gpus: wish.share,
      time: wish.time,
      ...(wish.flavor && { flavors: [wish.flavor] })
    },
    ...(wish.queue && { queue: wish.queue }),
    ...(wish.class && { class: wish.class })
  };
}

function shareWords(share: number, shapes: IShapes): string {
  const words = gpus(share * 1000);
  return share < 1 && shapes.device_memory_mib > 0
    ? `${words} (${memory(Math.floor(shapes.device_memory_mib * share))})`
    : words;
}

function same(value: string): [string, string] {
  return [value, value];
}

interface IChoiceProps {
  label: string;
  value: string;
  options: [string, string][];
  onChange: (value: string) => void;
}

function Choice({ label, value, options, onChange }: IChoiceProps): JSX.Element {
  return (
    <label className="gpub-choice">
      <span>{label}</span>
      <select value={value} onChange={event => onChange(event.target.value)}>
        {options.map(([key, words]) => (
          <option key={key} value={key}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}
