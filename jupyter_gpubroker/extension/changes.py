# SPDX-License-Identifier: BSD-3-Clause
"""Tell browsers, over JupyterLab's own events socket, that something changed."""

from __future__ import annotations

import asyncio
from typing import Any

SCHEMA_ID = "https://events.jupyter.org/jupyter_gpubroker/changed/v1"
SPACING_S = 0.2
"""At most one event in this time: five a second."""

SCHEMA: dict[str, Any] = {
    "$id": SCHEMA_ID,
    "version": "1",
    "title": "The GPU broker's state changed",
    "description": "Parts of GET gpubroker/state that may have changed; no other payload.",
    "personal-data": False,
    "type": "object",
    "properties": {
        "seq": {"type": "integer", "description": "The broker's last event that is included."},
        "changed": {
            "type": "array",
            "items": {"enum": ["broker", "session", "kernels", "jobs", "queue", "nodes"]},
        },
    },
    "required": ["seq", "changed"],
}


class Changes:
    """Gathers what changed and emits it, coalesced."""

    def __init__(self, events: Any) -> None:
        """``events`` is the server's EventLogger."""
        self._events = events
        self._parts: dict[str, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._quiet_until = 0.0
        self.seq = 0
        events.register_event_schema(SCHEMA)

    def add(self, *parts: str, seq: int = 0) -> None:
        """These parts changed; called on the loop."""
        self._parts.update(dict.fromkeys(parts))
        self.seq = max(self.seq, seq)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._quiet_until), self._emit)

    def _emit(self) -> None:
        self._timer = None
        self._quiet_until = asyncio.get_running_loop().time() + SPACING_S
        data = {"seq": self.seq, "changed": list(self._parts)}
        self._parts.clear()
        self._events.emit(schema_id=SCHEMA_ID, data=data)

    def close(self) -> None:
        """Emit nothing more."""
        if self._timer is not None:
            self._timer.cancel()
