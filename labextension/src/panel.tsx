// SPDX-License-Identifier: BSD-3-Clause
/** Binds a panel's React component to the model and the clock as a Lumino widget. */
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { IActions } from './actions';
import type { Clock } from './clock';
import type { IView, Model } from './model';
import type { IState } from './tokens';
import type { IPanelProps } from './ui';

/** What every panel shares. */
export interface IShared {
  model: Model;
  clock: Clock;
  actions: IActions;
}

export function useView(model: Model): IView {
  return React.useSyncExternalStore(
    React.useCallback(
      notify => {
        model.changed.connect(notify);
        return () => void model.changed.disconnect(notify);
      },
      [model]
    ),
    () => model.view
  );
}

function useNow(clock: Clock): number {
  return React.useSyncExternalStore(
    React.useCallback(
      notify => {
        clock.ticked.connect(notify);
        return () => void clock.ticked.disconnect(notify);
      },
      [clock]
    ),
    () => clock.now
  );
}

interface IBoundProps {
  shared: IShared;
  view: React.FunctionComponent<IPanelProps>;
}

function Bound({ shared, view: View }: IBoundProps): JSX.Element | null {
  const { state, skew, link } = useView(shared.model);
  const now = useNow(shared.clock) + skew;
  if (state === null) {
    return link === 'loading' ? <p className="gpub-empty">Loading…</p> : null;
  }
  return <View state={state} now={now} actions={shared.actions} />;
}

/** A section of our own: `label` is its heading, from what the state says. */
export class PanelWidget extends ReactWidget {
  constructor(
    private readonly _shared: IShared,
    private readonly _view: React.FunctionComponent<IPanelProps>,
    private readonly _label: (state: IState | null) => string
  ) {
    super();
    this.addClass('gpub-panel');
    this._relabel();
    _shared.model.changed.connect(this._relabel, this);
  }

  protected override render(): JSX.Element {
    return <Bound shared={this._shared} view={this._view} />;
  }

  private _relabel(): void {
    this.title.label = this._label(this._shared.model.view.state);
  }
}
