// SPDX-License-Identifier: BSD-3-Clause
/** One second hand for all panels; it rests while nobody looks. */
import type { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

export class Clock implements IDisposable {
  constructor() {
    document.addEventListener('visibilitychange', this._decide);
  }

  /** Emitted every second while somebody can see it, and at once when that begins. */
  get ticked(): ISignal<this, void> {
    return this._ticked;
  }

  /** Browser time of the last tick, in whole seconds since the epoch. */
  get now(): number {
    return this._now;
  }

  /** Whether the sidebar is open. */
  set watched(value: boolean) {
    this._watched = value;
    this._decide();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    document.removeEventListener('visibilitychange', this._decide);
    this._decide();
    Signal.clearData(this);
  }

  private readonly _decide = (): void => {
    const run = this._watched && !document.hidden && !this._isDisposed;
    if (run && this._timer === null) {
      this._timer = window.setInterval(this._tick, 1000);
      this._tick();
    } else if (!run && this._timer !== null) {
      window.clearInterval(this._timer);
      this._timer = null;
    }
  };

  private readonly _tick = (): void => {
    this._now = Math.floor(Date.now() / 1000);
    this._ticked.emit();
  };

  private _now = Math.floor(Date.now() / 1000);
  private _watched = false;
  private _isDisposed = false;
  private _timer: number | null = null;
  private readonly _ticked = new Signal<this, void>(this);
}
