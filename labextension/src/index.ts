// SPDX-License-Identifier: BSD-3-Clause
/** The plugins: the sidebar with its sections, and the notices. */
import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import {
  Dialog,
  ICommandPalette,
  Notification,
  ReactWidget,
  showDialog
} from '@jupyterlab/apputils';
import { KernelAPI, ServerConnection } from '@jupyterlab/services';
import * as React from 'react';

import { Ask, makeActions } from './actions';
import { Client } from './client';
import { Clock } from './clock';
import { gpuIcon } from './icons';
import { Model } from './model';
import { IDesk, Notices, storedSeen, untilReminder } from './notices';
import { IShared, PanelWidget, useView } from './panel';
import { Cluster } from './panels/cluster';
import { Jobs } from './panels/jobs';
import { MyGPU } from './panels/mygpu';
import { Queue } from './panels/queue';
import { Status } from './panels/status';
import { Sidebar } from './sidebar';
import { IGPUBrokerPanels, IState } from './tokens';
import { ended } from './format';

export * from './tokens';

const SHOW = 'gpubroker:show-panel';
/** Browsers' timers overflow after 24 days; an hour is always safe. */
const HOUR = 3600;

const sidebar: JupyterFrontEndPlugin<IGPUBrokerPanels> = {
  id: 'jupyter-gpubroker:sidebar',
  description: 'My GPU, my jobs, the queue and the cluster in a sidebar, and notices.',
  autoStart: true,
  provides: IGPUBrokerPanels,
  optional: [ILayoutRestorer, ICommandPalette],
  activate
};

export default sidebar;

function activate(
  app: JupyterFrontEnd,
  restorer: ILayoutRestorer | null,
  palette: ICommandPalette | null
): IGPUBrokerPanels {
  const shared = share(app);
  const { model, clock } = shared;
  const panels = new Sidebar(clock, new StatusWidget(model));
  panels.title.icon = gpuIcon;
  panels.title.caption = 'GPU Broker';
  panels.node.setAttribute('aria-label', 'GPU Broker');
  addOurPanels(panels, shared);
  model.changed.connect(({ view: { link, state } }) =>
    panels.content.setHidden(link === 'missing' || (state === null && link !== 'loading'))
  );
  app.shell.add(panels, 'left', { rank: 501, type: 'GPU Broker' });
  restorer?.add(panels, 'gpubroker-sidebar');
  app.commands.addCommand(SHOW, {
    label: 'GPU Broker',
    caption: 'Show my GPU, my jobs, the queue and the cluster',
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => app.shell.activateById(panels.id)
  });
  palette?.addItem({ command: SHOW, category: 'GPU' });
  followNotices(app, shared);
  return panels;
}

function share(app: JupyterFrontEnd): IShared {
  const settings = app.serviceManager.serverSettings;
  const client = new Client((path, init = {}) =>
    ServerConnection.makeRequest(`${settings.baseUrl}gpubroker/${path}`, init, settings)
  );
  const model = new Model(client);
  app.serviceManager.events.stream.connect((_, event) => model.onEvent(event));
  const saveAll = (): Promise<void> => saveDocuments(app);
  const restartKernel = (id: string): Promise<void> => KernelAPI.restartKernel(id, settings);
  const actions = makeActions({ client, model, ask, restartKernel, saveAll });
  return { model, clock: new Clock(), actions };
}

function addOurPanels(panels: Sidebar, shared: IShared): void {
  const count = (title: string, n: number | undefined): string => (n ? `${title} (${n})` : title);
  const running = (state: IState | null): number | undefined =>
    state?.jobs.filter(job => job.kind === 'batch' && !ended(job)).length;
  const mygpu = new PanelWidget(shared, MyGPU, () => 'My GPU');
  const jobs = new PanelWidget(shared, Jobs, state => count('My jobs', running(state)));
  const queue = new PanelWidget(shared, Queue, state => count('Queue', state?.queue.length));
  const cluster = new PanelWidget(shared, Cluster, () => 'Cluster');
  panels.add({ id: 'mygpu', rank: 10, widget: mygpu });
  panels.add({ id: 'jobs', rank: 20, widget: jobs });
  panels.add({ id: 'queue', rank: 30, widget: queue });
  panels.add({ id: 'cluster', rank: 40, widget: cluster });
}

class StatusWidget extends ReactWidget {
  constructor(private readonly _model: Model) {
    super();
    this.addClass('gpub-status');
  }

  protected override render(): JSX.Element {
    const model = this._model;
    const Bound = (): JSX.Element =>
      React.createElement(Status, { view: useView(model), refresh: () => void model.refresh() });
    return React.createElement(Bound);
  }
}

const ask: Ask = async ({ title, body, accept }) => {
  const buttons = [Dialog.cancelButton({ label: 'Back' }), Dialog.warnButton({ label: accept })];
  // Enter must not destroy anything.
  return (await showDialog({ title, body, buttons, defaultButton: 0 })).button.accept;
};

function followNotices(app: JupyterFrontEnd, { model, actions }: IShared): void {
  const notices = new Notices(desk(app), storedSeen(window.localStorage), actions);
  let timer = 0;
  const follow = (): void => {
    window.clearTimeout(timer);
    const { state, skew } = model.view;
    if (state === null) {
      return;
    }
    const now = Date.now() / 1000 + skew;
    notices.follow(state, now);
    const next = untilReminder(state.session, now);
    if (next !== null) {
      timer = window.setTimeout(follow, Math.min(next + 1, HOUR) * 1000);
    }
  };
  model.changed.connect(follow);
}

async function saveDocuments({ commands }: JupyterFrontEnd): Promise<void> {
  if (commands.hasCommand('docmanager:save-all')) {
    await commands.execute('docmanager:save-all');
  }
}

function desk(app: JupyterFrontEnd): IDesk {
  return {
    show: ({ message, actions }) =>
      Notification.warning(message, {
        autoClose: false,
        actions: actions.map(({ label, caption, run, accent }) => ({
          label,
          caption,
          displayType: accent ? ('accent' as const) : ('default' as const),
          callback: () => void run()
        }))
      }),
    dismiss: id => Notification.dismiss(id),
    fail: message => void Notification.error(message, { autoClose: 10_000 }),
    saveAll: () => saveDocuments(app)
  };
}
