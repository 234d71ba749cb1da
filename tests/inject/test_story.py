# SPDX-License-Identifier: BSD-3-Clause
"""What happened to a job, told in words."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpubroker.inject.gpubroker.story import story
from jupyter_gpubroker.inject.gpubroker.views import clock, describe, job_rows
from tests.extension.standin import job, why

AT, END = 1_800_000_000.0, 1_800_003_600.5


def line(event: str, actor: str = "broker", state: str = "running", **facts: Any) -> str:
    """One line of a story, without its time."""
    told = {"time": AT, "event": event, "actor": actor, "state": state, "facts": facts}
    lines = story({"job": job("b-1").model_dump(mode="json", by_alias=True), "story": [told]})
    at, _, words = lines[-1].partition("  ")
    assert at == clock(AT)
    return words


SHARES = [
    {"node": "node1", "device": "GPU-1", "milli": 1000},
    {"node": "node1", "device": "GPU-2", "milli": 1000},
    {"node": "node2", "device": "GPU-3", "milli": 500},
]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            line("job.submitted", "user:ana", "queued", wants="2 × 3 GPUs", time_limit=600.0),
            "submitted by ana: 2 × 3 GPUs, for at most 10 min → queued",
        ),
        (
            line("job.placed", state="starting", devices=SHARES, expires=END, attempt=2),
            f"got its place: 2 GPUs on node1 and 0.5 GPU on node2, until {clock(END)},"
            " attempt 2 → starting",
        ),
        (
            line(
                "job.noticed",
                state="draining",
                reason="idle",
                deadline=END,
                **{"from": "running", "for": "b-2", "for_user": "bo", "idle_since": AT},
            ),
            f"asked to leave: it is idle since {clock(AT)}, for b-2 of bo,"
            f" has to be gone by {clock(END)} → draining",
        ),
        (
            line("job.exited", "engine:local", "queued", code=75, rank=3, **{"from": "stopping"}),
            "its processes have ended: exit code 75, rank 3 first → queued",
        ),
        (
            line("job.exited", state="completed", code=0, rank=None, outcome="exit 0"),
            "its processes have ended: exit 0 → completed",
        ),
        (line("job.freed", state="parked", kept="gpu_state"), "its GPUs are free: everything is"
         " kept, GPU memory too → parked"),
        (line("quarantine.freed", devices=["GPU-1"], why="an admin says so", **{"from": "running"}),
         "its GPUs are free: GPU-1, an admin says so"),
        (line("job.kept-alive", "user:ana", **{"from": "running"}), "kept by ana"),
        (line("job.adopted", "hub", **{"from": "running"}),
         "taken over by the next start of its server by the Hub"),
        (line("job.new-kind", parts=[{"rank": 1, "lost": True}], share=0.5, **{"from": "running"}),
         "new kind: parts rank 1, lost yes, share 0.5"),
    ],
)  # fmt: skip
def test_each_line_is_words_and_times_of_the_local_clock(told: str, words: str) -> None:
    assert told == words


def test_what_is_told_in_several_lines_breaks_no_table_and_is_indented_elsewhere() -> None:
    outcome = "exit 1\nValueError: a\n\nb"
    failed = job("b-1", state="failed", outcome=outcome).model_dump(mode="json", by_alias=True)
    _, row = repr(job_rows([failed])).splitlines()
    assert row.endswith("  exit 1 …")
    assert "ValueError" not in job_rows([failed])._repr_html_()
    assert describe(failed)[1:] == ["exit 1", "    ValueError: a", "    b"]
    assert line("job.exited", state="failed", outcome=outcome).splitlines() == [
        "its processes have ended: exit 1 → failed",
        "    ValueError: a",
        "",
        "    b",
    ]


def test_a_job_that_waits_says_for_whom_and_until_when() -> None:
    waiting = job("b-1", why=why()).model_dump(mode="json", by_alias=True)
    assert story({"job": waiting, "story": []})[-1] == (
        f"waits for bo, until {clock(waiting['why']['until'])} at the latest"
    )
