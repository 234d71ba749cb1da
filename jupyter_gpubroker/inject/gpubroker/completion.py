# SPDX-License-Identifier: BSD-3-Clause
"""What Tab offers behind the magics: ids of jobs, verbs of the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from IPython.core import completer

from .http import BrokerError, Client
from .views import OVER

VERBS = ("show", "request", "release", "park", "resume", "keep", "extend")


def install(shell: Any) -> None:
    """Offer them in this shell; an IPython older than 8.6 goes without."""
    decorate = getattr(completer, "context_matcher", None)
    if decorate is not None:
        # A matcher of its own: behind a hook Jedi would read b-… as an expression.
        shell.Completer.custom_matchers.append(decorate(identifier="gpubroker")(_match))


def _match(context: Any) -> dict[str, Any]:
    found = [word for word in offers(context.text_until_cursor) if word.startswith(context.token)]
    completions = [completer.SimpleCompletion(text=word, type="gpubroker") for word in found]
    return {"completions": completions, "suppress": bool(found)}


def offers(line: str) -> Sequence[str]:
    """Words that may stand at the end of this line."""
    magic, blank, _ = line.lstrip().lstrip("%").partition(" ")
    if not blank:
        return ()
    if magic == "gpu_session":
        return VERBS
    if magic in ("gpu_logs", "gpu_explain", "gpu_cancel"):
        return _job_ids(living=magic == "gpu_cancel")
    return ()


def _job_ids(*, living: bool) -> list[str]:
    try:
        jobs = Client.from_environment().get("/jobs", limit=50)
    except BrokerError:
        return []
    return [job["id"] for job in jobs if not (living and job["state"] in OVER)]
