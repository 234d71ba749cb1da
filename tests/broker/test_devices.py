# SPDX-License-Identifier: BSD-3-Clause
"""A device that fails: nothing new is placed on it, what runs there goes on."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpubroker.core.model import Job, State

from .desk import Desk


def used(job: Job) -> Sequence[str]:
    """The devices of its lease."""
    assert job.lease is not None
    return [share.device for share in job.lease.placement]


def test_a_broken_device_is_granted_to_nobody_until_it_is_mended() -> None:
    desk = Desk()
    desk.sees(broken="GPU-2")
    assert "GPU-2" not in used(desk.submit(3))
    waiting = desk.submit(1)
    assert waiting.state is State.QUEUED
    desk.sees()
    assert used(desk.broker.world.jobs[waiting.id]) == ["GPU-2"]


def test_what_runs_on_a_device_that_breaks_goes_on() -> None:
    desk = Desk()
    desk.sees()
    job = desk.submit(1)
    (broken,) = used(job)
    turn = desk.sees(broken)
    assert desk.broker.world.jobs[job.id] == job
    assert [entry.event for entry in turn.writes.entries] == ["device.unusable"]
    assert broken not in used(desk.submit(3))


def test_what_is_usable_no_longer_or_again_is_in_the_journal_once() -> None:
    desk = Desk()
    entries = [
        entry for broken in ("", "GPU-1", "GPU-1", "") for entry in desk.sees(broken).writes.entries
    ]
    assert [(entry.actor, entry.event) for entry in entries] == [
        ("engine:toy", "device.unusable"),
        ("engine:toy", "device.usable"),
    ]
    assert entries[0].facts == {"node": "node1", "device": "GPU-1", "note": "Xid 79"}
