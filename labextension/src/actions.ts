// SPDX-License-Identifier: BSD-3-Clause
/** What a person can do here: ask where something would be lost, call, load the news. */
import type { Client } from './client';
import type { Model } from './model';
import type { IJob, IKernel, ILog, ISessionIn } from './tokens';

/** A question before something is lost. */
export interface IQuestion {
  title: string;
  body: string;
  accept: string;
}

export type Ask = (question: IQuestion) => Promise<boolean>;

export interface IActions {
  request(session: ISessionIn): Promise<void>;
  release(session: IJob): Promise<void>;
  park(session: IJob): Promise<void>;
  resume(session: IJob): Promise<void>;
  keep(id: string): Promise<void>;
  /** Park at once because somebody needs the GPU. */
  giveNow(id: string): Promise<void>;
  extend(session: IJob, seconds: number): Promise<void>;
  /** Leave the queue; what is kept stays parked. */
  stopWaiting(session: IJob): Promise<void>;
  discard(session: IJob): Promise<void>;
  cancel(job: IJob): Promise<void>;
  restart(kernel: IKernel): Promise<void>;
  logs(id: string, rank: number, offset: number, limit: number): Promise<ILog>;
}

/** What the actions are made of. */
export interface IMeans {
  client: Client;
  model: Pick<Model, 'refresh'>;
  ask: Ask;
  restartKernel: (id: string) => Promise<void>;
  /** Save all open documents. */
  saveAll: () => Promise<void>;
}

export function makeActions(means: IMeans): IActions {
  const { client, model, ask, restartKernel, saveAll } = means;
  const news = async (call: Promise<unknown>): Promise<void> => {
    try {
      await call;
    } finally {
      await model.refresh();
    }
  };
  // Whatever becomes of kernels, what was written is safe first.
  const saved = async (call: () => Promise<unknown>): Promise<void> => {
    await saveAll();
    await news(call());
  };
  const asked = async (question: IQuestion, call: () => Promise<unknown>): Promise<void> => {
    if (await ask(question)) {
      await saved(call);
    }
  };
  return {
    request: session => news(client.request(session)),
    release: session => asked(RELEASE, () => client.session(session.id, 'release')),
    park: session => saved(() => client.session(session.id, 'park')),
    resume: session => news(client.session(session.id, 'resume')),
    keep: id => news(client.session(id, 'keep')),
    giveNow: id => saved(() => client.session(id, 'park')),
    extend: (session, seconds) => news(client.extend(session.id, seconds)),
    stopWaiting: session =>
      news(client.session(session.id, session.kept.length ? 'park' : 'cancel')),
    discard: session => asked(DISCARD, () => client.session(session.id, 'cancel')),
    cancel: job => asked(cancelQuestion(job), () => client.cancelJob(job.id)),
    restart: kernel => asked(restartQuestion(kernel), () => restartKernel(kernel.id)),
    logs: (id, rank, offset, limit) => client.logs(id, rank, offset, limit)
  };
}

const RELEASE: IQuestion = {
  title: 'Release the GPU?',
  body:
    'Kernels that use the GPU are restarted without it and lose their variables. ' +
    'Park instead to keep them.',
  accept: 'Release'
};

const DISCARD: IQuestion = {
  title: 'Discard what is kept?',
  body: 'The parked state of your kernels is deleted. Notebooks and their outputs stay.',
  accept: 'Discard'
};

function cancelQuestion(job: IJob): IQuestion {
  const name = job.name || job.id;
  const running = job.lease !== null;
  return {
    title: `Cancel ${name}?`,
    body: running
      ? 'All its processes are stopped. Its logs stay.'
      : 'It leaves the queue and loses its place.',
    accept: 'Cancel job'
  };
}

function restartQuestion(kernel: IKernel): IQuestion {
  return {
    title: `Restart the kernel of ${kernel.path || kernel.name}?`,
    body: 'It starts anew with the GPU. Its variables are lost.',
    accept: 'Restart'
  };
}
