# SPDX-License-Identifier: BSD-3-Clause
"""Keep shown things fresh after their cell has returned, from one background thread."""

from __future__ import annotations

import threading
from typing import Any, Optional, Protocol

from .ipython import cell_number, show

PAUSE = 1.0
"""Seconds between two looks."""


class View(Protocol):
    """Something shown that can look again."""

    shown_in: int
    """The cell that shows it."""

    def refresh(self) -> bool:
        """Look again; False when it will not change any more. Errors show up in the view."""
        ...


class Picture:
    """How a view looks. The view itself, as the value of the cell that shows it already,
    must not be shown there a second time."""

    def __init__(self, view: Any) -> None:
        self._view = view

    def __repr__(self) -> str:
        return repr(self._view)

    def _repr_html_(self) -> str:
        return str(self._view.html())


class Live:
    """The views that are kept fresh. Its thread ends when there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: list[tuple[View, Any, str]] = []
        self._thread: Optional[threading.Thread] = None

    def show(self, view: View) -> None:
        """Display the view here, and go on updating it where it stands."""
        view.shown_in = cell_number()
        handle = show(Picture(view))
        if handle is None:
            return
        with self._lock:
            self._views.append((view, handle, repr(view)))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gpubroker", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(PAUSE)
            with self._lock:
                views = self._views
            fresh = [kept for view in views if (kept := _update(*view))]
            with self._lock:
                self._views = fresh + self._views[len(views) :]
                if not self._views:
                    self._thread = None
                    return


def _update(view: View, handle: Any, shown: str) -> Optional[tuple[View, Any, str]]:
    goes_on = view.refresh()
    if repr(view) != shown:
        handle.update(Picture(view))
    return (view, handle, repr(view)) if goes_on else None
