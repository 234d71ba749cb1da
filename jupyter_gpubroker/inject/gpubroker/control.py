# SPDX-License-Identifier: BSD-3-Clause
"""What this kernel knows of its session, told by the server over the control channel.

The control channel is answered in a thread of its own, also while a cell runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from .touched import touched

REQUEST = "gpubroker_lease"
REPLY = "gpubroker_lease_reply"
STATES = ("leased", "parked", "none")


@dataclass(frozen=True)
class Told:
    """The last word of the server."""

    state: str = "none"
    """leased: cells run; parked: cells wait; none: cells run without a GPU."""
    session: Optional[str] = None
    job_state: str = ""
    text: str = ""


class Binding:
    """This kernel's side of the lease. Safe to use from every thread."""

    def __init__(self, told: Optional[Told] = None) -> None:
        self._told = told or Told()
        self._changed = threading.Condition()
        self.running = False
        """A cell runs that nothing held back."""

    @property
    def told(self) -> Told:
        """What the server said last."""
        with self._changed:
            return self._told

    def wait(self, seconds: float) -> Told:
        """Wait for news, at most that long; interruptible in the main thread."""
        with self._changed:
            self._changed.wait(seconds)
            return self._told

    def apply(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Take the server's word; the content of the reply. Bad content changes nothing."""
        state, env = content.get("state"), content.get("env") or {}
        if state not in STATES or not isinstance(env, Mapping):
            return {"status": "error", "reason": f"unknown state {state!r}"}
        # The environment first: a cell that waits runs as soon as the state says leased.
        applied, reason = (True, "") if state == "parked" else _bind(env)
        with self._changed:
            self._told = Told(
                state,
                content.get("session"),
                str(content.get("job_state") or ""),
                str(content.get("text") or ""),
            )
            self._changed.notify_all()
        return {
            "status": "ok",
            "applied": applied,
            "touched": bool(touched()),
            "reason": reason,
            "running": self.running,
        }


def install(kernel: Any, binding: Binding) -> None:
    """Answer the server's messages in this kernel (ipykernel 6 and 7)."""

    def handle(stream: Any, ident: Any, parent: Any) -> None:
        reply = binding.apply(parent.get("content") or {})
        kernel.session.send(stream, REPLY, reply, parent, ident)

    kernel.control_handlers[REQUEST] = handle


def _bind(env: Mapping[str, Any]) -> tuple[bool, str]:
    """Bind this process to exactly these GPUs; (False, why) if that comes too late."""
    wanted = {str(name): str(value) for name, value in env.items()}
    if all(os.environ.get(name) == value for name, value in wanted.items()):
        return True, ""
    reason = touched()
    if reason:
        return False, reason
    os.environ.update(wanted)
    return True, ""
