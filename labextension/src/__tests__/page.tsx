// SPDX-License-Identifier: BSD-3-Clause
/** A page with one panel on it, read and used as a person does. */
import * as React from 'react';
import { createRoot } from 'react-dom/client';

(globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;

export class Page {
  constructor(element: React.ReactElement) {
    document.body.append(this.body);
    this.show(element);
  }

  show(element: React.ReactElement): void {
    React.act(() => this._root.render(element));
  }

  get text(): string {
    return (this.body.textContent ?? '').replace(/\s+/g, ' ');
  }

  /** The names of all buttons, in order. */
  get buttons(): string[] {
    return this.all('button').map(nameOf);
  }

  all(selector: string): Element[] {
    return [...this.body.querySelectorAll(selector)];
  }

  one(selector: string): Element {
    const found = this.all(selector);
    if (found.length !== 1) {
      throw new Error(`${found.length} elements match ${selector}`);
    }
    return found[0] as Element;
  }

  async press(name: string): Promise<void> {
    const button = this.all('button').find(item => nameOf(item) === name);
    if (button === undefined) {
      throw new Error(`no button '${name}' among ${this.buttons.join(', ')}`);
    }
    await React.act(async () => (button as HTMLButtonElement).click());
  }

  /** A key, pressed where the focus is. */
  async key(key: string): Promise<void> {
    const event = new KeyboardEvent('keydown', { key, bubbles: true });
    await React.act(async () => void document.activeElement?.dispatchEvent(event));
  }

  async choose(label: string, value: string): Promise<void> {
    const select = this.all('label')
      .find(item => item.firstElementChild?.textContent === label)
      ?.querySelector('select');
    if (!select) {
      throw new Error(`no choice '${label}'`);
    }
    await React.act(async () => {
      select.value = value;
      select.dispatchEvent(new Event('change', { bubbles: true }));
    });
  }

  options(label: string): string[] {
    const found = this.all('label').find(item => item.firstElementChild?.textContent === label);
    return [...(found?.querySelectorAll('option') ?? [])].map(item => item.textContent ?? '');
  }

  close(): void {
    React.act(() => this._root.unmount());
    this.body.remove();
  }

  readonly body = document.createElement('div');
  private readonly _root = createRoot(this.body);
}

function nameOf(button: Element): string {
  return button.getAttribute('aria-label') ?? button.textContent ?? '';
}
