# SPDX-License-Identifier: BSD-3-Clause
"""Records to store, as short as they can be said."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpubroker.core.model import (
    Holder,
    Job,
    Kept,
    Kind,
    Lease,
    Mode,
    Notice,
    Process,
    Quarantined,
    Reason,
    Request,
    Rung,
    Share,
    Stage,
    StageName,
    State,
    Terms,
)
from jupyter_gpubroker.store import Entry, LaunchRow, PolicyRow, Spent, Usage, Writes

DAY = 86400.0
SECRET = "hunter2-hunter2"  # what must never be found outside launches.env

SHARE = Share("n1", "GPU-1", 500, 8192)

KEPT = Kept(
    kernel="k1",
    attempt=1,
    rung=Rung.GPU_STATE,
    node="n1",
    boot="boot-1",
    devices=("GPU-1",),
    memory_mib=8192,
    processes=(Process(4712, 100),),
)


def batch(job: str = "b-1", **changes: object) -> Job:
    """A waiting batch Job."""
    base = Job(job, Kind.BATCH, "ana", "default", "batch", Request(nodes=2, gpus=3))
    return replace(base, **changes)  # type: ignore[arg-type]


def session() -> Job:
    """A session in the middle of a stop, with something in every kind of field."""
    return Job(
        id="s-1",
        kind=Kind.SESSION,
        user="bob",
        queue="default",
        class_name="interactive",
        request=Request(gpu_milli=500, flavors=("a100", "h100"), time_limit=7200.0),
        terms=Terms(park=((StageName.PARK, 60.0), (StageName.SAVE, 60.0))),
        state=State.STOPPING,
        submitted=3.0,
        lease=Lease("local", (SHARE,), 2, 10.0, 7210.0, Mode.HELD),
        notice=Notice(Reason.IDLE, 100.0, "b-1", "n-7"),
        stages=(Stage(StageName.PARK, 160.0), Stage(StageName.KILL, 190.0)),
        attempt=2,
        avoid=(("n2", 400.0),),
        server="bob/",
        incarnation=4,
        holder=Holder("n1", "boot-1", 4711, 99),
        kept=(KEPT,),
        parked_for=Reason.PREEMPTED,
    )


def entry(seq: int, **changes: object) -> Entry:
    """A journal entry."""
    base = Entry(seq, float(seq), "broker", "job.placed", "b-1", "ana", "starting", {"on": ["n1"]})
    return replace(base, **changes)  # type: ignore[arg-type]


def launch(**changes: object) -> LaunchRow:
    """A launch with a secret in its environment and code that is not text."""
    base = LaunchRow(
        argv=("train.py", "--lr", "0.1"),
        env={"TOKEN": SECRET, "LANG": "de"},
        cwd="/home/ana",
        python="/usr/bin/python3",
        torchrun=True,
        account="ana",
        files={"train.py": b"print('\xff\x00')"},
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def policy(revision: int = 1) -> PolicyRow:
    """A revision of the policy."""
    return PolicyRow(revision, "classes:\n  batch: {}\n", "admin:eve", 5.0)


QUARANTINED = Quarantined((SHARE,), "b-0", 3, {"n1": "boot-1"}, 50.0)


def everything() -> Writes:
    """Something in every field of Writes."""
    return Writes(
        jobs=[session(), batch()],
        entries=[entry(1), entry(2, job="s-1", facts={"idle": 600.5, "kernels": [None, True]})],
        usage=[Usage("default", "ana", 1234.5, 60.0)],
        spent=[Spent("default", "ana", 20_000, 99.5)],
        launches={"b-1": launch()},
        quarantined=[QUARANTINED],
        policy=policy(),
        submits={("ana", "key-1"): "b-1"},
        servers={"bob/": 4},
        nodes={"n2": "fan is broken"},
    )
