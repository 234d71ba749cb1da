# SPDX-License-Identifier: BSD-3-Clause
"""What has to be done so that the kernels follow the session: state in, plan out.

Pure and level-triggered: it looks at how things are, never at what happened, so it may
run at any time and as often as one likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..wire import JobOut, SessionState

_GATED_STAGES = ("park", "save")


@dataclass(frozen=True, slots=True)
class Word:
    """What a kernel is told. ``lease`` names the attempt that ``leased`` is about."""

    state: Literal["leased", "parked", "none"]
    lease: str = ""


@dataclass(frozen=True, slots=True)
class KernelView:
    """A kernel as far as its binding goes."""

    id: str
    managed: bool = True
    bound: str = ""
    """The attempt (``s-….3``) whose GPUs its environment names; empty = none."""
    told: Word | None = None
    """What it was told last; also set when it did not answer in time."""
    caught: bool = False
    """A cell ran when it heard that it is parked: it stands still at its next GPU call."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Send this word to this kernel."""

    kernel: str
    word: Word
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now; nothing, if the kernels follow the session already."""

    env: Mapping[str, str]
    """What a kernel that is launched from now on is bound to."""
    lease: str
    """The attempt that ``env`` belongs to; empty = no lease."""
    tell: tuple[Tell, ...] = ()
    restart: tuple[str, ...] = ()
    """Kernels that hold on to GPUs which have to go."""
    started: int | None = None
    """Attempt to acknowledge: its kernels are bound."""
    resume: bool = False
    """A cell was caught by the parking, and nobody wanted that: ask for the GPU."""
    kept: frozenset[str] = frozenset()
    """Kernels that must not be culled."""


def reconcile(state: SessionState, kernels: Sequence[KernelView], acknowledged: str) -> Plan:
    """The plan for this state. ``acknowledged``: the attempt that was acknowledged last."""
    session, mine = state.session, [kernel for kernel in kernels if kernel.managed]
    lease = live_lease(session)
    env = session.lease.env if lease and session and session.lease else state.empty_env
    words = {kernel.id: _word(session, lease, kernel) for kernel in mine}
    due = lease if lease != acknowledged and all(_settled(k, lease) for k in mine) else ""
    return Plan(
        env=env,
        lease=lease,
        tell=tuple(
            Tell(kernel.id, words[kernel.id], env)
            for kernel in mine
            if _has_to_hear(kernel, words[kernel.id])
        ),
        restart=tuple(kernel.id for kernel in mine if _holds_on(session, kernel)),
        started=session.attempt if due and session else None,
        resume=_is_wanted_back(session, mine),
        kept=frozenset(kernel.id for kernel in mine if _is_kept(session, kernel)),
    )


def live_lease(session: JobOut | None) -> str:
    """The attempt whose GPUs kernels may use now, as ``s-….3``; empty if there is none."""
    if session is None or session.lease is None:
        return ""
    usable = session.state in ("running", "draining")
    if usable or (session.state == "starting" and session.lease.prepared):
        return f"{session.id}.{session.lease.attempt}"
    return ""


def needs_restart(kernel: KernelView) -> bool:
    """True if it heard what it should be bound to and could not follow."""
    if kernel.told is None or kernel.told.state == "parked":
        return False
    return kernel.bound != kernel.told.lease


def _word(session: JobOut | None, lease: str, kernel: KernelView) -> Word:
    if lease:
        return Word("leased", lease)
    if session is not None and _gated(session) and _belongs(session, kernel):
        return Word("parked", session.id)
    return Word("none")


def _gated(session: JobOut) -> bool:
    """Whether cells of its kernels wait."""
    if session.state == "stopping":
        return session.stage in _GATED_STAGES
    return session.state == "parked" or (
        session.state in ("queued", "starting") and bool(session.kept)
    )


def _belongs(session: JobOut, kernel: KernelView) -> bool:
    kept = any(kept.kernel == kernel.id for kept in session.kept)
    return kept or kernel.bound.rpartition(".")[0] == session.id


def _has_to_hear(kernel: KernelView, word: Word) -> bool:
    if kernel.told is None and word.state == "none":
        return bool(kernel.bound)
    return kernel.told != word


def _settled(kernel: KernelView, lease: str) -> bool:
    return kernel.bound == lease or kernel.told == Word("leased", lease)


def _holds_on(session: JobOut | None, kernel: KernelView) -> bool:
    """True if it was asked to let go of the GPUs and could not."""
    if session is None or session.state != "stopping" or session.stage != "restart":
        return False
    return _belongs(session, kernel) and kernel.told == Word("none") and needs_restart(kernel)


def _is_wanted_back(session: JobOut | None, kernels: Sequence[KernelView]) -> bool:
    # After its time limit a cell takes no new one by itself; who parked it by hand meant it.
    if session is None or session.state != "parked" or session.parked_for in ("time", "user"):
        return False
    return any(kernel.caught and _belongs(session, kernel) for kernel in kernels)


def _is_kept(session: JobOut | None, kernel: KernelView) -> bool:
    return session is not None and _gated(session) and _belongs(session, kernel)
