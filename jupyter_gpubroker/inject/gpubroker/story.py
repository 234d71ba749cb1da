# SPDX-License-Identifier: BSD-3-Clause
"""What happened to a job, in words: the lines of the journal as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .views import clock, describe, duration, indented

_EVENTS = {
    "submitted": "submitted",
    "placed": "got its place",
    "reserved": "its reservation changed",
    "noticed": "asked to leave",
    "reprieved": "may stay after all",
    "deadline": "its time for this was over",
    "retuned": "the policy changed",
    "prepared": "its GPUs are prepared",
    "started": "started",
    "refused": "could not be started",
    "exited": "its processes have ended",
    "freed": "its GPUs are free",
    "lost": "a part of it was lost",
    "restore-failed": "what was parked could not be restored",
    "active": "in use",
    "hello": "its server is up",
    "holder-gone": "its server is gone",
    "kept-lost": "what was kept is lost",
    "marked": "said how far it is",
    "cancel-asked": "cancelled",
    "held": "held back",
    "unheld": "released from hold",
    "withdrawn": "withdrawn",
    "release-asked": "released",
    "park-asked": "to be parked",
    "resume-asked": "to be resumed",
    "kept-alive": "kept",
    "extended": "extended",
    "adopted": "taken over by the next start of its server",
    "forced": "ended by force",
}
_REASONS = {
    "idle": "it is idle",
    "preempted": "another job needs its GPUs",
    "user": "its owner asked for it",
    "cell": "no cell runs",
    "start": "it did not start in time",
    "drain": "the node is drained",
    "time": "its time is up",
    "over": "it used more than its share",
    "lost": "a part of it was lost",
    "holder": "its server is gone",
    "release": "it was released",
    "cancel": "it was cancelled",
}
_STAGES = {
    "park": "its GPU memory is being parked",
    "save": "its variables are being saved",
    "restart": "its kernels restart without GPUs",
    "signal": "its processes were asked to end",
    "kill": "its processes are being killed",
    "fence": "waiting for the proof that its GPUs are free",
}
_KEPT = {
    "gpu_state": "everything is kept, GPU memory too",
    "variables": "its variables are kept",
    "server": "documents and outputs are kept",
    "nothing": "nothing is kept",
}
_TOLD = ("from", "attempt", "for", "for_user", "rank", "code", "idle_since")
"""Facts that are told with others, or go without saying."""


def story(answer: Mapping[str, Any]) -> list[str]:
    """GET /jobs/ID/explain: the Job, for whom it waits, what its place in the line follows
    from, then what happened to it."""
    return [
        *describe(answer["job"]),
        *_waits(answer["job"]),
        *_place(answer.get("factors", ())),
        *map(_line, answer["story"]),
    ]


def _place(factors: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if factors:
        yield "its place in the line, by what counts most:"
    for factor in factors:
        yield f"  {factor['name']:9}{factor['text']}"


def _waits(job: Mapping[str, Any]) -> Iterator[str]:
    why = job.get("why") or {}
    users, until = why.get("waits_for_users", ()), why.get("until")
    whom = f"waits for {', '.join(users)}" if users else "waits"
    if users or until:
        yield whom + (f", until {clock(until)} at the latest" if until else "")


def _line(event: Mapping[str, Any]) -> str:
    facts = event["facts"]
    word = event["event"].partition(".")[2] or event["event"]
    moved = event["state"] and facts.get("from") != event["state"]
    attempt = [f"attempt {facts['attempt']}"] if facts.get("attempt", 0) > 1 else []
    told, *rest = indented(", ".join([*_facts(facts), *attempt]))
    line = (
        f"{clock(event['time'])}  {_EVENTS.get(word, word.replace('-', ' '))}"
        + _by(event["actor"])
        + (f": {told}" if told else "")
        + (f" → {event['state']}" if moved else "")
    )
    return "\n".join([line, *rest])


def _by(actor: str) -> str:
    """People and the Hub are named; what nobody asked for is the broker's or an engine's."""
    kind, _, name = actor.partition(":")
    if kind in ("", "broker", "engine"):
        return ""
    return f" by {'the Hub' if kind == 'hub' else name or kind}"


def _facts(facts: Mapping[str, Any]) -> Iterator[str]:
    for name, value in facts.items():
        if name == "code" and value is not None and not facts.get("outcome"):
            rank = facts.get("rank")
            yield f"exit code {value}" + (f", rank {rank} first" if rank is not None else "")
        if value is None or value == "" or name in _TOLD:
            continue
        if name == "devices":
            yield _devices(value)
        elif name == "expires":
            yield f"until {clock(value)}"
        elif name == "start":
            yield f"from {clock(value)} at the latest"
        elif name == "reason":
            yield _REASONS.get(value, value) + _for(facts)
        elif name == "deadline":
            yield f"has to be gone by {clock(value)}"
        elif name == "stage":
            yield _STAGES.get(value, value)
        elif name == "kept":
            yield _KEPT.get(value, value)
        elif name == "time_limit":
            yield f"for at most {duration(value)}"
        elif name in ("wants", "text", "outcome", "samples", "why", "note"):
            yield str(value)
        else:
            yield f"{name.replace('_', ' ')} {_words(value)}"


def _for(facts: Mapping[str, Any]) -> str:
    since = f" since {clock(facts['idle_since'])}" if facts.get("idle_since") else ""
    taker, user = facts.get("for"), facts.get("for_user")
    whom = f"{taker} of {user}" if taker and user else taker or user
    return since + (f", for {whom}" if whom else "")


def _devices(value: Sequence[Any]) -> str:
    """``3 GPUs on node1 and 0.5 GPU on node2``; of a quarantine only the UUIDs are told."""
    milli: dict[str, int] = {}
    for share in value:
        if not isinstance(share, Mapping):
            return _words(value)
        milli[share["node"]] = milli.get(share["node"], 0) + share["milli"]
    return " and ".join(f"{gpus(amount)} on {node}" for node, amount in milli.items())


def gpus(milli: int) -> str:
    """``2 GPUs``, ``1 GPU``, ``0.5 GPU``."""
    return f"{milli / 1000:g} GPU" + ("s" if milli > 1000 or not milli else "")


def _words(value: object) -> str:
    """Any other fact, without the marks of a programming language."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
