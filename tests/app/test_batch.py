# SPDX-License-Identifier: BSD-3-Clause
"""Batch jobs through a real broker: failures, restarts, limits, refusals, two who race."""

from __future__ import annotations

import threading

import psutil
import pytest

from jupyter_gpubroker.client import Conflict, Refusal, Unknown
from jupyter_gpubroker.wire import RequestIn, SubmitIn
from tests.until import until

from .brokers import SoloBroker, ended, reached

DYING = """
import os, sys, threading
import torch.distributed as dist
dist.init_process_group("gloo")
open(f"start-{os.environ['RANK']}-{os.environ['GPUBROKER_ATTEMPT']}", "w").close()
dist.barrier()
if os.environ["RANK"] == "1":
    print("the last words of rank 1", flush=True)
    os._exit(7)
threading.Event().wait()
"""


def _of_job(job: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("GPUBROKER_JOB") == job:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.torch
def test_a_rank_that_dies_fails_the_attempt_and_after_the_budget_the_job(
    broker: SoloBroker,
) -> None:
    client = broker.start().client()
    job = client.submit(
        SubmitIn(
            argv=("job.py",),
            files={"job.py": DYING},
            cwd=str(broker.folder),
            env=broker.environment,
            python=__import__("sys").executable,
            request=RequestIn(nodes=2, gpus=1, time="10m"),
            max_restarts=1,
        )
    )
    done = ended(client, job.id, timeout=200)
    assert (done.state, done.attempt, done.restarts) == ("failed", 2, 1)
    assert (done.failed_rank, done.code) == (1, 7)
    assert "rank 1: exit 7" in done.outcome
    assert "the last words of rank 1" in done.outcome
    assert _of_job(job.id) == []
    starts = sorted(path.name for path in broker.folder.glob("start-*"))
    assert starts == ["start-0-1", "start-0-2", "start-1-1", "start-1-2"]
    story = [event.event for event in client.explain(job.id).story]
    assert story.count("job.placed") == 2


def test_a_time_limit_ends_a_job_and_says_so(broker: SoloBroker) -> None:
    client = broker.start().client()
    job = broker.submit(client, "import threading; threading.Event().wait()", gpus=1, time="1s")
    done = ended(client, job.id)
    assert (done.state, done.outcome) == ("failed", "time limit")
    assert _of_job(job.id) == []


def test_submitted_code_is_a_copy(broker: SoloBroker) -> None:
    client = broker.start().client()
    first = broker.submit(client, "print('first')", gpus=4, nodes=1, time="1m")
    second = broker.submit(client, "print('second')", gpus=1, time="1m")
    for job, word in ((first, "first"), (second, "second")):
        assert ended(client, job.id).state == "completed"
        assert client.logs(job.id).text == f"{word}\n"


def test_two_who_race_for_the_last_gpu_never_both_get_it(broker: SoloBroker) -> None:
    client = broker.start().client()
    wait = "import os, threading\nopen('up', 'a').write('x')\nthreading.Event().wait()"
    first = broker.submit(client, wait, gpus=4, time="10m")
    blocker = broker.submit(client, wait, gpus=3, time="10m")
    reached(client, first.id, "running")
    reached(client, blocker.id, "running")
    found = []
    barrier = threading.Barrier(2)

    def race() -> None:
        barrier.wait()
        found.append(broker.submit(broker.client(), wait, gpus=1, time="10m").id)

    racers = [threading.Thread(target=race) for _ in range(2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    up = broker.folder / "up"
    until(lambda: up.exists() and up.read_text() == "xxx", what="one of them to run")

    def states() -> list[str]:
        return sorted(client.show(job).state for job in found)

    until(lambda: states() == ["queued", "running"], what="one to run and one to wait")
    waiting = next(row for row in client.queue() if row.id in found)
    assert waiting.why is not None
    assert waiting.why.position == 1
    busy = [device for node in client.nodes() for device in node.devices if not device.free_milli]
    assert len(busy) == 8


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"gpus": 9}, "gpus"),
        ({"gpus": 0}, "gpus"),
        ({"gpus": -1}, "gpus"),
        ({"gpus": "NaN"}, "gpus"),
        ({"gpus": "half"}, "gpus"),
        ({"gpus": 1, "time": "1000000000h"}, "time"),
        ({"gpus": 1, "flavors": ("h100",)}, "flavors"),
        ({"gpus": 4, "nodes": 3}, "nodes"),
    ],
)
def test_what_can_never_run_is_refused_and_nothing_is_queued(
    request_: dict[str, object], field: str, broker: SoloBroker
) -> None:
    client = broker.start().client()
    with pytest.raises(Refusal) as caught:
        broker.submit(client, "print()", **request_)
    assert field in caught.value.field
    assert client.jobs() == []


def test_verbs_that_come_too_late_are_refused_with_the_state(broker: SoloBroker) -> None:
    client = broker.start().client()
    job = broker.submit(client, "print()", gpus=1, time="1m")
    ended(client, job.id)
    with pytest.raises(Conflict, match="completed"):
        client.extend(job.id, "1h")
    with pytest.raises(Unknown):
        client.show("b-nothere")
