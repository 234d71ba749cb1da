// SPDX-License-Identifier: BSD-3-Clause
/** The sidebar: a header and a registry of sections, each of which can be folded. */
import { SidePanel } from '@jupyterlab/ui-components';
import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import type { Message } from '@lumino/messaging';
import { Panel, PanelLayout, Widget } from '@lumino/widgets';

import type { Clock } from './clock';
import type { IGPUBrokerPanel, IGPUBrokerPanels } from './tokens';

/** Where a browser remembers which sections are folded. */
const FOLDED = 'jupyter-gpubroker:folded:';

export class Sidebar extends SidePanel implements IGPUBrokerPanels {
  constructor(
    private readonly _clock: Clock,
    header: Widget
  ) {
    // Sections are as high as what they show and the whole scrolls; an accordion
    // would share out the height and clip all of them on a small screen.
    super({ content: new Panel() });
    this.id = 'jp-gpubroker';
    this.addClass('gpub-sidebar');
    this.header.addWidget(header);
  }

  add(panel: IGPUBrokerPanel): IDisposable {
    if (this._sections.some(section => section.panel.id === panel.id)) {
      throw new Error(`A GPU sidebar section '${panel.id}' is already there.`);
    }
    const section = new Section(panel);
    const after = this._sections.findIndex(other => other.panel.rank > panel.rank);
    const index = after < 0 ? this._sections.length : after;
    this._sections.splice(index, 0, section);
    this.content.insertWidget(index, section);
    return new DisposableDelegate(() => {
      this._sections.splice(this._sections.indexOf(section), 1);
      section.dispose();
    });
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._clock.watched = true;
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._clock.watched = this.isVisible;
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._clock.watched = false;
  }

  private readonly _sections: Section[] = [];
}

/** A heading that folds the panel below it. */
class Section extends Widget {
  constructor(readonly panel: IGPUBrokerPanel) {
    super();
    this.addClass('gpub-section');
    const { widget } = panel;
    widget.id ||= `gpub-panel-${panel.id}`;
    widget.node.setAttribute('role', 'region');
    this._button = document.createElement('button');
    this._button.type = 'button';
    this._button.className = 'gpub-sectionHead';
    this._button.setAttribute('aria-controls', widget.id);
    this._button.addEventListener('click', () => this._fold(!widget.isHidden));
    const head = new Widget({ node: document.createElement('h3') });
    head.addClass('gpub-heading3');
    head.node.append(this._button);
    const layout = (this.layout = new PanelLayout());
    layout.addWidget(head);
    layout.addWidget(widget);
    widget.title.changed.connect(this._relabel, this);
    this._relabel();
    this._fold(localStorage.getItem(FOLDED + panel.id) === '1');
  }

  private _relabel(): void {
    const { label } = this.panel.widget.title;
    this._button.textContent = label;
    this.panel.widget.node.setAttribute('aria-label', label);
  }

  private _fold(folded: boolean): void {
    this.panel.widget.setHidden(folded);
    this._button.setAttribute('aria-expanded', String(!folded));
    if (folded) {
      localStorage.setItem(FOLDED + this.panel.id, '1');
    } else {
      localStorage.removeItem(FOLDED + this.panel.id);
    }
  }

  private readonly _button: HTMLButtonElement;
}
