# SPDX-License-Identifier: BSD-3-Clause
"""The table of what is done: session and kernels in, plan out."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpubroker.extension.reconcile import (
    KernelView,
    Tell,
    Word,
    live_lease,
    needs_restart,
    reconcile,
)
from jupyter_gpubroker.wire import JobOut, SessionState

from .standin import EMPTY, UUID, job, kept, lease

LEASED, PARKED, NONE = Word("leased", "s-1.1"), Word("parked", "s-1"), Word("none")
GPU = {"CUDA_VISIBLE_DEVICES": UUID}
STARTING = {"state": "starting", "lease": lease(1)}
RUNNING = {"state": "running", "lease": lease(1), "attempt": 1}
PARKING = {"state": "stopping", "stage": "park", "lease": lease(1)}
RESTARTING = {"state": "stopping", "stage": "restart", "lease": lease(1)}


def session(**changes: Any) -> JobOut:
    return job("s-1", "session", **changes)


def state(found: JobOut | None) -> SessionState:
    return SessionState(seq=1, key="ana/", session=found, empty_env=EMPTY)


def kernel(**changes: Any) -> KernelView:
    return KernelView("k", **changes)


BOUND = {"bound": "s-1.1", "told": LEASED}
WORDS: dict[str, tuple[JobOut | None, dict[str, Any], Word | None]] = {
    "a new kernel without a session hears nothing": (None, {}, None),
    "a waiting session changes nothing": (session(), {}, None),
    "a lease that is not prepared is not told": (
        session(state="starting", lease=lease(1, prepared=False)), {}, None,
    ),
    "a prepared lease is told": (session(**STARTING), {}, LEASED),
    "a running lease is told to a new kernel": (session(**RUNNING), {}, LEASED),
    "a draining lease is still usable": (
        session(state="draining", lease=lease(1)), {"bound": "s-1.1"}, LEASED,
    ),
    "what was told is not told again": (session(**RUNNING), BOUND, None),
    "a later attempt is told": (session(state="running", lease=lease(2)), BOUND,
                                Word("leased", "s-1.2")),
    "a bound kernel hears that it is being parked": (session(**PARKING), BOUND, PARKED),
    "a kernel without the GPU is not held back": (session(**PARKING), {}, None),
    "a parked kernel that the broker names is held back": (
        session(state="parked", kept=kept("k")), {}, PARKED,
    ),
    "a queued session that kept something holds its kernels back": (
        session(state="queued", kept=kept("k")), BOUND, PARKED,
    ),
    "so does one that is being restored": (
        session(state="starting", lease=lease(2, prepared=False), kept=kept("k")), BOUND, PARKED,
    ),
    "a restored kernel hears of its lease": (
        session(state="starting", lease=lease(2), kept=kept("k")),
        {"bound": "s-1.1", "told": PARKED}, Word("leased", "s-1.2"),
    ),
    "a kernel that has to go is first asked to let go": (session(**RESTARTING), BOUND, NONE),
    "a kernel whose session ended is told so": (None, BOUND, NONE),
    "a parked kernel whose session ended is told so": (None, {"told": PARKED}, NONE),
    "another session's kernel is told of the new lease": (
        session(**RUNNING), {"bound": "s-0.4", "told": Word("leased", "s-0.4")}, LEASED,
    ),
    "a kernel with a provisioner of its own is left alone": (
        session(**RUNNING), {"managed": False}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_what_a_kernel_is_told(name: str) -> None:
    found, view, word = WORDS[name]
    plan = reconcile(state(found), [kernel(**view)], "")
    env = GPU if word and word.state == "leased" else EMPTY
    assert plan.tell == (() if word is None else (Tell("k", word, env),))


def test_new_kernels_get_the_lease_only_while_it_is_usable() -> None:
    assert reconcile(state(session(**RUNNING)), [], "").env == GPU
    for found in (None, session(), session(**PARKING), session(state="parked", kept=kept("k"))):
        assert reconcile(state(found), [], "").env == EMPTY
        assert reconcile(state(found), [], "").lease == ""


def test_only_a_kernel_that_could_not_let_go_is_restarted() -> None:
    stopping = state(session(**RESTARTING))
    holding = kernel(bound="s-1.1", told=NONE)
    assert reconcile(stopping, [holding], "").restart == ("k",)
    assert reconcile(stopping, [kernel(**BOUND)], "").restart == ()
    assert reconcile(stopping, [kernel(told=NONE)], "").restart == ()
    elsewhere = kernel(bound="s-0.9", told=NONE)
    assert reconcile(stopping, [elsewhere], "").restart == ()
    assert reconcile(state(session(**PARKING)), [holding], "").restart == ()


def test_a_lease_is_acknowledged_once_when_all_its_kernels_have_heard_of_it() -> None:
    starting = state(session(**STARTING, attempt=1))
    assert reconcile(starting, [], "").started == 1
    assert reconcile(starting, [], "s-1.1").started is None
    deaf = kernel(told=LEASED)
    assert reconcile(starting, [deaf], "").started == 1, "it had its time to answer"
    assert reconcile(starting, [kernel()], "").started is None
    assert reconcile(starting, [kernel(bound="s-1.1")], "").started == 1, "bound at its launch"
    assert reconcile(starting, [kernel(managed=False)], "").started == 1
    back = state(session(state="draining", lease=lease(1), attempt=1))
    assert reconcile(back, [], "").started == 1, "the server came back in time"


def test_a_cell_that_was_caught_asks_for_the_gpu_unless_a_person_parked_it() -> None:
    caught = kernel(bound="s-1.1", told=PARKED, caught=True)

    def resumes(view: KernelView, **changes: Any) -> bool:
        parked = session(**{"state": "parked", "parked_for": "preempted", **changes})
        return reconcile(state(parked), [view], "").resume

    assert resumes(caught)
    assert not resumes(kernel(bound="s-1.1", told=PARKED))
    assert not resumes(caught, parked_for="user")
    assert not resumes(caught, parked_for="time")
    assert not resumes(caught, state="queued")
    assert not resumes(KernelView("k", bound="s-0.1", told=PARKED, caught=True))


def test_parked_kernels_are_protected_from_the_culler() -> None:
    parked = state(session(state="parked", kept=kept("k")))
    other = KernelView("other")
    assert reconcile(parked, [kernel(**BOUND), other], "").kept == {"k"}
    assert reconcile(state(session(**RUNNING)), [kernel(**BOUND)], "").kept == frozenset()


def test_a_kernel_needs_a_restart_if_it_heard_and_could_not_follow() -> None:
    assert needs_restart(kernel(told=LEASED))
    assert needs_restart(kernel(bound="s-1.1", told=NONE))
    assert not needs_restart(kernel())
    assert not needs_restart(kernel(**BOUND))
    assert not needs_restart(kernel(bound="s-1.1", told=PARKED))


def test_a_lease_is_live_only_when_processes_may_use_it() -> None:
    assert live_lease(None) == ""
    assert live_lease(session(state="starting", lease=lease(3, prepared=False))) == ""
    assert live_lease(session(state="starting", lease=lease(3))) == "s-1.3"
    assert live_lease(session(**PARKING)) == ""
