// SPDX-License-Identifier: BSD-3-Clause
/** Words for people: durations, times, shares, states. Pure. */
import type { IDevice, IJob, IKept, INode, IWhy, Reason, Rung } from './tokens';

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

/** `40 s`, `12 min`, `2 h 5 min`, `1 d 2 h`: the same words as the broker's. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 90) {
    return `${whole} s`;
  }
  const parts: [number, string][] = [
    [Math.floor(whole / DAY), 'd'],
    [Math.floor((whole % DAY) / HOUR), 'h'],
    [Math.floor((whole % HOUR) / MINUTE), 'min']
  ];
  return parts
    .filter(([n]) => n > 0)
    .slice(0, 2)
    .map(([n, unit]) => `${n} ${unit}`)
    .join(' ');
}

/** A duration that is seen to tick: seconds are shown below one hour. */
export function countdown(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < MINUTE || whole >= HOUR) {
    return duration(whole);
  }
  const rest = String(whole % MINUTE).padStart(2, '0');
  return `${Math.floor(whole / MINUTE)} min ${rest} s`;
}

/** Local time of day; the date too when it is not today. */
export function clockTime(when: number, now: number, locale?: string): string {
  const date = new Date(when * 1000);
  const time = new Intl.DateTimeFormat(locale, { hour: '2-digit', minute: '2-digit' }).format(date);
  if (date.toDateString() === new Date(now * 1000).toDateString()) {
    return time;
  }
  const day = new Intl.DateTimeFormat(locale, { month: 'short', day: 'numeric' }).format(date);
  return `${day}, ${time}`;
}

/** `3.5 GPUs` from milli-GPU. */
export function gpus(milli: number): string {
  const number = String(Math.round(milli) / 1000);
  return `${number} ${milli > 1000 ? 'GPUs' : 'GPU'}`;
}

/** `20 GiB`, `512 MiB`. */
export function memory(mib: number): string {
  return mib < 1024 ? `${mib} MiB` : `${Math.round(mib / 102.4) / 10} GiB`;
}

/** `GPU-hours` as people account them: `0.02`, `3.4`, `120`. */
export function gpuHours(seconds: number): string {
  const hours = seconds / HOUR;
  if (hours < 0.01) {
    return '< 0.01 GPU-h';
  }
  return `${hours >= 100 ? Math.round(hours) : Number(hours.toPrecision(2))} GPU-h`;
}

/** `ana`, `ana and ben`, `ana, ben and 3 others`. */
export function names(all: readonly string[]): string {
  const list = [...new Set(all)];
  if (list.length > 3) {
    return `${list.slice(0, 2).join(', ')} and ${list.length - 2} others`;
  }
  return list.length < 2 ? list.join('') : `${list.slice(0, -1).join(', ')} and ${list.at(-1)}`;
}

/** How the state is coloured; never the only carrier of a meaning. */
export type Tone = 'good' | 'busy' | 'wait' | 'warn' | 'bad' | 'calm';

export interface IWords {
  title: string;
  tone: Tone;
}

const STAGES: Record<string, string> = {
  park: 'Parking',
  save: 'Saving variables',
  restart: 'Restarting kernels',
  signal: 'Stopping',
  kill: 'Ending processes',
  fence: 'Waiting for proof that the GPU is free'
};

/** The state of a Session as its heading. */
export function sessionWords(job: IJob): IWords {
  switch (job.state) {
    case 'held':
    case 'queued':
      return { title: job.kept.length ? 'Waiting to resume' : 'Waiting for a GPU', tone: 'wait' };
    case 'starting':
      return { title: job.kept.length ? 'Resuming' : 'Getting your GPU ready', tone: 'busy' };
    case 'running':
      return { title: 'GPU attached', tone: 'good' };
    case 'draining':
      return { title: 'GPU leaves soon', tone: 'warn' };
    case 'stopping':
      return { title: STAGES[job.stage] ?? 'Stopping', tone: 'busy' };
    case 'parked':
      return { title: 'Parked', tone: 'calm' };
    default:
      return jobWords(job);
  }
}

/** The state of a batch Job as one word. */
export function jobWords(job: IJob): IWords {
  switch (job.state) {
    case 'held':
      return { title: 'Held', tone: 'calm' };
    case 'queued':
      return {
        title: job.why?.position ? `${ordinal(job.why.position)} in line` : 'Waiting',
        tone: 'wait'
      };
    case 'starting':
      return { title: 'Starting', tone: 'busy' };
    case 'running':
      return { title: 'Running', tone: 'good' };
    case 'draining':
      return { title: 'Leaving', tone: 'warn' };
    case 'stopping':
      return { title: 'Stopping', tone: 'warn' };
    case 'parked':
      return { title: 'Parked', tone: 'calm' };
    case 'completed':
      return { title: 'Completed', tone: 'good' };
    case 'failed':
      return { title: 'Failed', tone: 'bad' };
    case 'cancelled':
      return { title: 'Cancelled', tone: 'calm' };
  }
}

/** Whether the Job has reached its end. */
export function ended(job: IJob): boolean {
  return job.state === 'completed' || job.state === 'failed' || job.state === 'cancelled';
}

/** `1st`, `2nd`, `13th`. */
export function ordinal(n: number): string {
  const teen = n % 100 >= 11 && n % 100 <= 13;
  const suffix = teen ? 'th' : (['th', 'st', 'nd', 'rd'][n % 10] ?? 'th');
  return `${n}${suffix}`;
}

const PARKED_FOR: Record<Reason, string> = {
  idle: 'it was idle and another job needed the GPU',
  preempted: 'another job needed the GPU',
  user: 'you asked for it',
  cell: 'your cell was done',
  start: 'the GPU could not be attached',
  drain: 'the machine is in maintenance',
  time: 'its time was over',
  over: 'it used more than its share',
  lost: 'its machine was lost',
  holder: 'its Jupyter server went away',
  release: 'it was released',
  cancel: 'it was cancelled'
};

/** Why a Session was parked, as the end of a sentence. */
export function parkedFor(reason: Reason | null): string {
  return reason === null ? 'its GPU was needed' : PARKED_FOR[reason];
}

const RUNGS: Rung[] = ['gpu_state', 'variables', 'server', 'nothing'];

/** What is kept, told by the worst that happened to any kernel. */
export function keptWords(kept: readonly IKept[]): string {
  const worst = RUNGS[Math.max(-1, ...kept.map(item => RUNGS.indexOf(item.rung)))];
  const mib = kept.reduce((sum, item) => sum + item.memory_mib, 0);
  switch (worst) {
    case 'gpu_state':
      return mib > 0
        ? `Everything is kept: your kernels live on, ${memory(mib)} of GPU memory is in host memory.`
        : 'Everything is kept: your kernels live on.';
    case 'variables':
      return 'Your variables are saved. Kernels start anew and offer to restore them.';
    case 'server':
      return 'Notebooks and their outputs are kept, variables are not.';
    default:
      return 'Nothing could be kept.';
  }
}

/** Whom a Job waits for, unless its sentence says so already, and until when. */
export function waitsFor(why: IWhy, now: number): { whom: string; until: string } {
  const said = why.waits_for_users.every(user => why.text.includes(user));
  const whom = said ? '' : `For ${names(why.waits_for_users)}`;
  if (why.until === null) {
    return { whom, until: '' };
  }
  const left = why.until - now;
  const word = whom ? 'until' : 'Until';
  const rest = left > 0 ? ` (${left < 600 ? countdown(left) : duration(left)})` : '';
  return { whom, until: `${word} ${clockTime(why.until, now)}${rest}` };
}

export type Colour = 'free' | 'session' | 'batch' | 'leaving' | 'quarantined' | 'unusable';

/** The colour of a device: what matters most to someone who looks for a free one. */
export function deviceColour(device: IDevice, node: INode): Colour {
  if (device.kinds.includes('quarantined')) {
    return 'quarantined';
  }
  if (!device.usable || !node.usable) {
    return 'unusable';
  }
  for (const kind of ['leaving', 'batch', 'session'] as const) {
    if (device.kinds.includes(kind)) {
      return kind;
    }
  }
  return 'free';
}

/** A device in one sentence, for titles and screen readers. */
export function deviceWords(device: IDevice, node: INode): string {
  const what = `GPU ${device.index} on ${node.name}`;
  const chip = [device.flavor, memory(device.memory_mib)].filter(Boolean).join(', ');
  const colour = deviceColour(device, node);
  const used = 1000 - device.free_milli;
  const note = device.note || node.note;
  let said = 'free';
  if (colour === 'unusable' || colour === 'quarantined') {
    said = `${colour === 'unusable' ? 'not usable' : 'quarantined'}${note ? `: ${note}` : ''}`;
  } else if (used > 0) {
    const share = used >= 1000 ? 'in use' : `${Math.round(used / 10)} % in use`;
    const who = device.users.length ? ` by ${names(device.users)}` : '';
    const words = device.kinds.map(kind => (kind === 'batch' ? 'job' : kind));
    const kinds = words.length ? ` (${names(words)})` : '';
    said = share + who + kinds;
  }
  return `${what} (${chip}): ${said}${device.mine ? '; yours' : ''}`;
}

/** Free and whole milli-GPU of the machines that can be used. */
export function capacity(nodes: readonly INode[]): { free: number; total: number } {
  let free = 0;
  let total = 0;
  for (const node of nodes.filter(item => item.usable)) {
    for (const device of node.devices.filter(item => item.usable)) {
      free += device.free_milli;
      total += 1000;
    }
  }
  return { free, total };
}

/** Whether a Session of `share` GPUs would find its place on one machine now. */
export function fitsNow(nodes: readonly INode[], share: number, flavor = ''): boolean {
  const whole = Math.floor(share);
  const milli = Math.round((share - whole) * 1000);
  return nodes.some(node => {
    const free = node.devices
      .filter(item => node.usable && item.usable && (flavor === '' || item.flavor === flavor))
      .map(item => item.free_milli);
    const empty = free.filter(item => item >= 1000).length;
    const partly = milli > 0 && free.some(item => item < 1000 && item >= milli);
    return empty >= whole + (milli > 0 && !partly ? 1 : 0);
  });
}

/** A log as a terminal would leave it: no colours, only what a line was in the end. */
export function plainLog(text: string): string {
  const plain = text.replace(/\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007]*\u0007/g, '');
  return plain
    .replace(/\r+\n/g, '\n')
    .split('\n')
    .map(line => line.slice(line.lastIndexOf('\r', line.length - 2) + 1).replace(/\r$/, ''))
    .join('\n');
}
